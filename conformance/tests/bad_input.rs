//! Input that is too large, malformed or meant to harm: a clear refusal,
//! bounded memory, and nothing lost.

use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use tidegate_conformance::pkt;
use tidegate_conformance::raw::{self, Answer, Request};
use tidegate_conformance::{Git, Scene, Tidegate, Upstream, fixture};
use tokio::time::Instant;

fn get(scene: &Scene, path: &str) -> Answer {
    scene.tidegate().send(&Request::get(path))
}

fn still_serves(scene: &Scene) {
    Git::new().mirror(&scene.url("ok/plain.git"), &scene.folder("after")).ok();
}

#[test]
fn an_unknown_host_is_403_with_the_line_that_would_allow_it() {
    let scene = Scene::start();
    let answer = get(&scene, "/evil.example/org/app.git/info/refs?service=git-upload-pack");
    assert_eq!(answer.status, 403);
    assert!(answer.header("content-type").is_some_and(|media| media.starts_with("text/plain")));
    assert!(answer.text().contains("evil.example") && answer.text().contains("host:"), "{}", answer.text());
    let run =
        Git::new().list(&format!("http://{}/evil.example/app.git", scene.tidegate().address())).failed();
    assert!(run.stderr.contains("remote: "), "{}", run.stderr);
}

#[test]
fn paths_that_climb_or_hide_are_refused_and_never_repaired() {
    let scene = Scene::start();
    fixture::plain(&scene.upstream, "plain");
    for path in [
        "/git.test/ok/../auth/plain.git/info/refs",
        "/git.test/ok/./plain.git/info/refs",
        "/git.test/ok/%2e%2e/plain.git/info/refs",
        "/git.test/ok/%2E/plain.git/info/refs",
        "/git.test/ok%2fplain.git/info/refs",
        "/git.test/ok%2Fplain.git/info/refs",
        "/git.test/ok/plain.git%5cinfo/refs",
        "/git.test/ok/plain%00.git/info/refs",
        "/git.test/ok/plain%0d%0a.git/info/refs",
        "/git.test/ok//plain.git/info/refs",
        "/git.test//ok/plain.git/info/refs",
        "/user@git.test/ok/plain.git/info/refs",
        "/git%2etest/ok/plain.git/info/refs",
        "/git.test./ok/plain.git/info/refs",
        "/127.0.0.1/ok/plain.git/info/refs",
        "/2130706433/ok/plain.git/info/refs",
        "/[::1]/ok/plain.git/info/refs",
        "/0x7f.1/ok/plain.git/info/refs",
    ] {
        let answer = get(&scene, &format!("{path}?service=git-upload-pack"));
        assert_eq!(answer.status, 400, "{path}: {}", answer.text());
        assert!(!answer.text().trim().is_empty(), "{path} is refused without a word");
    }
    assert!(scene.upstream.log().is_empty(), "{}", scene.upstream.log().text());
    // other escapes pass byte for byte
    get(&scene, "/git.test/ok/with%20space%2Bplus.git/info/refs?service=git-upload-pack");
    let passed = scene.upstream.log().entries();
    assert!(passed.iter().all(|entry| entry.path.contains("with%20space%2Bplus")), "{passed:?}");
    still_serves(&scene);
}

#[test]
fn malformed_bodies_are_refused_in_words_and_cost_nothing() {
    let scene = Scene::start();
    let repository = fixture::plain(&scene.upstream, "plain");
    still_serves(&scene);
    let tip = repository.resolve("main");
    let path = Tidegate::path("ok/plain.git");
    let bodies: Vec<Vec<u8>> = vec![
        b"zzzz".to_vec(),
        b"0003".to_vec(),
        b"ffff".to_vec(),
        b"0032want ".to_vec(),
        pkt::line("want nothex"),
        [pkt::line(&format!("want {tip}")), pkt::line("deepen -1"), b"0000".to_vec(), pkt::line("done")]
            .concat(),
        [pkt::line(&format!("want {tip}")), pkt::line("deepen 99999999999999999999"), b"0000".to_vec()]
            .concat(),
        pkt::v2("no-such-command", &[]),
        pkt::v2("fetch", &["want 1234".into(), "done".into()]),
        pkt::v2("fetch", &[format!("want {tip}"), "filter no:such".into(), "done".into()]),
        pkt::v2("fetch", &[format!("want {tip}"), "filter combine:blob:none+".into(), "done".into()]),
        [0xff_u8; 70_000].to_vec(),
        vec![b'0'; 1 << 20],
    ];
    for (number, body) in bodies.iter().enumerate() {
        for version in ["version=0", "version=2"] {
            let request = Request::upload_pack(&path, body.clone()).header("Git-Protocol", version);
            let answer = scene.tidegate().send(&request);
            let refused = answer.status >= 400 && answer.status != 500;
            let told = answer.status == 200 && (answer.text().contains("ERR ") || answer.body.is_empty());
            let probe = answer.status == 200 && version == "version=0" && body.starts_with(b"0000");
            assert!(refused || told || probe, "#{number} {version}: {} {}", answer.status, answer.text());
        }
    }
    // each whole request, cut anywhere: an answer, never a hang or a crash
    let whole = pkt::v2("fetch", &[format!("want {tip}"), "deepen 1".into(), "done".into()]);
    for end in (0..whole.len()).step_by(7) {
        let answer = scene.tidegate().send(&Request::upload_pack(&path, whole[..end].to_vec()).v2());
        assert!(answer.status != 0 && answer.status != 500, "cut at {end}: {answer:?}");
    }
    still_serves(&scene);
    assert!(!scene.tidegate().said().contains("panicked"), "it panicked");
}

#[test]
fn gzip_bombs_and_endless_bodies_are_cut_off_in_bounded_memory() {
    let scene = Scene::start();
    fixture::plain(&scene.upstream, "plain");
    still_serves(&scene);
    let before = scene.tidegate().peak_memory();
    let path = Tidegate::path("ok/plain.git");
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let packets = pkt::line(&format!("have {}", "1".repeat(40))).repeat(2_000);
    for _ in 0..2_000 {
        encoder.write_all(&packets).expect("a vector takes bytes");
    }
    let bomb = encoder.finish().expect("a vector takes bytes");
    let request = Request::upload_pack(&path, bomb).v2().header("Content-Encoding", "gzip");
    let answer = scene.tidegate().send(&request);
    assert!((400..500).contains(&answer.status) || answer.text().contains("ERR "), "{answer:?}");
    let nested = Request::upload_pack(&path, b"0000".to_vec()).header("Content-Encoding", "gzip, gzip");
    assert!((400..500).contains(&scene.tidegate().send(&nested).status));
    let not_gzip = Request::upload_pack(&path, b"0000".to_vec()).header("Content-Encoding", "gzip");
    assert!((400..500).contains(&scene.tidegate().send(&not_gzip).status));
    let unknown = Request::upload_pack(&path, b"0000".to_vec()).header("Content-Encoding", "br");
    assert!((400..500).contains(&scene.tidegate().send(&unknown).status));
    let large = vec![b'0'; 70 << 20];
    let answer = scene.tidegate().send(&Request::upload_pack(&path, large).v2());
    assert!(answer.status == 413 || answer.status == 400, "{} {}", answer.status, answer.text());
    let grown = scene.tidegate().peak_memory().saturating_sub(before);
    assert!(grown < 200 << 10, "{grown} KiB more at the peak");
    still_serves(&scene);
}

#[test]
fn oversized_heads_and_slow_heads_end_the_connection() {
    let scene = Scene::start();
    fixture::plain(&scene.upstream, "plain");
    let long = "x".repeat(40 << 10);
    let path = Tidegate::path("ok/plain.git");
    let answer = scene.tidegate().send(&Request::refs(&path).header("X-Long", &long));
    assert!((400..500).contains(&answer.status) || answer.status == 0, "{answer:?}");
    let many = (0..200).fold(Request::refs(&path), |request, turn| request.header(&format!("X-{turn}"), "1"));
    let answer = scene.tidegate().send(&many);
    assert!((400..500).contains(&answer.status) || answer.status == 0, "{answer:?}");
    let mut slow = raw::connect(scene.tidegate().address());
    slow.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n").expect("half a head");
    let started = Instant::now();
    let answer = raw::read_answer(&mut slow);
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    assert!(answer.status == 0 || answer.status == 408, "{answer:?}");
    still_serves(&scene);
}

#[test]
fn methods_and_services_that_git_lacks_are_refused() {
    let scene = Scene::start();
    fixture::plain(&scene.upstream, "plain");
    let path = Tidegate::path("ok/plain.git");
    for (method, rest) in [
        ("PUT", "/git-upload-pack"),
        ("DELETE", "/info/refs?service=git-upload-pack"),
        ("GET", "/git-upload-pack"),
        ("GET", "/info/refs?service=git-upload-archive"),
    ] {
        let answer = scene.tidegate().send(&Request::new(method, &format!("{path}{rest}")));
        assert!((400..500).contains(&answer.status), "{method} {rest}: {} {}", answer.status, answer.text());
    }
    let trace = scene.tidegate().send(&Request::new("TRACE", "/"));
    assert!((400..500).contains(&trace.status));
    still_serves(&scene);
}

#[test]
fn our_own_name_has_health_and_nothing_of_the_admins() {
    let scene = Scene::start();
    assert_eq!(get(&scene, "/-/healthz").status, 200);
    assert_eq!(get(&scene, "/-/readyz").status, 200);
    for path in ["/metrics", "/api/v1/upstreams", "/status", "/-/nothing", "/"] {
        assert!((400..500).contains(&get(&scene, path).status), "{path}");
    }
    fixture::plain(&scene.upstream, "plain");
    still_serves(&scene);
    scene.upstream.stop();
    assert_eq!(get(&scene, "/-/readyz").status, 200);
    let metrics = scene.tidegate().metrics();
    for name in ["tidegate_requests_total", "tidegate_upstream_requests_total", "tidegate_request_seconds"] {
        assert!(
            metrics.contains(&format!("# TYPE {}", name.trim_end_matches("_total"))),
            "{name} in\n{metrics}"
        );
    }
}

#[test]
fn fifty_clients_polling_fifty_unknown_repositories_do_not_flood_the_upstream() {
    let scene = Scene::start();
    for _ in 0..5 {
        for number in 0..10 {
            let path = Tidegate::path(&format!("ok/missing-{number}.git"));
            assert_eq!(scene.tidegate().send(&Request::refs(&path)).status, 404);
        }
    }
    // a refusal is remembered for 30 s
    assert!(scene.upstream.log().len() <= 20, "{}", scene.upstream.log().text());
}

#[test]
fn a_private_address_is_not_asked_unless_the_configuration_says_so() {
    let upstream = Upstream::start();
    fixture::plain(&upstream, "plain");
    // a name, so that the guard has to look behind DNS
    let url = format!("url: http://localhost:{}", upstream.address().port());
    let scene = Scene::before(upstream, |setup| setup.line("allow_private: false").line(&url));
    let answer = scene.tidegate().send(&Request::refs(&Tidegate::path("ok/plain.git")));
    assert!((400..600).contains(&answer.status), "{}", answer.status);
    assert!(answer.text().contains("allow_private"), "{}", answer.text());
    assert!(scene.upstream.log().is_empty(), "{}", scene.upstream.log().text());
}
