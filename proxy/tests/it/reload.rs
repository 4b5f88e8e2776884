//! Changes while serving, told by SIGHUP so that no test waits for the clock.

use rustix::process::Signal;

use crate::program::{Server, eventually};

const ONE: &str = "listen: 127.0.0.1:0\nupstreams: [{host: one.test}]\n";
const TWO: &str = "listen: 127.0.0.1:0\nupstreams: [{host: one.test}, {host: two.test, url: 'http://127.0.0.1:9', allow_private: true}]\n";

#[test]
fn an_upstream_added_to_the_file_is_served_after_sighup() {
    let mut server = Server::start(ONE);
    assert!(server.get("/two.test/a").starts_with("HTTP/1.1 403"));
    server.configure(TWO);
    server.signal(Signal::HUP);
    eventually("the new upstream is known", || !server.get("/two.test/a").starts_with("HTTP/1.1 403"));
    server.said(&["the configuration was read again"]);
    assert!(server.metrics().contains("tidegate_config_reload_total{result=\"ok\"}"));
}

#[test]
fn a_bad_new_file_keeps_the_old_one_and_is_told_and_counted() {
    let mut server = Server::start(TWO);
    server.configure("listen: 127.0.0.1:0\nupstreams: [{hots: one.test}]\n");
    server.signal(Signal::HUP);
    server.said(&["upstreams[0].hots: is no known key", "stays in use"]);
    eventually("it is counted", || {
        server.metrics().contains("tidegate_config_reload_total{result=\"error\"}")
    });
    assert!(!server.get("/two.test/a").starts_with("HTTP/1.1 403"));
}

#[test]
fn what_needs_a_restart_is_told() {
    let mut server = Server::start(ONE);
    server.configure(&format!("{ONE}store: {{disk_limit: 5GiB}}\n"));
    server.signal(Signal::HUP);
    server.said(&["`store` changed", "restarted"]);
}
