//! Stock git, go-git and gix through tidegate: the same refs, objects, shallow
//! files and exit codes as straight from the upstream.

use tidegate_conformance::client::{gix, gogit};
use tidegate_conformance::raw::Request;
use tidegate_conformance::scene::Door;
use tidegate_conformance::{Git, Kind, Outcome, Scene, fixture};

const VERSIONS: [u8; 3] = [0, 1, 2];

/// Mirrors a repository and lists it.
fn mirrored(door: &Door<'_>, repository: &str, protocol: u8) -> Outcome {
    let git = Git::speaking(protocol);
    let mut outcome = Outcome::new();
    let url = door.url(&format!("ok/{repository}.git"));
    let folder = door.folder("mirror");
    outcome.run("clone", &git.mirror(&url, &folder), door.base());
    outcome.repository("clone", &folder);
    let list = git.list(&url);
    outcome.run("list", &list, door.base());
    outcome.output("list", &list);
    outcome
}

// K2
#[test]
fn a_full_clone_is_the_same_in_every_protocol_version_cold_and_warm() {
    let scene = Scene::start();
    for protocol in VERSIONS {
        let name = format!("plain-{protocol}");
        fixture::plain(&scene.upstream, &name);
        scene.cold_and_warm(|door| mirrored(door, &name, protocol)).all_succeeded();
    }
}

// K2: a proxy must not be confused by more in Git-Protocol than the version.
#[test]
fn git_protocol_with_more_keys_still_means_version_two() {
    let scene = Scene::start();
    fixture::octopus(&scene.upstream);
    scene.both(|door| mirrored(door, "octopus", 2));
    let path = tidegate_conformance::Tidegate::path("ok/octopus.git");
    let answer = scene.tidegate().send(&Request::refs(&path).header("Git-Protocol", "version=2:foo=1"));
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains("version 2"), "{}", answer.text());
}

// A1
#[test]
fn argo_lists_head_symref_and_peeled_tags_from_an_exact_media_type() {
    let scene = Scene::start();
    fixture::plain(&scene.upstream, "plain");
    let path = tidegate_conformance::Tidegate::path("ok/plain.git");
    let answer = scene.tidegate().send(&Request::refs(&path));
    assert_eq!(answer.header("content-type"), Some("application/x-git-upload-pack-advertisement"));
    assert_eq!(answer.header("cache-control"), Some("no-cache, max-age=0, must-revalidate"));
    assert_eq!(answer.header("content-encoding"), None);
    let (packets, rest) = tidegate_conformance::pkt::read(&answer.body);
    assert!(rest.is_empty());
    let lines: Vec<String> = packets.iter().map(tidegate_conformance::pkt::Pkt::text).collect();
    assert_eq!(lines[0], "# service=git-upload-pack");
    assert!(lines[2].contains(" HEAD\0") && lines[2].contains("symref=HEAD:refs/heads/main"), "{}", lines[2]);
    for capability in ["allow-tip-sha1-in-want", "allow-reachable-sha1-in-want", "multi_ack_detailed"] {
        assert!(lines[2].contains(capability), "{capability} in {}", lines[2]);
    }
    let Some(client) = gogit::GoGit::find("Argo CD's ls-remote") else { return };
    let client = client.sending("x-access-token", "anything");
    scene
        .cold_and_warm(|door| {
            let run = client.list(&door.url("ok/plain.git")).ok();
            let mut outcome = Outcome::new();
            outcome.note("refs", format!("{:?}", gogit::refs(&run)));
            outcome
        })
        .all_succeeded();
}

// A2 on one node: what the list said can be fetched and checked out.
#[test]
fn argo_fetches_and_checks_out_what_it_listed() {
    let scene = Scene::start();
    let repository = fixture::plain(&scene.upstream, "plain");
    let tip = repository.resolve("refs/heads/main");
    scene
        .cold_and_warm(|door| {
            let git = Git::new();
            let url = door.url("ok/plain.git");
            let folder = door.folder("argo");
            let mut outcome = Outcome::new();
            git.run(&std::env::temp_dir(), &["init", "-q", &folder.to_string_lossy()]).ok();
            git.run(&folder, &["remote", "add", "origin", &url]).ok();
            for step in [
                vec!["fetch", "origin", "--tags", "--force", "--prune"],
                vec!["checkout", "--force", &tip],
                vec!["fetch", "origin", "--tags", "--force", "--prune"],
            ] {
                outcome.run(&step.join(" "), &git.run(&folder, &step), door.base());
            }
            outcome.repository("argo", &folder);
            outcome
        })
        .all_succeeded();
}

// A3
#[test]
fn a_shallow_fetch_by_id_moves_on_to_the_next_id() {
    for protocol in VERSIONS {
        let scene = Scene::start();
        let repository = fixture::plain(&scene.upstream, "plain");
        let (first, second) = (repository.resolve("main~3"), repository.resolve("main"));
        scene
            .cold_and_warm(|door| {
                let git = Git::speaking(protocol);
                let folder = door.folder("argo");
                let mut outcome = Outcome::new();
                git.run(&std::env::temp_dir(), &["init", "-q", &folder.to_string_lossy()]).ok();
                git.run(&folder, &["remote", "add", "origin", &door.url("ok/plain.git")]).ok();
                for id in [&first, &second] {
                    let run =
                        git.run(&folder, &["fetch", "origin", id, "--depth", "1", "--force", "--prune"]);
                    outcome.run(id, &run, door.base());
                    outcome.note("FETCH_HEAD", git.run(&folder, &["rev-parse", "FETCH_HEAD"]).text());
                    git.run(&folder, &["checkout", "-q", "--force", id]).ok();
                    outcome.repository(id, &folder);
                }
                outcome
            })
            .all_succeeded();
    }
}

// A5
#[test]
fn a_flux_branch_clone_is_one_deep_and_polls_cost_the_upstream_nothing() {
    let Some(client) = gogit::GoGit::find("Flux's branch clone") else { return };
    let scene = Scene::start();
    let repository = fixture::plain(&scene.upstream, "plain");
    scene
        .cold_and_warm(|door| {
            let folder = door.folder("flux");
            let mut outcome = Outcome::new();
            let run = client.branch(&door.url("ok/plain.git"), &folder, "main").ok();
            outcome.note("head", gogit::head(&run));
            outcome.repository("flux", &folder);
            outcome
        })
        .all_succeeded();
    scene.upstream.log().clear();
    for _ in 0..50 {
        let run = client.run(&["list", &scene.url("ok/plain.git"), "refs/heads/main"]).ok();
        assert_eq!(gogit::head(&run), repository.resolve("main"));
    }
    assert!(scene.upstream.log().is_empty(), "{}", scene.upstream.log().text());
}

// B21, B22
#[test]
fn flux_semver_tag_and_commit_clones_equal_direct_ones() {
    let Some(client) = gogit::GoGit::find("Flux's semver, tag and commit clones") else { return };
    let scene = Scene::start();
    let repository = fixture::plain(&scene.upstream, "plain");
    let old = repository.resolve("main~4");
    scene
        .cold_and_warm(|door| {
            let url = door.url("ok/plain.git");
            let mut outcome = Outcome::new();
            for words in [vec!["semver"], vec!["tag", "v1.0.0"], vec!["commit", &old]] {
                let folder = door.folder(words[0]);
                let place = folder.to_string_lossy().into_owned();
                let mut arguments = vec![words[0], &url, &place];
                arguments.extend(&words[1..]);
                let run = client.run(&arguments).ok();
                outcome.note(words[0], gogit::head(&run));
                outcome.repository(words[0], &folder);
            }
            outcome
        })
        .all_succeeded();
}

// A clone that lives on: go-git sends haves and done in one POST.
#[test]
fn a_go_git_clone_fetches_what_was_pushed_since() {
    let Some(client) = gogit::GoGit::find("go-git's second fetch") else { return };
    let scene = Scene::with(|setup| setup.git("refresh_every: 1s"));
    let repository = fixture::plain(&scene.upstream, "plain");
    let folder = scene.folder("commit");
    let place = folder.to_string_lossy().into_owned();
    // a whole clone: go-git's fetch into a shallow one is broken against any server
    client.run(&["commit", &scene.url("ok/plain.git"), &place, &repository.resolve("main")]).ok();
    let tip = repository.commit("main", "pushed since", &[("since.txt", "new\n")]);
    tidegate_conformance::eventually(std::time::Duration::from_secs(20), "the new tip is fetched", || {
        let run = client.run(&["fetch", &place]).ok();
        (gogit::refs(&run).get("refs/remotes/origin/main") == Some(&tip)).then_some(())
    });
    Git::new().run(&folder, &["fsck", "--connectivity-only"]).ok();
}

// B24
#[test]
fn partial_clones_hold_the_same_objects_and_fetch_blobs_when_needed() {
    for protocol in [0, 2] {
        let scene = Scene::start();
        fixture::plain(&scene.upstream, "plain");
        for filter in ["blob:none", "blob:limit=200", "tree:0", "tree:2", "object:type=commit"] {
            scene
                .cold_and_warm(|door| {
                    let git = Git::speaking(protocol);
                    let folder = door.folder(&filter.replace([':', '='], "-"));
                    let mut outcome = Outcome::new();
                    let flag = format!("--filter={filter}");
                    let run = git.clone_into(&door.url("ok/plain.git"), &folder, &["--bare", &flag]);
                    outcome.run(filter, &run, door.base());
                    outcome.held(filter, &folder);
                    let shown = git.run(&folder, &["show", "main:README.md"]);
                    outcome.output("a lazy blob", &shown);
                    outcome.run("a lazy blob", &shown, door.base());
                    outcome
                })
                .all_succeeded();
        }
    }
}

// B24: Argo CD's coming dry run.
#[test]
fn a_dry_run_fetch_of_no_trees_succeeds() {
    let scene = Scene::start();
    fixture::plain(&scene.upstream, "plain");
    scene
        .cold_and_warm(|door| {
            let folder = door.folder("bare");
            let git = Git::new();
            git.run(&std::env::temp_dir(), &["init", "-q", "--bare", &folder.to_string_lossy()]).ok();
            let url = door.url("ok/plain.git");
            let mut outcome = Outcome::new();
            for filter in ["--filter=tree:0", "--filter=combine:blob:none+tree:1"] {
                let run = git.run(&folder, &["fetch", "--dry-run", "--depth=1", filter, &url, "HEAD"]);
                outcome.run(filter, &run, door.base());
            }
            outcome
        })
        .all_succeeded();
}

#[test]
fn every_way_to_be_shallow_ends_in_the_same_shallow_file() {
    let ways: [&[&str]; 6] = [
        &["--depth", "1"],
        &["--depth", "3"],
        &["--depth", "2", "--no-single-branch"],
        &["--shallow-since=1700000600"],
        &["--shallow-exclude=v1.0.0"],
        &["--depth", "1", "--branch", "v1.0.0"],
    ];
    for protocol in VERSIONS {
        let scene = Scene::start();
        fixture::plain(&scene.upstream, "plain");
        for way in ways {
            scene
                .cold_and_warm(|door| {
                    let git = Git::speaking(protocol);
                    let folder = door.folder("shallow");
                    let url = door.url("ok/plain.git");
                    let mut outcome = Outcome::new();
                    outcome.run("clone", &git.clone_into(&url, &folder, way), door.base());
                    outcome.repository("clone", &folder);
                    for step in
                        [&["fetch", "--deepen=2"][..], &["fetch", "--depth=2"], &["fetch", "--unshallow"]]
                    {
                        outcome.run(step[1], &git.run(&folder, step), door.base());
                        outcome.repository(step[1], &folder);
                    }
                    outcome
                })
                .all_succeeded();
        }
    }
}

#[test]
fn branches_tags_and_prunes_are_fetched_into_an_old_clone_alike() {
    for protocol in VERSIONS {
        let scene = Scene::start();
        fixture::plain(&scene.upstream, "plain");
        scene
            .cold_and_warm(|door| {
                let git = Git::speaking(protocol);
                let folder = door.folder("narrow");
                let url = door.url("ok/plain.git");
                let mut outcome = Outcome::new();
                let narrow = ["--single-branch", "--branch", "release", "--no-tags"];
                outcome.run("clone", &git.clone_into(&url, &folder, &narrow), door.base());
                for step in [
                    &["fetch", "origin", "feature/deep/name"][..],
                    &["fetch", "origin", "tag", "v1.1.0"],
                    &["fetch", "origin", "+refs/*:refs/all/*", "--prune"],
                    &["fetch", "origin"],
                ] {
                    outcome.run(&step.join(" "), &git.run(&folder, step), door.base());
                    outcome.repository(&step.join(" "), &folder);
                }
                outcome
            })
            .all_succeeded();
    }
}

// A11
#[test]
fn a_missing_branch_is_a_missing_branch() {
    let scene = Scene::start();
    fixture::plain(&scene.upstream, "plain");
    scene.cold_and_warm(|door| {
        let mut outcome = Outcome::new();
        let url = door.url("ok/plain.git");
        for protocol in VERSIONS {
            let folder = door.folder(&format!("missing-{protocol}"));
            let run = Git::speaking(protocol).clone_into(&url, &folder, &["--branch", "nope"]).failed();
            outcome.run(&format!("clone v{protocol}"), &run, door.base());
        }
        if let Some(client) = gogit::GoGit::find("a missing branch by go-git") {
            let run = client.branch(&url, &door.folder("gogit"), "nope").failed();
            assert!(run.stderr.contains("couldn't find remote ref"), "{}", run.stderr);
        }
        outcome
    });
}

// B23, B29
#[test]
fn pull_requests_and_notes_are_listed_and_fetched() {
    for protocol in VERSIONS {
        let scene = Scene::start();
        fixture::listed(&scene.upstream);
        scene
            .cold_and_warm(|door| {
                let git = Git::speaking(protocol);
                let folder = door.folder("clone");
                let url = door.url("ok/listed.git");
                let mut outcome = Outcome::new();
                outcome.run("clone", &git.clone_into(&url, &folder, &[]), door.base());
                for step in ["refs/pull/2/head:refs/pr/2", "+refs/notes/deploy:refs/notes/deploy"] {
                    outcome.run(step, &git.run(&folder, &["fetch", "origin", step]), door.base());
                }
                outcome.repository("clone", &folder);
                outcome.output("list", &git.list(&url));
                outcome
            })
            .all_succeeded();
    }
}

// B27, the half that stays on this host
#[test]
fn relative_submodules_come_through_the_same_door() {
    let scene = Scene::start();
    fixture::submodules(&scene.upstream);
    scene
        .both(|door| {
            let folder = door.folder("outer");
            let run = Git::new().clone_into(&door.url("ok/outer.git"), &folder, &["--recurse-submodules"]);
            let mut outcome = Outcome::new();
            outcome.run("clone", &run, door.base());
            outcome.repository("outer", &folder);
            outcome.repository("inner", &folder.join("inner"));
            outcome
        })
        .all_succeeded();
}

// A19, as far as this step goes
#[test]
fn a_push_passes_through_and_the_next_list_shows_it() {
    let scene = Scene::start();
    fixture::plain(&scene.upstream, "plain");
    let url = scene.url("ok/plain.git");
    let folder = scene.folder("clone");
    let git = Git::new().config("user.name=Ada").config("user.email=ada@example.test");
    git.clone_into(&url, &folder, &[]).ok();
    git.run(&folder, &["commit", "-q", "--allow-empty", "-m", "pushed"]).ok();
    git.run(&folder, &["push", "-q", "origin", "main", "HEAD:refs/heads/made-here"]).ok();
    let pushed = git.run(&folder, &["rev-parse", "HEAD"]).text();
    for protocol in VERSIONS {
        let listed = Git::speaking(protocol).list(&url).ok().text();
        let line = format!("{}\trefs/heads/made-here", pushed.trim());
        assert!(listed.contains(&line), "v{protocol}:\n{listed}");
    }
    let receive = scene.upstream.log().entries().into_iter().filter(|entry| entry.kind == Kind::Push);
    assert_eq!(receive.filter(|entry| entry.method == "POST").count(), 1);
    // a second push that the upstream refuses is refused in its own words
    git.run(&folder, &["commit", "-q", "--amend", "--allow-empty", "-m", "rewritten"]).ok();
    let refused = git.run(&folder, &["push", "origin", "main"]).failed();
    assert!(refused.stderr.contains("rejected"), "{}", refused.stderr);
    git.run(&folder, &["push", "-q", "--force", "origin", "main"]).ok();
}

#[test]
fn gix_clones_the_same_refs_and_objects() {
    let scene = Scene::start();
    fixture::plain(&scene.upstream, "plain");
    scene
        .cold_and_warm(|door| {
            let mut outcome = Outcome::new();
            for depth in [None, Some(1)] {
                let folder = door.folder(&format!("gix-{depth:?}"));
                let url = door.url("ok/plain.git");
                if let Some(run) = gix::clone("gix clones", &url, &folder, depth) {
                    outcome.run(&format!("{depth:?}"), &run.clone().ok(), door.base());
                    outcome.output(&format!("{depth:?}"), &run);
                    outcome.repository(&format!("{depth:?}"), &folder);
                }
            }
            outcome
        })
        .all_succeeded();
}

// B23: hidden refs leave the lists, and stay fetchable; hiding is no access control.
#[test]
fn hidden_refs_are_not_listed_and_still_fetched() {
    let scene = Scene::with(|setup| setup.git("hide: [refs/pull/]"));
    let repository = fixture::listed(&scene.upstream);
    let url = scene.url("ok/listed.git");
    for protocol in VERSIONS {
        let git = Git::speaking(protocol);
        let listed = git.list(&url).ok().text();
        assert!(!listed.contains("refs/pull/") && listed.contains("refs/notes/deploy"), "{listed}");
        let folder = scene.folder("clone");
        git.clone_into(&url, &folder, &[]).ok();
        let pull = repository.resolve("refs/pull/2/head");
        git.run(&folder, &["fetch", "-q", "origin", &pull]).ok();
    }
}

#[test]
fn every_answer_says_what_the_cache_did_and_how_old_it_is() {
    let scene = Scene::start();
    fixture::plain(&scene.upstream, "plain");
    let list = Request::refs(&tidegate_conformance::Tidegate::path("ok/plain.git"));
    let list_v2 = list.clone().v2();
    let cold = scene.tidegate().send(&list_v2);
    let status = cold.header("cache-status").unwrap_or_default().to_owned();
    assert!(status.starts_with("tidegate;") && !status.contains("hit"), "it asked, and says {status}");
    let cold = scene.tidegate().send(&list);
    let status = cold.header("cache-status").unwrap_or_default().to_owned();
    assert!(status.starts_with("tidegate;") && !status.contains("hit"), "{status}");
    Git::new().mirror(&scene.url("ok/plain.git"), &scene.folder("warm")).ok();
    for request in [&list, &list_v2] {
        let warm = scene.tidegate().send(request);
        assert!(
            warm.header("cache-status").is_some_and(|text| text.starts_with("tidegate; hit")),
            "{warm:?}"
        );
        for name in ["age", "tidegate-generation"] {
            let number = warm.header(name).and_then(|text| text.parse::<u64>().ok());
            assert!(number.is_some(), "{name} in {:?}", warm.headers);
        }
    }
    let requests =
        scene.tidegate().metric("tidegate_requests_total", &[("protocol", "git"), ("outcome", "hit")]);
    assert!(requests >= 1.0);
}

// The pack of a cold clone becomes the mirror's by a link: it is on the disk once, and counts once.
#[test]
fn a_cloned_pack_counts_once_against_the_disk_limit() {
    let scene = Scene::start();
    fixture::heavy(&scene.upstream, "heavy", 2048);
    let folder = scene.folder("cold");
    Git::new().mirror(&scene.url("ok/heavy.git"), &folder).ok();
    let files = std::fs::read_dir(folder.join("objects/pack")).expect("the client has a pack");
    let pack = files.flatten().find(|file| file.file_name().to_string_lossy().ends_with(".pack"));
    let size = pack.expect("the client has a pack").metadata().expect("its size").len();
    let size = f64::from(u32::try_from(size).expect("a small pack"));
    let counted = || scene.tidegate().metric("tidegate_store_bytes", &[("tier", "disk")]);
    let list = Request::refs(&tidegate_conformance::Tidegate::path("ok/heavy.git"));
    tidegate_conformance::eventually(std::time::Duration::from_secs(20), "the mirror counts", || {
        let published = scene.tidegate().send(&list).header("tidegate-generation") == Some("1");
        (published && counted() >= size).then_some(())
    });
    tidegate_conformance::holds_for(std::time::Duration::from_secs(2), "once", || counted() < size * 1.5);
}
