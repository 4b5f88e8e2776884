//! What a fleet that polls, clones and waits costs the upstream.

use std::thread;
use std::time::Duration;

use tidegate_conformance::client::gogit;
use tidegate_conformance::pkt::{self, FetchAnswer};
use tidegate_conformance::raw::Request;
use tidegate_conformance::tidegate::Setup;
use tidegate_conformance::upstream::users::basic;
use tidegate_conformance::wait::at_a_beat;
use tidegate_conformance::{Git, Kind, Scene, Tidegate, Upstream, eventually, fixture, holds_for};

const BEAT: Duration = Duration::from_secs(1);
const POLLS: Duration = Duration::from_secs(30);

fn private() -> Upstream {
    let upstream = Upstream::start();
    fixture::plain(&upstream, "private");
    upstream.users().set("alice", "pw-one");
    upstream.users().grant("alice", "private");
    upstream
}

// One private repository, one credential, 30 polls over 30 intervals.
#[test]
fn thirty_polls_by_go_git_cost_one_request_an_interval() {
    let Some(client) = gogit::GoGit::find("30 polls by go-git") else { return };
    let scene = Scene::before(private(), |setup| setup.git("refresh_every: 1s"));
    let client = client.sending("alice", "pw-one");
    let url = scene.url("auth/private.git");
    client.list(&url).ok();
    scene.upstream.log().clear();
    at_a_beat(POLLS, BEAT, |_| drop(client.list(&url).ok()));
    let log = scene.upstream.log();
    assert!(log.len() <= 32, "{} requests:\n{}", log.len(), log.text());
    assert!(log.entries().iter().all(|entry| entry.status == 200), "{}", log.text());
}

#[test]
fn thirty_polls_by_stock_git_cost_one_more_for_the_bare_request() {
    let scene = Scene::before(private(), |setup| setup.git("refresh_every: 1s"));
    let git = Git::new().with_helper("alice", "pw-one");
    let url = scene.url("auth/private.git");
    at_a_beat(POLLS, BEAT, |_| drop(git.list(&url).ok()));
    let log = scene.upstream.log();
    // the first contact learns the version by a GET; a bare request is asked once in ten minutes
    let bare = log.entries().iter().filter(|entry| entry.user.is_none()).count();
    assert_eq!(bare, 1, "{}", log.text());
    assert!(log.len() <= 1 + 34, "{} requests:\n{}", log.len(), log.text());
}

#[test]
fn a_rotated_credential_costs_one_request_more() {
    let scene = Scene::before(private(), |setup| setup);
    let url = scene.url("auth/private.git");
    Git::new().sending("alice", "pw-one").list(&url).ok();
    Git::new().sending("alice", "pw-one").list(&url).ok();
    scene.upstream.users().set("alice", "pw-two");
    scene.upstream.log().clear();
    for _ in 0..5 {
        Git::new().sending("alice", "pw-two").list(&url).ok();
    }
    let log = scene.upstream.log();
    assert_eq!(log.len(), 1, "{}", log.text());
}

// A6
#[test]
fn five_hundred_flux_clones_of_a_cold_repository_are_one_fetch() {
    let scene = Scene::start();
    let repository = fixture::heavy(&scene.upstream, "fleet", 2048);
    let tip = repository.resolve("main");
    let path = Tidegate::path("ok/fleet.git");
    let capabilities = "multi_ack_detailed side-band-64k ofs-delta agent=go-git/5.x shallow no-progress";
    let lines = [format!("want {tip} {capabilities}"), "deepen 1".to_owned()];
    let clone = Request::upload_pack(&path, pkt::v0(&lines, true));
    let list = Request::refs(&path);
    let answers: Vec<FetchAnswer> = thread::scope(|scope| {
        let one = || {
            let listed = list.send(scene.tidegate().address());
            assert!(listed.text().contains(&tip), "{} {}", listed.status, listed.text());
            let answer = clone.send(scene.tidegate().address());
            assert!(answer.whole && answer.status == 200, "{} {}", answer.status, answer.body.len());
            FetchAnswer::read(&answer.body)
        };
        let clients: Vec<_> = (0..500)
            .map(|_| {
                thread::Builder::new().stack_size(256 * 1024).spawn_scoped(scope, one).expect("a thread")
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("a client ends")).collect()
    });
    assert_eq!(answers[0].objects(), Some(35), "{:?}", answers[0].lines);
    assert!(answers.iter().all(|answer| answer.pack == answers[0].pack), "not byte-identical");
    let log = scene.upstream.log();
    holds_for(Duration::from_secs(3), "one fetch, and one that completes", || log.count(Kind::Fetch) <= 2);
    assert!(log.count(Kind::Fetch) >= 1);
    // one GET that learns the version, one look at most besides
    assert!(log.count(Kind::Refs) <= 3, "{}", log.text());
}

#[test]
fn fifty_clients_at_once_list_a_cold_private_repository_for_one_request() {
    let scene = Scene::before(private(), |setup| setup);
    scene.upstream.delay(Duration::from_millis(300));
    let path = Tidegate::path("auth/private.git");
    let request = Request::refs(&path).header("Authorization", &basic("alice", "pw-one"));
    thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| assert_eq!(request.send(scene.tidegate().address()).status, 200));
        }
    });
    let log = scene.upstream.log();
    // the GET that learns the version, and the ls-refs
    assert!(log.len() <= 2, "{}", log.text());
}

// A shrunken list is believed only after a second look, ten seconds later.
#[test]
fn a_list_that_lost_most_refs_is_confirmed_before_it_is_believed() {
    let scene = Scene::with(|setup| setup.git("refresh_every: 1s"));
    let repository = fixture::many_refs(&scene.upstream, 40);
    let url = scene.url("ok/many.git");
    Git::new().mirror(&url, &scene.folder("warm")).ok();
    let count = || Git::new().list(&url).ok().text().lines().count();
    let before = count();
    assert_eq!(before, 42);
    let doomed = repository.git(&["for-each-ref", "--format=delete %(refname)", "refs/heads/team-*/*"]);
    let doomed: Vec<&str> = doomed.lines().take(30).collect();
    repository.feed(&["update-ref", "--stdin"], format!("{}\n", doomed.join("\n")).as_bytes());
    holds_for(Duration::from_secs(6), "nothing is dropped on one look", || count() == before);
    eventually(Duration::from_secs(30), "the second look is believed", || {
        (count() == before - doomed.len()).then_some(())
    });
}

// The budget is ours, and so is the refusal: it says when to come back, and costs nothing.
#[test]
fn a_spent_budget_is_429_with_a_true_retry_after_and_warm_readers_never_notice() {
    let tight = |setup: Setup| setup.line("budget: {per_minute: 40, concurrent: 4, per_credential: 40}");
    let scene = Scene::with(tight);
    fixture::plain(&scene.upstream, "plain");
    let url = scene.url("ok/plain.git");
    Git::new().mirror(&url, &scene.folder("warm")).ok();
    let refs = |number: u32| Request::refs(&Tidegate::path(&format!("ok/missing-{number}.git")));
    // 40 a minute are a burst of 4 and then one in 1.7 s: 16 at once are too many
    let answers: Vec<_> = thread::scope(|scope| {
        let address = scene.tidegate().address();
        let ask = |number| move || refs(number).send(address);
        let clients: Vec<_> = (0..16).map(|number| scope.spawn(ask(number))).collect();
        clients.into_iter().map(|client| client.join().expect("a client ends")).collect()
    });
    let spent: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
    assert!(!spent.is_empty(), "{answers:?}");
    for answer in spent {
        let after = answer.header("retry-after").and_then(|text| text.parse::<u64>().ok());
        assert!(after.is_some_and(|after| (1..=60).contains(&after)), "{:?}", answer.headers);
        assert!(answer.text().contains("budget"), "{}", answer.text());
    }
    let asked = scene.upstream.log().len();
    assert!(asked <= 24, "{asked} requests:\n{}", scene.upstream.log().text());
    for _ in 0..5 {
        Git::new().list(&url).ok();
    }
}
