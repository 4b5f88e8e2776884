//! How soon a change upstream is seen, and what looking costs the upstream.

use std::thread;
use std::time::Duration;

use tidegate_conformance::pkt::{self, FetchAnswer};
use tidegate_conformance::raw::Request;
use tidegate_conformance::upstream::Quirk;
use tidegate_conformance::{Git, Kind, Repository, Scene, Tidegate, eventually, fixture, pack};

const SOON: Duration = Duration::from_secs(20);
const VERSIONS: [u8; 3] = [0, 1, 2];

fn every_second() -> Scene {
    Scene::with(|setup| setup.git("refresh_every: 1s"))
}

/// What `git ls-remote` lists through tidegate, and straight.
fn lists(scene: &Scene, path: &str, protocol: u8) -> (String, String) {
    let git = Git::speaking(protocol);
    (git.list(&scene.url(path)).ok().text(), git.list(&scene.upstream.url(path)).ok().text())
}

/// Waits, without asking tidegate anything, until it has looked twice since now: what it saw at
/// the first look is published by the second.
fn looked_twice(scene: &Scene) {
    scene.upstream.log().clear();
    eventually(SOON, "tidegate looks by itself", || {
        (scene.upstream.log().count(Kind::Refs) >= 2).then_some(())
    });
}

fn want(oid: &str, more: &[&str]) -> Vec<u8> {
    let mut lines = vec![format!("want {oid}"), "ofs-delta".to_owned()];
    lines.extend(more.iter().map(ToString::to_string));
    lines.push("done".to_owned());
    pkt::v2("fetch", &lines)
}

fn fetch(scene: &Scene, path: &str, body: Vec<u8>) -> FetchAnswer {
    let answer = scene.tidegate().send(&Request::upload_pack(&Tidegate::path(path), body).v2());
    FetchAnswer::read(&answer.body)
}

#[test]
fn changes_are_seen_within_the_interval_though_nobody_asks() {
    let scene = every_second();
    let repository = fixture::plain(&scene.upstream, "plain");
    for protocol in [0, 2] {
        lists(&scene, "ok/plain.git", protocol);
    }
    Git::new().mirror(&scene.url("ok/plain.git"), &scene.folder("warm")).ok();
    let changes: [&dyn Fn(&Repository); 5] = [
        &|repository| {
            repository.set("refs/heads/created", "main~1");
            repository.annotate("v9.0.0", "main~2");
        },
        &|repository| drop(repository.commit("main", "moved", &[("moved.txt", "on\n")])),
        &|repository| repository.set("refs/tags/v0.1.0", "main~4"),
        &|repository| {
            repository.delete("refs/heads/created");
            repository.delete("refs/tags/v9.0.0");
        },
        &|repository| repository.set_head("release"),
    ];
    for (number, change) in changes.iter().enumerate() {
        change(&repository);
        looked_twice(&scene);
        // with the upstream away nothing can be looked up for this read
        scene.upstream.stop();
        let through: Vec<String> = [0, 2]
            .map(|protocol| Git::speaking(protocol).list(&scene.url("ok/plain.git")).ok().text())
            .into();
        scene.upstream.resume();
        let direct = Git::new().list(&scene.upstream.url("ok/plain.git")).ok().text();
        assert_eq!(through, [direct.clone(), direct], "change {number}");
    }
}

#[test]
fn an_unchanged_look_costs_exactly_one_request() {
    let scene = every_second();
    fixture::plain(&scene.upstream, "plain");
    let (through, direct) = lists(&scene, "ok/plain.git", 2);
    assert_eq!(through, direct);
    Git::new().mirror(&scene.url("ok/plain.git"), &scene.folder("warm")).ok();
    looked_twice(&scene);
    let refreshes = || scene.tidegate().metric("tidegate_refresh_total", &[("protocol", "git")]);
    let before = refreshes();
    scene.upstream.log().clear();
    let log = scene.upstream.log();
    eventually(SOON, "five looks", || (log.count(Kind::Refs) >= 5).then_some(()));
    let looks = refreshes() - before;
    assert!(log.entries().iter().all(|entry| entry.kind == Kind::Refs), "{}", log.text());
    let requests = u32::try_from(log.len()).expect("a few");
    assert!((f64::from(requests) - looks).abs() <= 1.0, "{looks} looks:\n{}", log.text());
    for pair in log.entries().windows(2) {
        assert!(pair[1].at - pair[0].at > Duration::from_millis(700), "{}", log.text());
    }
}

// K12
#[test]
fn a_branch_becomes_a_folder_of_branches_and_back() {
    let scene = every_second();
    let repository = fixture::plain(&scene.upstream, "plain");
    let to_folder = |repository: &Repository| {
        repository.delete("refs/heads/a");
        repository.set("refs/heads/a/b", "main~1");
    };
    let to_file = |repository: &Repository| {
        repository.delete("refs/heads/a/b");
        repository.set("refs/heads/a", "main~2");
    };
    repository.set("refs/heads/a", "main");
    Git::new().mirror(&scene.url("ok/plain.git"), &scene.folder("warm")).ok();
    for turn in 0..4 {
        if turn % 2 == 0 {
            to_folder(&repository);
        } else {
            to_file(&repository);
        }
        for protocol in [0, 2] {
            eventually(SOON, "the upstream's very set", || {
                let (through, direct) = lists(&scene, "ok/plain.git", protocol);
                (through == direct).then_some(())
            });
        }
        Git::new().mirror(&scene.url("ok/plain.git"), &scene.folder("mirror")).ok();
    }
    // there and back between two looks
    to_folder(&repository);
    to_file(&repository);
    looked_twice(&scene);
    let (through, direct) = lists(&scene, "ok/plain.git", 2);
    assert_eq!(through, direct);
}

// A4
#[test]
fn a_commit_pushed_a_moment_ago_costs_one_fetch_for_ten_clients() {
    let scene = Scene::start();
    let repository = fixture::plain(&scene.upstream, "plain");
    Git::new().mirror(&scene.url("ok/plain.git"), &scene.folder("warm")).ok();
    quiet(&scene);
    let tip = repository.commit("main", "a moment ago", &[("moment.txt", "now\n")]);
    scene.upstream.log().clear();
    let answers = ten(&scene, &want(&tip, &["deepen 1"]));
    for answer in &answers {
        assert!(answer.error.is_none() && answer.objects() > Some(2), "{:?}", answer.error);
        let ids = pack::objects(&answer.pack, &scene.folder("pack"));
        assert!(ids.contains(&tip));
    }
    let log = scene.upstream.log();
    assert_eq!(log.count(Kind::Fetch), 1, "{}", log.text());
}

// A4
#[test]
fn an_id_nobody_has_costs_one_request_for_ten_clients() {
    let scene = Scene::start();
    fixture::plain(&scene.upstream, "plain");
    Git::new().mirror(&scene.url("ok/plain.git"), &scene.folder("warm")).ok();
    quiet(&scene);
    scene.upstream.log().clear();
    let nobody = "1".repeat(40);
    for answer in ten(&scene, &want(&nobody, &["deepen 1"])) {
        let error = answer.error.unwrap_or_default();
        assert!(error.contains(&format!("not our ref {nobody}")), "{error}");
    }
    let log = scene.upstream.log();
    assert!(log.len() <= 2 && log.count(Kind::Fetch) <= 1, "{}", log.text());
}

#[test]
fn ids_that_nobody_has_are_asked_for_ten_times_a_minute_at_most() {
    let scene = Scene::start();
    fixture::plain(&scene.upstream, "plain");
    Git::new().mirror(&scene.url("ok/plain.git"), &scene.folder("warm")).ok();
    quiet(&scene);
    scene.upstream.log().clear();
    for number in 0..20 {
        let nobody = format!("{:040x}", number + 1);
        let error = fetch(&scene, "ok/plain.git", want(&nobody, &["deepen 1"])).error.unwrap_or_default();
        assert!(error.contains(&format!("not our ref {nobody}")), "{error}");
    }
    let fetches = scene.upstream.log().count(Kind::Fetch);
    assert!((1..=10).contains(&fetches), "{}", scene.upstream.log().text());
}

/// Waits until what a first fetch left to do (completing the mirror) is done.
fn quiet(scene: &Scene) {
    let log = scene.upstream.log();
    eventually(Duration::from_secs(30), "the upstream has its peace", || {
        let seen = log.len();
        thread::sleep(Duration::from_millis(1500));
        (log.len() == seen).then_some(())
    });
}

fn ten(scene: &Scene, body: &[u8]) -> Vec<FetchAnswer> {
    thread::scope(|scope| {
        let clients: Vec<_> =
            (0..10).map(|_| scope.spawn(|| fetch(scene, "ok/plain.git", body.to_vec()))).collect();
        clients.into_iter().map(|client| client.join().expect("a client ends")).collect()
    })
}

#[test]
fn after_one_commit_a_warm_client_gets_little_more_than_git_would_send() {
    let scene = every_second();
    let repository = fixture::history(&scene.upstream, "history", 300);
    Git::new().mirror(&scene.url("ok/history.git"), &scene.folder("warm")).ok();
    let old = repository.resolve("main");
    let tip = repository.commit("main", "one more", &[("folder-1/file-1.txt", "changed\n")]);
    let list = || Git::new().list(&scene.url("ok/history.git")).ok().text();
    eventually(SOON, "the commit is listed", || list().contains(&tip).then_some(()));
    let body = want(&tip, &[&format!("have {old}"), "thin-pack"]);
    let ours = fetch(&scene, "ok/history.git", body.clone());
    let direct = Request::upload_pack("/ok/history.git", body).v2().send(scene.upstream.address());
    let theirs = FetchAnswer::read(&direct.body);
    let (ours, theirs) = (ours.objects().unwrap_or(u32::MAX), theirs.objects().expect("a pack"));
    assert!(ours * 2 <= theirs * 3, "{ours} objects where git sends {theirs}");
}

// B31
#[test]
fn after_a_force_push_the_old_tip_is_still_served_in_every_version() {
    let scene = every_second();
    let repository = fixture::plain(&scene.upstream, "plain");
    let old = repository.commit("main", "to be lost", &[("lost.txt", "lost\n")]);
    Git::new().mirror(&scene.url("ok/plain.git"), &scene.folder("warm")).ok();
    repository.set("refs/heads/main", "main~2");
    let new = repository.commit("main", "in its place", &[("place.txt", "new\n")]);
    repository.delete("refs/heads/release");
    repository.prune();
    for protocol in VERSIONS {
        eventually(SOON, "the new tip is listed, the old one is not", || {
            let list = Git::speaking(protocol).list(&scene.url("ok/plain.git")).ok().text();
            (list.contains(&new) && !list.contains(&old)).then_some(())
        });
        let folder = scene.folder("client");
        let git = Git::speaking(protocol);
        git.run(&std::env::temp_dir(), &["init", "-q", &folder.to_string_lossy()]).ok();
        git.run(&folder, &["fetch", "-q", &scene.url("ok/plain.git"), &old]).ok();
        git.run(&folder, &["fsck", "--strict"]).ok();
    }
}

#[test]
fn revalidate_always_sees_every_change_at_the_next_read() {
    let scene = Scene::with(|setup| setup.git("revalidate: always"));
    let repository = fixture::plain(&scene.upstream, "plain");
    for turn in 0..5 {
        let text = format!("{turn}\n");
        let tip = repository.commit("main", &format!("turn {turn}"), &[("turn.txt", &text)]);
        let protocol = VERSIONS[turn % 3];
        let folder = scene.folder("clone");
        let git = Git::speaking(protocol);
        git.clone_into(&scene.url("ok/plain.git"), &folder, &["--depth", "1"]).ok();
        assert_eq!(git.run(&folder, &["rev-parse", "HEAD"]).text().trim(), tip);
    }
}

#[test]
fn a_sick_list_changes_nothing_and_is_never_no_refs() {
    let scene = every_second();
    let repository = fixture::plain(&scene.upstream, "plain");
    Git::new().mirror(&scene.url("ok/plain.git"), &scene.folder("warm")).ok();
    let sick = [Quirk::CutList, Quirk::Empty200, Quirk::ErrPacket, Quirk::Status(500), Quirk::Status(503)];
    for quirk in sick {
        let known = lists(&scene, "ok/plain.git", 2).0;
        scene.upstream.force(&[quirk]);
        repository.delete("refs/tags/v1.1.0");
        let errors = || scene.tidegate().metric("tidegate_refresh_total", &[("result", "error")]);
        let before = errors();
        if !matches!(quirk, Quirk::Empty200) {
            // (an empty 200 to ls-refs is also how a v0 server answers: tidegate may ask it in v0)
            eventually(SOON, &format!("a look fails: {quirk:?}"), || (errors() > before).then_some(()));
            for protocol in [0, 2] {
                let listed = Git::speaking(protocol).list(&scene.url("ok/plain.git")).ok().text();
                assert_eq!(listed, known, "{quirk:?} v{protocol}");
            }
        }
        scene.upstream.force(&[]);
        eventually(SOON, "a sound list counts again", || {
            let (through, direct) = lists(&scene, "ok/plain.git", 2);
            (through == direct).then_some(())
        });
        repository.annotate("v1.1.0", "main");
        eventually(SOON, "the tag is back", || {
            let (through, direct) = lists(&scene, "ok/plain.git", 2);
            (through == direct).then_some(())
        });
    }
}
