//! The scripted upstream and the fixtures themselves, without tidegate: if the
//! oracle is wrong, nothing else here means anything.

use std::path::Path;

use tidegate_conformance::client::{gix, gogit};
use tidegate_conformance::pkt::{self, FetchAnswer};
use tidegate_conformance::raw::Request;
use tidegate_conformance::{Git, Kind, Upstream, fixture};

fn here() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder to work in")
}

#[test]
fn every_fixture_can_be_mirrored_in_every_protocol_version() {
    let upstream = Upstream::start();
    let work = here();
    fixture::plain(&upstream, "plain");
    fixture::octopus(&upstream);
    fixture::tags(&upstream);
    fixture::bad(&upstream);
    let (_, names) = fixture::names(&upstream);
    assert_eq!(names.len(), 17);
    fixture::hmiss(&upstream);
    fixture::listed(&upstream);
    fixture::submodules(&upstream);
    fixture::history(&upstream, "history", 300);
    for protocol in 0..=2 {
        for name in ["plain", "octopus", "tags", "bad", "names", "hmiss", "listed", "outer", "history"] {
            let folder = work.path().join(format!("{name}-{protocol}"));
            Git::speaking(protocol).mirror(&upstream.url(&format!("ok/{name}.git")), &folder).ok();
        }
    }
}

#[test]
fn fixtures_are_the_same_bytes_every_time() {
    let (one, two) = (Upstream::start(), Upstream::start());
    let tips = |upstream: &Upstream| {
        let all = [fixture::plain(upstream, "plain"), fixture::tags(upstream), fixture::bad(upstream)];
        all.map(|repository| repository.git(&["for-each-ref"]))
    };
    assert_eq!(tips(&one), tips(&two));
}

#[test]
fn fsck_finds_six_kinds_of_trouble_in_bad() {
    let upstream = Upstream::start();
    let repository = fixture::bad(&upstream);
    let findings = Git::new().run(repository.path(), &["fsck", "--strict"]);
    for trouble in ["zeroPaddedFilemode", "badTimezone", "missingSpaceBeforeEmail"] {
        assert!(findings.stderr.contains(trouble), "{trouble} in:\n{}", findings.stderr);
    }
}

#[test]
fn the_log_tells_refs_from_fetches_and_counts_wants() {
    let upstream = Upstream::start();
    let work = here();
    let repository = fixture::plain(&upstream, "plain");
    let url = upstream.url("ok/plain.git");
    Git::new().clone_into(&url, &work.path().join("clone"), &["--depth", "1"]).ok();
    let log = upstream.log();
    assert_eq!((log.count(Kind::Refs), log.count(Kind::Fetch)), (2, 1), "{}", log.text());
    let fetch = log.entries().into_iter().find(|entry| entry.kind == Kind::Fetch).expect("a fetch");
    // stock git names the tip twice here: as HEAD and as the branch
    let tip = repository.resolve("refs/heads/main");
    assert!(fetch.asked.wants.iter().all(|want| *want == tip), "{}", log.text());
    assert_eq!(fetch.asked.deepen, ["deepen 1"]);
    assert!(fetch.asked.done && fetch.status == 200);
}

#[test]
fn quirks_do_what_their_names_say() {
    let upstream = Upstream::start();
    fixture::plain(&upstream, "plain");
    let at = upstream.address();
    let refs = |quirk: &str| Request::refs(&format!("/{quirk}/plain.git")).v2().send(at);
    assert_eq!(refs("ok").status, 200);
    assert_eq!(refs("login").status, 302);
    assert!(refs("login").header("location").is_some_and(|to| to.contains("/users/sign_in")));
    assert_eq!(refs("ua").status, 404);
    assert_eq!(Request::refs("/ua/plain.git").header("User-Agent", "git/9").send(at).status, 200);
    assert_eq!(refs("cookie").status, 302);
    assert_eq!(Request::refs("/cookie/plain.git").header("Cookie", "o=s3cret").send(at).status, 200);
    assert!(!refs("v0only").text().contains("version 2"));
    assert!(refs("ok").text().contains("version 2"));
    assert!(refs("html200").text().contains("<html>"));
    assert_eq!(refs("s203").status, 203);
    for code in [401, 403, 404, 410, 500, 503] {
        assert_eq!(refs(&format!("s{code}")).status, code);
    }
    assert_eq!(refs("s429").header("retry-after"), Some("30"));
    assert_eq!(refs("moved").status, 301);
    assert!(refs("errpkt").text().contains("ERR access denied"));
    assert_eq!(refs("auth").status, 401);
    let list = pkt::v2("ls-refs", &[]);
    let listed =
        |quirk: &str| Request::upload_pack(&format!("/{quirk}/plain.git"), list.clone()).v2().send(at);
    assert!(listed("ok").body.ends_with(b"0000"));
    assert!(!listed("cutlist").body.ends_with(b"0000") && listed("cutlist").whole);
    let empty = listed("empty200");
    assert!(empty.status == 200 && empty.body.is_empty());
}

#[test]
fn a_cut_pack_is_cut_and_a_cleanly_cut_one_is_framed_well() {
    let upstream = Upstream::start();
    let repository = fixture::plain(&upstream, "plain");
    let want = format!("want {}", repository.resolve("refs/heads/main"));
    let body = pkt::v2("fetch", &[want, "done".into()]);
    let fetch = |quirk: &str| {
        Request::upload_pack(&format!("/{quirk}/plain.git"), body.clone()).v2().send(upstream.address())
    };
    let whole = fetch("ok");
    assert!(whole.whole && FetchAnswer::read(&whole.body).objects() > Some(20));
    let cut = fetch("cut");
    assert!(!cut.whole && cut.body.len() < whole.body.len());
    for (quirk, same_length) in [("cutpack", false), ("flip", true)] {
        let spoilt = fetch(quirk);
        let (ours, theirs) = (FetchAnswer::read(&spoilt.body), FetchAnswer::read(&whole.body));
        assert!(spoilt.whole && spoilt.body.ends_with(b"0000") && ours.pack != theirs.pack, "{quirk}");
        assert_eq!(ours.pack.len() == theirs.pack.len(), same_length, "{quirk}");
    }
    let clean = fetch("cutclean");
    assert!(clean.whole && clean.body.len() < whole.body.len());
}

#[test]
fn wants_that_are_no_tips_are_refused_by_nosha_and_served_by_ok() {
    let upstream = Upstream::start();
    let work = here();
    let repository = fixture::plain(&upstream, "plain");
    let old = repository.resolve("refs/heads/main~3");
    for (quirk, served) in [("ok", true), ("nosha", false), ("nosha+v0only", false)] {
        let folder = work.path().join(quirk);
        Git::new().run(work.path(), &["init", "--quiet", &folder.to_string_lossy()]).ok();
        let url = upstream.url(&format!("{quirk}/plain.git"));
        let run = Git::new().run(&folder, &["fetch", "--quiet", &url, &old]);
        assert_eq!(run.code == 0, served, "{quirk}: {}", run.stderr);
    }
}

#[test]
fn rights_follow_the_user_the_repository_and_the_moment() {
    let upstream = Upstream::start();
    fixture::plain(&upstream, "private");
    let users = upstream.users();
    users.set("alice", "pw");
    users.set("bob", "pw");
    users.grant("alice", "private");
    let url = upstream.url("auth/private.git");
    Git::new().list(&url).failed();
    Git::new().with_helper("alice", "pw").list(&url).ok();
    assert!(Git::new().sending("bob", "pw").list(&url).failed().stderr.contains("403"));
    users.revoke("alice", "private");
    Git::new().with_helper("alice", "pw").list(&url).failed();
    users.publish("private");
    Git::new().list(&url).ok();
}

#[test]
fn a_stopped_upstream_refuses_and_a_resumed_one_answers_on_the_same_port() {
    let upstream = Upstream::start();
    fixture::plain(&upstream, "plain");
    let url = upstream.url("ok/plain.git");
    Git::new().list(&url).ok();
    upstream.stop();
    Git::new().list(&url).failed();
    upstream.resume();
    Git::new().list(&url).ok();
}

#[test]
fn tls_and_ipv6_upstreams_serve_stock_git() {
    let secure = Upstream::start_tls();
    fixture::plain(&secure, "plain");
    Git::new().trusting(&secure.authority().root()).list(&secure.url("ok/plain.git")).ok();
    let sixth = Upstream::start_v6();
    fixture::plain(&sixth, "plain");
    Git::new().list(&sixth.url("ok/plain.git")).ok();
}

#[test]
fn go_git_lists_and_clones_as_argo_and_flux_do() {
    let Some(client) = gogit::GoGit::find("go-git against the upstream") else { return };
    let upstream = Upstream::start();
    let work = here();
    let repository = fixture::plain(&upstream, "plain");
    let url = upstream.url("ok/plain.git");
    let refs = gogit::refs(&client.list(&url).ok());
    assert_eq!(refs.get("HEAD").map(String::as_str), Some("ref: refs/heads/main"));
    assert_eq!(refs.get("refs/tags/v1.0.0^{}"), Some(&repository.resolve("v1.0.0^{}")));
    let list = upstream.log().entries().pop().expect("one request");
    assert!(list.user_agent.starts_with("go-git/5") && list.git_protocol.is_none());
    upstream.log().clear();
    client.branch(&url, &work.path().join("flux"), "main").ok();
    let fetch = upstream.log().entries().pop().expect("a fetch");
    assert_eq!((fetch.asked.deepen.len(), fetch.asked.wants.len(), fetch.asked.done), (1, 1, true));
    assert!(fetch.headers.contains_key("content-length") && !fetch.headers.contains_key("content-encoding"));
    let runs = [
        client.run(&["semver", &url, &folder(work.path(), "semver")]),
        client.run(&["tag", &url, &folder(work.path(), "tag"), "v1.0.0"]),
        client.run(&["commit", &url, &folder(work.path(), "commit"), &repository.resolve("main~2")]),
    ];
    for run in runs {
        run.ok();
    }
}

fn folder(work: &Path, name: &str) -> String {
    work.join(name).to_string_lossy().into_owned()
}

#[test]
fn gix_clones_from_the_upstream() {
    let upstream = Upstream::start();
    let work = here();
    fixture::plain(&upstream, "plain");
    let url = upstream.url("ok/plain.git");
    if let Some(run) = gix::clone("gix against the upstream", &url, &work.path().join("gix"), None) {
        run.ok();
    }
}
