//! What is accepted, and that every mistake is told at once.

use super::*;

fn source() -> Source {
    Source { file: None, overrides: Overrides::default(), data: Some("/var/lib/tidegate".into()) }
}

fn load(text: &str) -> Result<Config, Vec<String>> {
    source().load_text(text).map_err(|problems| problems.iter().map(Problem::to_string).collect())
}

#[test]
fn without_a_file_the_built_in_upstreams_are_served_on_loopback() {
    let config = load("").unwrap();
    assert_eq!(config.listen, [Listen::plain("127.0.0.1:8080".parse().unwrap())]);
    assert_eq!(config.admin, "127.0.0.1:8081".parse().unwrap());
    assert!(config.upstreams.iter().any(|upstream| upstream.host == "github.com"));
}

#[test]
fn the_documented_file_is_accepted() {
    let config = load(
        "listen: 0.0.0.0:8080
admin: 127.0.0.1:8081
data: /var/lib/tidegate
upstreams:
  - host: github.com
    access: passthrough
    budget: {per_minute: 300, concurrent: 20, per_credential: 120}
  - host: git.corp.example
    url: http://10.0.0.5:3000/git
    allow_private: true
    names: {ignore_case: false, git_suffix: true}
access: {auth_ttl: refresh_every, auth_grace: 24h, borrow: 10m}
git: {refresh_every: 2m, revalidate: stale, stale_if_error: 24h, keep_superseded: 24h, hide: [], depth: auto}
oci: {refresh_every: 2m, revalidate: stale, stale_if_error: 24h}
limits: {}
store: {disk_limit: 50GiB, memory_limit: 256MiB}
",
    )
    .unwrap();
    assert_eq!(config.upstreams.len(), 2);
    assert_eq!(config.git, GitConfig::default());
}

#[test]
fn every_problem_is_reported_at_once_with_its_path() {
    let problems = load(
        "listen:
  - {address: nowhere, tls: off}
  - {address: '0.0.0.0:1', tls: intercept, colour: blue}
surprise: 1
git: {refresh_every: 10, hide: [1, refs/pull/, 2], depth: deep, speed: 9}
store: {disk_limit: many}
limits: {headers: 2}
upstreams:
  - {host: a.test, budget: {per_minute: lots, concurent: 3}, credential: {username: u, password: hunter2}}
  - {host: A.test}
  - {host: b.test, access: proxy}
",
    )
    .unwrap_err();
    let paths: Vec<&str> = problems.iter().map(|line| line.split_once(": ").unwrap().0).collect();
    for path in [
        "listen[0].address",
        "listen[1].tls",
        "listen[1].colour",
        "surprise",
        "git.refresh_every",
        "git.hide[0]",
        "git.hide[2]",
        "git.depth",
        "git.speed",
        "store.disk_limit",
        "limits.headers",
        "upstreams[0].budget.per_minute",
        "upstreams[0].budget.concurent",
        "upstreams[0].credential.password",
        "upstreams[1]",
        "upstreams[2].access",
    ] {
        assert!(paths.contains(&path), "{path} is not told in\n{}", problems.join("\n"));
    }
    assert!(!problems.concat().contains("hunter2"), "a secret was printed");
}

#[test]
fn a_list_of_upstreams_replaces_the_built_in_one_unless_asked() {
    let hosts = |text: &str| -> Vec<String> {
        load(text).unwrap().upstreams.into_iter().map(|upstream| upstream.host).collect()
    };
    assert_eq!(hosts("upstreams: [{host: a.test}]"), ["a.test"]);
    let both = hosts("builtin_upstreams: true\nupstreams: [{host: a.test}, {host: GitHub.com}]");
    assert!(both.contains(&"a.test".into()) && both.contains(&"gitlab.com".into()));
    assert!(!both.contains(&"github.com".into()), "the file's own table goes first");
}

#[test]
fn a_missing_secret_is_a_problem_with_its_place() {
    let text = "upstreams:\n  - {host: a.test, credential: {bearer: {from_file: /nonexistent/token}}}";
    let problems = load(text).unwrap_err();
    assert!(problems[0].starts_with("upstreams[0].credential.bearer: "), "{problems:?}");
}

#[test]
fn text_that_is_no_yaml_is_one_problem_on_one_line() {
    for text in ["a: [", "- just\n- a list", "a: 1\na: 2", "%"] {
        let problems = load(text).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(!problems[0].contains('\n'), "{problems:?}");
    }
}

#[test]
fn the_command_line_goes_before_the_file() {
    let overrides = Overrides {
        data: Some("/elsewhere".into()),
        listen: Some("127.0.0.1:1".parse().unwrap()),
        admin: Some("127.0.0.1:2".parse().unwrap()),
    };
    let source = Source { overrides, ..source() };
    let config = source.load_text("listen: 0.0.0.0:80\nadmin: 127.0.0.1:81\ndata: /x").unwrap();
    assert_eq!(config.listen, [Listen::plain("127.0.0.1:1".parse().unwrap())]);
    assert_eq!((config.admin.port(), config.data), (2, "/elsewhere".into()));
}

#[test]
fn data_goes_where_caches_go() {
    let with = |pairs: &'static [(&str, &str)]| {
        default_data(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    };
    assert_eq!(with(&[("XDG_CACHE_HOME", "/c"), ("HOME", "/h")]), Some("/c/tidegate".into()));
    assert_eq!(with(&[("XDG_CACHE_HOME", ""), ("HOME", "/h")]), Some("/h/.cache/tidegate".into()));
    assert_eq!(with(&[]), None);
}

#[test]
fn what_is_expected_is_told_without_the_words_of_the_program() {
    for (text, told) in [
        (
            "git: {refresh_every: 2}",
            "git.refresh_every: invalid type: integer `2`, expected a duration such as 30s or 2m",
        ),
        ("git: 3", "git: invalid type: integer `3`, expected a table of keys"),
        (
            "upstreams: [a.test]",
            "upstreams[0]: invalid type: string \"a.test\", expected a table such as `{host: github.com}`",
        ),
        (
            "store: {disk_limit: lots}",
            "store.disk_limit: invalid value: string \"lots\", expected a size such as 512MiB or 50GiB",
        ),
        ("log: {level: loud}", "log.level: is no list of levels like `info` or `info,tidegate_git=debug`"),
        (
            "listen: 127.0.0.1:80\nadmin: 127.0.0.1:80",
            "admin: is where clients are served already; choose another port",
        ),
        ("a: 1\na: 2", "config: is no YAML that can be read: line 2 column 1: duplicate mapping key: a"),
    ] {
        assert_eq!(load(text).unwrap_err(), [told], "{text}");
    }
    let url = load("upstreams: [{host: 'https://a.test/x'}]").unwrap_err();
    assert!(url[0].contains("write the name alone, `a.test`"), "{url:?}");
}
