//! Upstreams that are away, slow, odd or broken: right results or honest
//! errors, never "no refs", never worse than direct.

use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use tidegate_conformance::client::gogit;
use tidegate_conformance::egress::Egress;
use tidegate_conformance::pkt::{self, FetchAnswer};
use tidegate_conformance::raw::{self, Request};
use tidegate_conformance::tidegate::Setup;
use tidegate_conformance::upstream::Quirk;
use tidegate_conformance::wait::at_a_beat;
use tidegate_conformance::{Git, Kind, Outcome, Scene, Tidegate, Upstream, eventually, fixture, pack};
use tokio::time::Instant;

const SOON: Duration = Duration::from_secs(20);
const VERSIONS: [u8; 3] = [0, 1, 2];

// A8
#[test]
fn what_is_held_is_served_while_the_upstream_is_away_and_says_so() {
    let scene = Scene::with(|setup| setup.git("refresh_every: 1s"));
    fixture::plain(&scene.upstream, "plain");
    let url = scene.url("ok/plain.git");
    Git::new().mirror(&url, &scene.folder("warm")).ok();
    let known = Git::new().list(&url).ok().text();
    scene.upstream.stop();
    let path = Tidegate::path("ok/plain.git");
    let stale = eventually(SOON, "the answer is stale", || {
        let answer = scene.tidegate().send(&Request::refs(&path));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let status = answer.header("cache-status").unwrap_or_default();
        (status.contains("ttl=-")).then_some(answer)
    });
    assert!(stale.header("age").is_some_and(|age| age.parse::<u64>().is_ok()), "{:?}", stale.headers);
    assert!(scene.tidegate().metric("tidegate_requests_total", &[("outcome", "stale")]) >= 1.0);
    for protocol in VERSIONS {
        let git = Git::speaking(protocol);
        git.clone_into(&url, &scene.folder("away"), &[]).ok();
        git.clone_into(&url, &scene.folder("away"), &["--depth", "1"]).ok();
        assert_eq!(git.list(&url).ok().text(), known);
    }
    if let Some(client) = gogit::GoGit::find("go-git while the upstream is away") {
        client.branch(&url, &scene.folder("gogit"), "main").ok();
    }
}

// A8
#[test]
fn what_is_not_held_is_503_in_words_that_git_prints() {
    let scene = Scene::start();
    scene.upstream.stop();
    let answer = scene.tidegate().send(&Request::refs(&Tidegate::path("ok/cold.git")));
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.header("content-type").is_some_and(|media| media.starts_with("text/plain")));
    let run = Git::new().list(&scene.url("ok/cold.git")).failed();
    assert!(run.stderr.contains("remote: ") && run.stderr.contains("503"), "{}", run.stderr);
    if let Some(client) = gogit::GoGit::find("go-git's 503") {
        assert!(client.list(&scene.url("ok/cold.git")).failed().stderr.contains("503"));
    }
}

// A13
#[test]
fn a_429_is_stale_where_there_is_something_and_429_where_not() {
    let scene = Scene::with(|setup| setup.git("refresh_every: 1s"));
    fixture::plain(&scene.upstream, "plain");
    let url = scene.url("ok/plain.git");
    Git::new().mirror(&url, &scene.folder("warm")).ok();
    scene.upstream.force(&[Quirk::Limited]);
    let log = scene.upstream.log();
    eventually(SOON, "the limit is met", || {
        log.entries().iter().any(|entry| entry.status == 429).then_some(())
    });
    log.clear();
    at_a_beat(Duration::from_secs(5), Duration::from_millis(500), |_| {
        Git::new().list(&url).ok();
    });
    assert!(log.is_empty(), "Retry-After is 30 s:\n{}", log.text());
    let cold = scene.tidegate().send(&Request::refs(&Tidegate::path("ok/cold.git")));
    assert_eq!(cold.status, 429, "{}", cold.text());
    let after: u64 = cold.header("retry-after").and_then(|text| text.parse().ok()).unwrap_or_default();
    assert!((1..=30).contains(&after), "{:?}", cold.headers);
    assert!(log.is_empty(), "{}", log.text());
}

// K1
#[test]
fn a_redirect_to_a_sign_in_page_is_a_refusal() {
    let scene = Scene::with(|setup| setup.git("refresh_every: 1s"));
    fixture::tags(&scene.upstream);
    let run = Git::new().list(&scene.url("login/tags.git")).failed();
    assert_eq!(run.code, 128);
    let answer = scene.tidegate().send(&Request::refs(&Tidegate::path("login/tags.git")));
    assert_eq!(answer.status, 401, "{}", answer.text());
    assert!(answer.text().contains("302"), "{}", answer.text());
    assert!(answer.header("location").is_none() && !answer.text().contains("secret-ticket-4711"));
    assert!(!scene.tidegate().said().contains("secret-ticket-4711"));
    // what was held stays held
    let url = scene.url("ok/tags.git");
    Git::new().mirror(&url, &scene.folder("warm")).ok();
    let known = Git::new().list(&url).ok().text();
    scene.upstream.force(&[Quirk::Login]);
    let log = scene.upstream.log();
    eventually(SOON, "a look is redirected", || {
        log.entries().iter().any(|entry| entry.status == 302).then_some(())
    });
    scene.upstream.force(&[]);
    // the refusal is remembered for half a minute at most; what was held is served again
    let again = eventually(Duration::from_secs(45), "the list is served again", || {
        let run = Git::new().list(&url);
        (run.code == 0).then_some(run)
    });
    assert_eq!(again.text(), known);
}

// K3
#[test]
fn a_pack_that_ends_early_is_nobodys_answer() {
    for quirk in [Quirk::Cut, Quirk::CutClean, Quirk::CutPack, Quirk::Flip] {
        let scene = Scene::start();
        fixture::heavy(&scene.upstream, "heavy", 512);
        let url = scene.url("ok/heavy.git");
        scene.upstream.force(&[quirk]);
        let codes: Vec<i32> = thread::scope(|scope| {
            let one = || Git::new().clone_into(&url, &scene.folder("cut"), &[]).code;
            let clients: Vec<_> = (0..5).map(|_| scope.spawn(one)).collect();
            clients.into_iter().map(|client| client.join().expect("a client ends")).collect()
        });
        assert!(codes.iter().all(|code| *code != 0), "{quirk:?}: {codes:?}");
        scene.upstream.force(&[]);
        scene.both(|door| {
            let mut outcome = Outcome::new();
            let folder = door.folder("after");
            outcome.run(
                "clone",
                &Git::new().clone_into(&door.url("ok/heavy.git"), &folder, &[]),
                door.base(),
            );
            outcome.repository("clone", &folder);
            outcome
        });
    }
}

// Promise 5: whoever checks nothing must still be able to tell.
#[test]
fn a_complete_answer_never_carries_a_pack_that_does_not_hash() {
    for (quirk, version) in [(Quirk::CutPack, 2), (Quirk::Flip, 2), (Quirk::CutPack, 0), (Quirk::Flip, 0)] {
        let scene = Scene::start();
        let repository = fixture::heavy(&scene.upstream, "heavy", 512);
        let path = Tidegate::path("ok/heavy.git");
        let want = format!("want {}", repository.resolve("main"));
        let request = if version == 2 {
            Request::upload_pack(&path, pkt::v2("fetch", &[want, "done".into()])).v2()
        } else {
            Request::upload_pack(&path, pkt::v0(&[format!("{want} side-band-64k")], true))
        };
        scene.upstream.force(&[quirk]);
        let spoilt = scene.tidegate().send(&request);
        let read = FetchAnswer::read(&spoilt.body);
        let complete = spoilt.status == 200 && spoilt.whole && read.error.is_none();
        assert!(!complete, "{quirk:?} v{version}: {} bytes look complete", read.pack.len());
        scene.upstream.force(&[]);
        let sound = eventually(SOON, "the next fetch is sound", || {
            let answer = scene.tidegate().send(&request);
            let read = FetchAnswer::read(&answer.body);
            (answer.whole && read.error.is_none() && read.objects() > Some(8)).then_some(read)
        });
        assert_eq!(pack::objects(&sound.pack, &scene.folder("sound")).len(), repository.objects());
    }
}

// K5
#[test]
fn our_user_agent_starts_with_git_whatever_the_clients_is() {
    let scene = Scene::start();
    fixture::plain(&scene.upstream, "plain");
    let path = Tidegate::path("ua/plain.git");
    let answer = scene.tidegate().send(&Request::refs(&path).header("User-Agent", "crane/1"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let git = Git::new().config("http.userAgent=Mozilla/5.0");
    git.clone_into(&scene.url("ua/plain.git"), &scene.folder("clone"), &[]).ok();
    if let Some(client) = gogit::GoGit::find("go-git's User-Agent") {
        client.branch(&scene.url("ua/plain.git"), &scene.folder("gogit"), "main").ok();
    }
    let log = scene.upstream.log();
    let ours = log.entries();
    assert!(!ours.is_empty());
    assert!(ours.iter().all(|entry| entry.user_agent.starts_with("git/")), "{}", log.text());
}

// A12
#[test]
fn a_moved_repository_is_followed_and_the_client_sees_200() {
    let scene = Scene::start();
    fixture::plain(&scene.upstream, "plain");
    let answer = scene.tidegate().send(&Request::refs(&Tidegate::path("moved/plain.git")));
    assert_eq!(answer.status, 200, "{}", answer.text());
    for protocol in VERSIONS {
        let git = Git::speaking(protocol);
        git.mirror(&scene.url("moved/plain.git"), &scene.folder("moved")).ok();
    }
    if let Some(client) = gogit::GoGit::find("a moved repository by go-git") {
        client.list(&scene.url("moved/plain.git")).ok();
    }
}

#[test]
fn odd_upstreams_give_right_results_in_every_client_version() {
    for quirk in ["v0only", "nosha", "nofilter", "slow", "idle", "ua", "v0only+nosha+nofilter"] {
        let scene = Scene::start();
        for protocol in VERSIONS {
            let name = format!("plain{protocol}");
            let repository = fixture::plain(&scene.upstream, &name);
            let (path, plain) =
                (format!("{quirk}/{name}.git"), scene.upstream.url(&format!("ok/{name}.git")));
            let git = Git::speaking(protocol);
            let listed = git.list(&scene.url(&path)).ok().text();
            assert_eq!(listed, Git::new().list(&plain).ok().text(), "{quirk} v{protocol}");
            let shallow = scene.folder("shallow");
            git.clone_into(&scene.url(&path), &shallow, &["--depth", "1"]).ok();
            let folder = scene.folder("mirror");
            git.mirror(&scene.url(&path), &folder).ok();
            let held = Git::new().run(&folder, &["rev-list", "--objects", "--all", "--count"]).text();
            assert_eq!(
                held.trim(),
                repository.git(&["rev-list", "--objects", "--all", "--count"]),
                "{quirk}"
            );
            git.run(&folder, &["fsck", "--strict"]).ok();
        }
    }
}

#[test]
fn a_page_a_203_a_cut_list_and_an_error_packet_are_errors_not_empty_repositories() {
    for quirk in ["html200", "s203", "cutlist", "empty200", "errpkt", "s500", "s503", "s410"] {
        let scene = Scene::start();
        fixture::plain(&scene.upstream, "plain");
        for protocol in VERSIONS {
            let git = Git::speaking(protocol);
            let run = git.list(&scene.url(&format!("{quirk}/plain.git")));
            let refused = run.code != 0 && run.stdout.is_empty();
            // what speaks no v2 may well be asked in v0
            let right = quirk == "empty200" && run.text().contains("refs/heads/main");
            assert!(refused || right, "{quirk} v{protocol}: {}", run.text());
            let folder = scene.folder("clone");
            let clone = git.clone_into(&scene.url(&format!("{quirk}/plain.git")), &folder, &[]);
            assert_eq!(clone.code == 0, right, "{quirk} v{protocol}: {}", clone.stderr);
        }
        if let Some(client) =
            gogit::GoGit::find("go-git and broken upstreams").filter(|_| quirk != "empty200")
        {
            client.list(&scene.url(&format!("{quirk}/plain.git"))).failed();
        }
    }
}

#[test]
fn upstreams_on_ipv6_by_a_private_ca_behind_a_proxy_and_another_tidegate_are_upstreams() {
    let works = |scene: &Scene, what: &str| {
        let repository = fixture::plain(&scene.upstream, "plain");
        let folder = scene.folder("mirror");
        Git::new().mirror(&scene.url("ok/plain.git"), &folder).ok();
        let held = Git::new().run(&folder, &["rev-parse", "refs/heads/main"]).text();
        assert_eq!(held.trim(), repository.resolve("main"), "{what}");
    };
    works(&Scene::before(Upstream::start_v6(), |setup| setup), "[::1]");
    let secure = Upstream::start_tls();
    let root = format!("ca: {{from_file: {}}}", secure.authority().root().display());
    works(&Scene::before(secure, |setup| setup.line(&root)), "a private CA");
    let untrusted = Scene::before(Upstream::start_tls(), |setup| setup);
    let run = Git::new().list(&untrusted.url("ok/plain.git")).failed();
    assert!(run.stderr.contains("503") && run.stderr.contains("remote: "), "{}", run.stderr);
    let upstream = Upstream::start();
    let egress = Egress::start(upstream.address());
    let named = format!("url: http://git.test:{}", upstream.address().port());
    let proxy = format!("proxy: {}", egress.url());
    works(&Scene::before(upstream, |setup| setup.line(&named).line(&proxy)), "a proxy");
    assert!(egress.seen() > 0, "the proxy was gone around");
    // a chain: clients, tidegate, tidegate, upstream
    let far = Scene::start();
    let repository = fixture::plain(&far.upstream, "plain");
    let near = Setup::of(&far.upstream).line(&format!("url: {}", far.tidegate().base())).start();
    for protocol in VERSIONS {
        let folder = far.folder("chained");
        Git::speaking(protocol).mirror(&near.url("ok/plain.git"), &folder).ok();
        let held = Git::new().run(&folder, &["rev-parse", "refs/heads/main"]).text();
        assert_eq!(held.trim(), repository.resolve("main"));
    }
}

// A7
#[test]
fn a_cold_clone_streams_what_a_slow_upstream_sends() {
    let scene = Scene::start();
    let repository = fixture::heavy(&scene.upstream, "big", 768);
    let path = Tidegate::path("drippack/big.git");
    let started = Instant::now();
    let listed = scene.tidegate().send(&Request::refs(&path).v2());
    assert_eq!(listed.status, 200);
    let listed = scene.tidegate().send(&Request::upload_pack(&path, pkt::v2("ls-refs", &[])).v2());
    assert!(listed.text().contains(&repository.resolve("main")));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    let want = format!("want {}", repository.resolve("main"));
    let request = Request::upload_pack(&path, pkt::v2("fetch", &[want, "done".into()])).v2();
    let mut stream = raw::connect(scene.tidegate().address());
    stream.write_all(&request.bytes("tidegate")).expect("the request is sent");
    let asked = Instant::now();
    let mut first = [0_u8; 4096];
    stream.read_exact(&mut first).expect("the first bytes");
    let first_bytes = asked.elapsed();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("the rest");
    let whole = asked.elapsed();
    assert!(first_bytes * 3 < whole, "first bytes after {first_bytes:?}, the last after {whole:?}");
}

// The upstream stalls for a minute during a refresh; warm reads don't notice.
#[test]
fn a_stalled_upstream_does_not_slow_warm_reads() {
    let scene = Scene::with(|setup| setup.git("refresh_every: 1s"));
    fixture::plain(&scene.upstream, "plain");
    Git::new().mirror(&scene.url("ok/plain.git"), &scene.folder("warm")).ok();
    let list = Request::refs(&Tidegate::path("ok/plain.git"));
    let measure = |span: Duration| {
        let mut times = Vec::new();
        at_a_beat(span, Duration::from_millis(20), |_| {
            let asked = Instant::now();
            let answer = scene.tidegate().send(&list);
            assert_eq!(answer.status, 200, "{}", answer.text());
            times.push(asked.elapsed());
        });
        times.sort_unstable();
        times[times.len() * 99 / 100]
    };
    let calm = measure(Duration::from_millis(1500));
    scene.upstream.stall(true);
    let seen = scene.upstream.log().len();
    eventually(SOON, "a look is stuck", || (scene.upstream.log().len() > seen).then_some(()));
    // within twice the interval nobody waits for the stuck look; after it one reader may, for a
    // moment, and then all are served stale
    let stalled = measure(Duration::from_secs(60));
    scene.upstream.stall(false);
    let limit = (calm * 4).max(Duration::from_millis(150));
    assert!(stalled < limit, "p99 {calm:?} before, {stalled:?} while a look hangs");
}

// More readers than any pool has workers, each with a pack of its own, each taking 1 KiB.
#[test]
fn slow_readers_do_not_hold_up_the_next_clone() {
    let scene = Scene::start();
    let repository = fixture::heavy(&scene.upstream, "big", 4096);
    for turn in 0..24 {
        let text = format!("{turn}\n");
        repository.commit("main", &text, &[("turn.txt", &text)]);
    }
    let path = Tidegate::path("ok/big.git");
    let url = scene.url("ok/big.git");
    Git::new().mirror(&url, &scene.folder("warm")).ok();
    let clone = |name: &str| Git::new().clone_into(&url, &scene.folder(name), &["--bare"]).ok().took;
    let alone = clone("alone");
    let readers: Vec<_> = (0..24)
        .map(|number| {
            let want = format!("want {}", repository.resolve(&format!("main~{number}")));
            let body = pkt::v2("fetch", &[want, "ofs-delta".into(), "done".into()]);
            let mut stream = raw::connect(scene.tidegate().address());
            let request = Request::upload_pack(&path, body).v2();
            stream.write_all(&request.bytes("tidegate")).expect("the request is sent");
            let mut first = [0_u8; 1024];
            stream.read_exact(&mut first).expect("the first KiB");
            stream
        })
        .collect();
    let beside = clone("beside");
    assert_eq!(readers.len(), 24);
    assert!(beside < alone * 3 + Duration::from_secs(1), "{alone:?} alone, {beside:?} beside slow readers");
}

// K23
#[test]
fn a_connection_closed_at_reuse_is_nobodys_error() {
    let scene = Scene::with(|setup| setup.git("revalidate: always"));
    let repository = fixture::plain(&scene.upstream, "plain");
    let path = Tidegate::path("idle/plain.git");
    let list = Request::upload_pack(&path, pkt::v2("ls-refs", &[])).v2();
    let mut errors = Vec::new();
    for turn in 0..120_u64 {
        let answer = scene.tidegate().send(&list);
        if answer.status != 200 || !answer.body.ends_with(b"0000") {
            errors.push((turn, answer.status, answer.text()));
        }
        thread::sleep(Duration::from_millis(140 + turn % 21));
    }
    assert!(errors.is_empty(), "{errors:?}");
    assert!(scene.upstream.log().count(Kind::Refs) >= 120, "every read is revalidated");
    // a push that meets a dead connection is never sent twice
    let git = Git::new().config("user.name=Ada").config("user.email=ada@example.test");
    let folder = scene.folder("pusher");
    git.clone_into(&scene.url("idle/plain.git"), &folder, &[]).ok();
    for turn in 0..10 {
        git.run(&folder, &["commit", "-q", "--allow-empty", "-m", "again"]).ok();
        scene.upstream.log().clear();
        let _ = git.run(&folder, &["push", "-q", "origin", &format!("HEAD:refs/heads/made-{turn}")]);
        let sent = scene.upstream.log().entries();
        let sent = sent.iter().filter(|entry| entry.kind == Kind::Push && entry.method == "POST").count();
        assert!(sent <= 1, "{}", scene.upstream.log().text());
    }
    assert!(repository.exists("refs/heads/made-0"));
}

#[test]
fn a_dripping_list_is_waited_for_or_refused_but_never_halved() {
    let scene = Scene::start();
    fixture::many_refs(&scene.upstream, 300);
    let through = Git::new().within(Duration::from_secs(90)).list(&scene.url("drip/many.git"));
    let direct = Git::new().list(&scene.upstream.url("ok/many.git")).ok();
    assert!(through.code != 0 || through.stdout == direct.stdout, "{}", through.text());
}

#[test]
fn https_proxy_and_no_proxy_are_honoured() {
    let secure = Upstream::start_tls();
    let repository = fixture::plain(&secure, "plain");
    let egress = Egress::start(secure.address());
    let named = format!("url: https://git.test:{}", secure.address().port());
    let root = format!("ca: {{from_file: {}}}", secure.authority().root().display());
    let proxied = |setup: Setup| setup.line(&named).line(&root).env("HTTPS_PROXY", &egress.url());
    let scene = Scene::before(secure, proxied);
    let folder = scene.folder("mirror");
    Git::new().mirror(&scene.url("ok/plain.git"), &folder).ok();
    let held = Git::new().run(&folder, &["rev-parse", "refs/heads/main"]).text();
    assert_eq!(held.trim(), repository.resolve("main"));
    assert!(egress.seen() > 0, "the proxy was gone around");
    // excepted: straight to the address
    let direct = format!("url: {}", scene.upstream.base());
    let except = |setup: Setup| {
        let setup = setup.line(&direct).line(&root).env("HTTPS_PROXY", "http://127.0.0.1:9");
        setup.env("NO_PROXY", "127.0.0.1,git.test")
    };
    let excepted = except(Setup::of(&scene.upstream)).start();
    Git::new().list(&excepted.url("ok/plain.git")).ok();
}

// The disk is too small for the repository: it is streamed through, and nothing fails.
#[test]
fn a_store_too_small_for_the_repository_streams_it_through() {
    let scene = Scene::with(|setup| setup.table("store: {disk_limit: 2MiB, memory_limit: 1MiB}"));
    for name in ["one", "two", "three"] {
        fixture::heavy(&scene.upstream, name, 3072);
        for _ in 0..2 {
            scene.both(|door| {
                let mut outcome = Outcome::new();
                let folder = door.folder("clone");
                let url = door.url(&format!("ok/{name}.git"));
                outcome.run("clone", &Git::new().clone_into(&url, &folder, &["--bare"]).ok(), door.base());
                outcome.repository("clone", &folder);
                outcome
            });
        }
    }
}
