//! The command line and its exit codes.

use std::fs;

use crate::program::{Server, run};

fn check(text: &str) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tidegate.yaml");
    fs::write(&file, text).unwrap();
    let output = run(&["check", "--config", file.to_str().unwrap()]);
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn check_prints_every_problem_at_once_one_line_each() {
    let (code, lines) = check(
        "listen: nowhere\ngit: {refresh_every: 1ms, colour: blue}\nupstreams:\n  - {host: 'a b'}\n  - {hots: x}\n",
    );
    assert_eq!(code, Some(1));
    let paths: Vec<&str> = lines.lines().map(|line| line.split_once(": ").unwrap().0).collect();
    for path in [
        "listen",
        "git.refresh_every",
        "git.colour",
        "upstreams[0].host",
        "upstreams[1].hots",
        "upstreams[1].host",
    ] {
        assert!(paths.contains(&path), "{path} is not told in\n{lines}");
    }
}

#[test]
fn check_says_ok_and_ends_with_0() {
    assert_eq!(check("listen: 127.0.0.1:0\n"), (Some(0), "ok\n".into()));
}

#[test]
fn wrong_usage_ends_with_2() {
    for arguments in
        [&["fly"][..], &[], &["serve", "--listen", "nowhere"], &["explain"], &["serve", "--speed", "9"]]
    {
        assert_eq!(run(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_refused_start_ends_with_1_and_says_why() {
    let output = run(&["serve", "--config", "/nonexistent/tidegate.yaml"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("/nonexistent/tidegate.yaml"));
}

#[test]
fn a_command_without_a_server_ends_with_1_and_says_what_to_do() {
    let output = run(&["explain", "github.com/org/app", "--data", "/nonexistent", "--admin", "127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("no tidegate answers at 127.0.0.1:1"));
}

#[test]
fn the_operators_commands_are_put_to_the_server() {
    let server = Server::start("listen: 127.0.0.1:0\n");
    let admin = server.admin.to_string();
    let data = server.dir.path().join("elsewhere");
    let run = |words: &[&str]| {
        let mut arguments = words.to_vec();
        arguments.extend(["--admin", &admin, "--data", data.to_str().unwrap()]);
        let output = run(&arguments);
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code(), text)
    };
    let (code, text) = run(&["explain", "https://github.com/org/app/releases", "--json"]);
    assert!(code == Some(0) && text.contains("github.com/org/app"), "{text}");
    let (code, text) = run(&["explain", "evil.test/x"]);
    assert!(code == Some(1) && text.contains("not an upstream"), "{text}");
    let (code, text) = run(&["fsck"]);
    assert!(code == Some(0) && text.contains("store: "), "{text}");
    let (code, text) = run(&["purge", "github.com/org/app"]);
    assert!(code == Some(0) && text.contains("git: "), "{text}");
}

#[test]
fn an_offline_audit_needs_the_server_to_be_down() {
    let mut server = Server::start("listen: 127.0.0.1:0\n");
    let config = server.dir.path().join("tidegate.yaml");
    let audit = || run(&["fsck", "--offline", "--config", config.to_str().unwrap()]);
    let refused = audit();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("another tidegate"));
    assert!(server.terminate().success());
    assert_eq!(audit().status.code(), Some(0));
}
