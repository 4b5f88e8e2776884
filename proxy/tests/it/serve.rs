//! Serving: health, bad requests, the lock, the drain, and that nothing is
//! executed.

use std::{
    fs,
    io::{Read as _, Write as _},
    path::Path,
};

use crate::program::{PROGRAM, Server, ask, connect, run};

// Nothing listens on port 9: an upstream that is away.
const CONFIG: &str = "listen: 127.0.0.1:0
upstreams: [{host: git.test, url: 'http://127.0.0.1:9', allow_private: true}]
";

#[test]
fn health_and_readiness_are_answered_whatever_the_upstreams_do() {
    let server = Server::start(CONFIG);
    for path in ["/-/healthz", "/-/readyz"] {
        assert!(server.get(path).starts_with("HTTP/1.1 200"), "{path}");
    }
}

#[test]
fn the_documented_metrics_have_their_documented_names() {
    let server = Server::start(CONFIG);
    server.get("/git.test/a/releases");
    let page = server.metrics();
    for name in [
        "tidegate_requests_total",
        "tidegate_request_seconds_bucket",
        "tidegate_upstream_requests_total",
        "tidegate_budget_remaining",
        "tidegate_store_bytes",
        "tidegate_store_evictions_total",
    ] {
        assert!(page.lines().any(|line| line.starts_with(&format!("{name}{{"))), "{name} is not in {page}");
    }
}

#[test]
fn unknown_hosts_and_bad_paths_have_their_status_and_words() {
    let server = Server::start(CONFIG);
    for (path, status, words) in [
        ("/evil.test/a/info/refs", 403, "host: evil.test"),
        ("/github.com/a", 403, "host: github.com"),
        ("/10.0.0.1/a", 400, "is an address"),
        ("/0x7f.1/a", 400, "is an address"),
        ("/user:hunter2@git.test/a", 400, "no user name"),
        ("/git.test/a/../b", 400, "`.` or `..`"),
        ("/git.test/a%2Fb", 400, "escaped slash"),
        ("/git.test/a%5cb", 400, "escaped slash"),
        ("/git.test/a%0ab", 400, "control byte"),
        ("/git.test//a", 400, "empty segment"),
        ("/-/nothing", 404, "nothing at this path"),
    ] {
        let answer = server.get(path);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
        assert!(
            answer.contains("content-type: text/plain\r\n") && answer.contains(words),
            "{path}: {answer}"
        );
    }
    let answer = ask(
        server.clients,
        "CONNECT git.test:443 HTTP/1.1\r\nhost: git.test:443\r\nconnection: close\r\n\r\n",
    );
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
}

#[test]
fn every_request_is_one_line_without_its_query_or_a_secret() {
    let mut server = Server::start(CONFIG);
    server.get("/evil.test/a?token=hunter2");
    server.get("/user:hunter2@git.test/a");
    let line = server.said(&["tidegate::request", "status=403"]);
    for field in [
        "client=127.0.0.1:",
        "method=GET",
        "host=\"evil.test\"",
        "path=\"/a\"",
        "outcome=\"denied\"",
        "bytes_out=",
    ] {
        assert!(line.contains(field), "{field} is not in {line}");
    }
    server.said(&["tidegate::request", "status=400"]);
    assert!(!server.everything().contains("hunter2"));
    assert!(
        server
            .metrics()
            .contains("tidegate_requests_total{protocol=\"tidegate\",outcome=\"denied\",status=\"403\"} 1")
    );
}

#[test]
fn logs_may_be_json_with_one_object_a_line() {
    let mut server = Server::start(&format!("{CONFIG}log: {{format: json}}\n"));
    server.get("/evil.test/a");
    let line: serde_json::Value = serde_json::from_str(&server.said(&["tidegate::request"])).unwrap();
    for (field, value) in [
        ("message", "request"),
        ("method", "GET"),
        ("host", "evil.test"),
        ("path", "/a"),
        ("outcome", "denied"),
    ] {
        assert_eq!(line[field], value, "{line}");
    }
    assert_eq!(line["status"], 403);
    for field in ["bytes_in", "bytes_out", "first_byte_ms", "total_ms"] {
        assert!(line[field].is_u64(), "{field} in {line}");
    }
    for line in server.everything().lines() {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok_and(|line| line.is_object()), "{line}");
    }
}

#[test]
fn a_start_says_what_it_serves_from_where() {
    let mut server = Server::start(CONFIG);
    let everything = server.everything();
    for words in ["starting version=", "config=", "data=", "listening for clients", "listening for operators"]
    {
        assert!(everything.contains(words), "{words} is not in {everything}");
    }
}

#[test]
fn a_data_directory_that_cannot_be_made_refuses_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tidegate.yaml");
    fs::write(&file, format!("data: /proc/nowhere\n{CONFIG}")).unwrap();
    let output = run(&["serve", "--config", file.to_str().unwrap(), "--admin", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("/proc/nowhere"));
}

#[test]
fn a_second_server_on_the_same_data_is_refused() {
    let server = Server::start(CONFIG);
    let config = server.dir.path().join("tidegate.yaml");
    let output = run(&["serve", "--config", config.to_str().unwrap(), "--admin", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(1));
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(words.contains("another tidegate (process "), "{words}");
}

#[test]
fn sigterm_lets_go_of_idle_clients_and_ends_with_0() {
    let mut server = Server::start(CONFIG);
    let mut idle = connect(server.clients);
    idle.write_all(b"GET /-/healthz HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
    let mut start = [0; 12];
    idle.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
    assert_eq!(server.terminate().code(), Some(0));
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).unwrap();
    assert!(server.everything().contains("stopped"));
}

// The tester's own strace, since the product is started with an empty PATH.
#[test]
fn nothing_is_executed() {
    let strace = ["/usr/bin/strace", "/bin/strace"].into_iter().find(|path| Path::new(path).exists());
    let Some(strace) = strace else {
        assert!(std::env::var_os("CI").is_none(), "strace is missing");
        eprintln!("NOT RUN: nothing_is_executed: strace missing");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let wrapper = [strace, "-f", "-qq", "-e", "trace=execve,execveat", "-o", trace.to_str().unwrap()];
    let server = Server::start_in(dir, CONFIG, &wrapper);
    server.get("/git.test/org/app.git/info/refs?service=git-upload-pack");
    server.get("/evil.test/a");
    server.metrics();
    let trace = fs::read_to_string(&trace).unwrap();
    let executed: Vec<_> = trace.lines().filter(|line| line.contains("exec")).collect();
    assert!(executed.len() == 1 && executed[0].contains(PROGRAM), "{trace}");
}
