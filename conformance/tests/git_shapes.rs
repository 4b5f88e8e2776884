//! Repositories that are out of the ordinary, and names for ordinary ones.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use tidegate_conformance::client::gogit;
use tidegate_conformance::raw::Request;
use tidegate_conformance::scene::Door;
use tidegate_conformance::{Git, Outcome, Scene, Tidegate, eventually, fixture, holds_for, pkt};

const VERSIONS: [u8; 3] = [0, 1, 2];

fn cloned(door: &Door<'_>, path: &str, git: &Git, flags: &[&str]) -> Outcome {
    let mut outcome = Outcome::new();
    let folder = door.folder("clone");
    outcome.run("clone", &git.clone_into(&door.url(path), &folder, flags), door.base());
    outcome.repository("clone", &folder);
    let list = git.list(&door.url(path));
    outcome.run("list", &list, door.base());
    outcome.output("list", &list);
    outcome
}

// K4
#[test]
fn a_head_that_names_a_missing_branch_stays_missing() {
    for protocol in VERSIONS {
        let scene = Scene::start();
        fixture::hmiss(&scene.upstream);
        scene
            .cold_and_warm(|door| cloned(door, "ok/hmiss.git", &Git::speaking(protocol), &[]))
            .all_succeeded();
    }
    let scene = Scene::start();
    fixture::hmiss(&scene.upstream);
    let path = Tidegate::path("ok/hmiss.git");
    let advertised = scene.tidegate().send(&Request::refs(&path)).text();
    assert!(!advertised.contains(" HEAD\0") && !advertised.contains(" HEAD\n"), "{advertised}");
    let body = pkt::v2("ls-refs", &["symrefs".into(), "unborn".into()]);
    let listed = scene.tidegate().send(&Request::upload_pack(&path, body).v2()).text();
    assert!(listed.contains("unborn HEAD symref-target:refs/heads/gone"), "{listed}");
}

// K8
#[test]
fn nested_tags_are_peeled_to_the_commit_and_can_be_cloned() {
    for protocol in VERSIONS {
        let scene = Scene::start();
        let repository = fixture::tags(&scene.upstream);
        let git = Git::speaking(protocol);
        let flags = ["--depth", "1", "--branch", "n3"];
        scene.cold_and_warm(|door| cloned(door, "ok/tags.git", &git, &flags)).all_succeeded();
        let listed = git.list(&scene.url("ok/tags.git")).ok().text();
        let line = format!("{}\trefs/tags/n3^{{}}", repository.resolve("main"));
        assert!(listed.contains(&line), "v{protocol}:\n{listed}");
    }
    let Some(client) = gogit::GoGit::find("a nested tag by go-git") else { return };
    let scene = Scene::start();
    fixture::tags(&scene.upstream);
    scene.cold_and_warm(|door| {
        let mut outcome = Outcome::new();
        let folder = door.folder("tag");
        let run = client.run(&["tag", &door.url("ok/tags.git"), &folder.to_string_lossy(), "n3"]);
        outcome.note("exit", run.code.to_string());
        outcome.note("head", gogit::head(&run));
        outcome
    });
}

// K9
#[test]
fn tags_of_blobs_and_trees_are_fetched_whatever_the_depth_or_filter() {
    for protocol in VERSIONS {
        let scene = Scene::start();
        fixture::tags(&scene.upstream);
        scene
            .cold_and_warm(|door| {
                let git = Git::speaking(protocol);
                let folder = door.folder("init");
                let url = door.url("ok/tags.git");
                let mut outcome = Outcome::new();
                git.run(&std::env::temp_dir(), &["init", "-q", "--bare", &folder.to_string_lossy()]).ok();
                let tags = "tag tb-light tag tt-ann tag tb-ann tag tt-light";
                let mut words = vec!["fetch", &url];
                words.extend(tags.split(' '));
                outcome.run("fetch", &git.run(&folder, &words), door.base());
                let check = ["fsck", "--connectivity-only", "--no-dangling"];
                outcome.run("fsck", &git.run(&folder, &check), door.base());
                outcome.held("fetch", &folder);
                for flags in
                    [&["--bare", "--depth", "1", "--no-single-branch"][..], &["--bare", "--filter=blob:none"]]
                {
                    let folder = door.folder(flags[flags.len() - 1]);
                    outcome.run(&flags.join(" "), &git.clone_into(&url, &folder, flags), door.base());
                    outcome.held(&flags.join(" "), &folder);
                }
                outcome
            })
            .all_succeeded();
    }
}

// K10
#[test]
fn objects_that_only_fsck_minds_pass_unchanged() {
    for protocol in VERSIONS {
        let scene = Scene::start();
        fixture::bad(&scene.upstream);
        for flags in [&[][..], &["--depth", "3"], &["--filter=blob:none"], &["--mirror"]] {
            let git = Git::speaking(protocol);
            scene.cold_and_warm(|door| cloned(door, "ok/bad.git", &git, flags)).all_succeeded();
        }
    }
    let Some(client) = gogit::GoGit::find("bad objects by go-git") else { return };
    let scene = Scene::start();
    fixture::bad(&scene.upstream);
    scene.cold_and_warm(|door| {
        let mut outcome = Outcome::new();
        let run = client.branch(&door.url("ok/bad.git"), &door.folder("gogit"), "main");
        outcome.note("exit", run.code.to_string());
        outcome.note("head", gogit::head(&run));
        outcome
    });
}

// K11
#[test]
fn odd_ref_names_keep_their_bytes_and_each_can_be_fetched() {
    for protocol in VERSIONS {
        let scene = Scene::start();
        let (_, names) = fixture::names(&scene.upstream);
        scene
            .cold_and_warm(|door| {
                let git = Git::speaking(protocol);
                let folder = door.folder("fetches");
                let url = door.url("ok/names.git");
                let mut outcome = Outcome::new();
                outcome.output("list", &git.list(&url).ok());
                git.run(&std::env::temp_dir(), &["init", "-q", "--bare", &folder.to_string_lossy()]).ok();
                for name in &names {
                    let words =
                        [OsString::from("fetch"), OsString::from(&url), OsString::from_vec(name.clone())];
                    let label = name.escape_ascii().to_string();
                    outcome.run(&label, &git.run(&folder, &words), door.base());
                }
                outcome
            })
            .all_succeeded();
    }
}

// A15
#[test]
fn an_empty_repository_is_empty_and_its_first_push_is_seen() {
    for protocol in VERSIONS {
        let scene = Scene::with(|setup| setup.git("refresh_every: 1s"));
        let repository = fixture::empty(&scene.upstream);
        let git = Git::speaking(protocol);
        let outcome = scene.cold_and_warm(|door| cloned(door, "ok/empty.git", &git, &[]));
        outcome.all_succeeded();
        let tip = repository.commit("main", "the first", &[("file.txt", "content\n")]);
        eventually(Duration::from_secs(20), "the first push is seen", || {
            git.list(&scene.url("ok/empty.git")).ok().text().contains(&tip).then_some(())
        });
        scene.both(|door| cloned(door, "ok/empty.git", &git, &[])).all_succeeded();
    }
}

// A15
#[test]
fn go_git_knows_an_empty_repository_when_it_sees_one() {
    let Some(client) = gogit::GoGit::find("an empty repository by go-git") else { return };
    let scene = Scene::start();
    fixture::empty(&scene.upstream);
    scene.cold_and_warm(|door| {
        let mut outcome = Outcome::new();
        let run = client.list(&door.url("ok/empty.git")).failed();
        assert!(run.stderr.contains("empty"), "{}", run.stderr);
        outcome.note("error", run.stderr);
        outcome
    });
}

#[test]
fn a_sha256_repository_is_the_same_or_honestly_refused() {
    for protocol in VERSIONS {
        let scene = Scene::start();
        fixture::sha256(&scene.upstream);
        let git = Git::speaking(protocol);
        for flags in [&[][..], &["--depth", "1"], &["--mirror"]] {
            scene.cold_and_warm(|door| cloned(door, "ok/sha256.git", &git, flags)).all_succeeded();
        }
    }
}

#[test]
fn an_octopus_and_unrelated_histories_are_the_same() {
    let scene = Scene::start();
    let repository = fixture::octopus(&scene.upstream);
    repository.orphan("pages", "unrelated", &[("index.html", "hello\n")]);
    for protocol in VERSIONS {
        for flags in [&["--mirror"][..], &["--depth", "2", "--no-single-branch"]] {
            let git = Git::speaking(protocol);
            scene.cold_and_warm(|door| cloned(door, "ok/octopus.git", &git, flags)).all_succeeded();
        }
    }
}

#[test]
fn a_detached_head_and_a_head_on_another_branch_are_kept() {
    for protocol in VERSIONS {
        let scene = Scene::start();
        let repository = fixture::plain(&scene.upstream, "detached");
        repository.git(&["update-ref", "--no-deref", "HEAD", "main~2"]);
        fixture::plain(&scene.upstream, "switched").set_head("release");
        let git = Git::speaking(protocol);
        scene.cold_and_warm(|door| cloned(door, "ok/detached.git", &git, &[])).all_succeeded();
        scene.cold_and_warm(|door| cloned(door, "ok/switched.git", &git, &[])).all_succeeded();
    }
}

#[test]
fn two_thousand_refs_and_a_long_history_come_whole() {
    let scene = Scene::start();
    fixture::many_refs(&scene.upstream, 2000);
    fixture::history(&scene.upstream, "history", 400);
    for protocol in [0, 2] {
        let git = Git::speaking(protocol);
        for path in ["ok/many.git", "ok/history.git"] {
            scene.cold_and_warm(|door| cloned(door, path, &git, &["--mirror"])).all_succeeded();
        }
    }
}

// A16
#[test]
fn names_are_folded_only_where_the_upstream_folds_them() {
    let scene = Scene::with(|setup| setup.line("names: {ignore_case: true, git_suffix: true}"));
    fixture::plain(&scene.upstream, "org/app");
    let git = Git::new();
    for path in ["fold/org/app.git", "fold/org/app", "fold/Org/App.git", "fold/ORG/app", "fold/org/app.git/"]
    {
        git.mirror(&scene.url(path), &scene.folder("folded")).ok();
    }
    let log = scene.upstream.log();
    let fetches = log.count(tidegate_conformance::Kind::Fetch);
    assert!(fetches <= 2, "five names are one mirror:\n{}", log.text());
    // without `names` the same spellings are five different repositories, as upstream says
    let scene = Scene::start();
    fixture::plain(&scene.upstream, "org/app");
    scene.both(|door| {
        let mut outcome = Outcome::new();
        for path in ["ok/org/app.git", "ok/org/app", "ok/Org/App.git", "ok/org/app.git/"] {
            outcome.run(path, &git.list(&door.url(path)), door.base());
        }
        outcome
    });
}

#[test]
fn every_listed_pull_request_is_fetched_however_many_are_asked_for_in_a_minute() {
    let scene = Scene::start();
    let repository = fixture::plain(&scene.upstream, "plain");
    for number in 1..=15 {
        repository.commit("work", &format!("request {number}"), &[("work.txt", &format!("{number}\n"))]);
        repository.set(&format!("refs/pull/{number}/head"), "refs/heads/work");
        repository.delete("refs/heads/work");
    }
    let folder = scene.folder("clone");
    Git::new().clone_into(&scene.url("ok/plain.git"), &folder, &[]).ok();
    for number in 1..=15 {
        let name = format!("refs/pull/{number}/head");
        Git::new().run(&folder, &["fetch", "--quiet", "origin", &name]).ok();
        let fetched = Git::new().run(&folder, &["rev-parse", "FETCH_HEAD"]).text();
        assert_eq!(fetched.trim(), repository.resolve(&name));
    }
}

#[test]
fn a_pull_request_outlives_its_branch_and_what_was_kept_of_that() {
    let scene = Scene::with(|setup| setup.git("revalidate: always, keep_superseded: 1s"));
    let repository = fixture::plain(&scene.upstream, "plain");
    let tip = repository.commit("work", "wanted", &[("work.txt", "wanted\n")]);
    repository.set("refs/pull/1/head", "refs/heads/work");
    let (url, path) = (scene.url("ok/plain.git"), Tidegate::path("ok/plain.git"));
    Git::new().clone_into(&url, &scene.folder("warm"), &[]).ok();
    repository.delete("refs/heads/work");
    let mut turn = 0;
    holds_for(Duration::from_secs(3), "the pull request is served", || {
        turn += 1;
        // Each generation drops what need not be kept any longer.
        repository.commit("main", &format!("{turn}"), &[("turn.txt", &format!("{turn}\n"))]);
        Git::new().list(&url).ok();
        let body = pkt::v2("fetch", &[format!("want {tip}"), "done".into()]);
        let answer = scene.tidegate().send(&Request::upload_pack(&path, body).v2());
        answer.text().contains("packfile")
    });
}
