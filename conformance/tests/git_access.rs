//! Nothing private reaches a caller whom the upstream did not accept for that
//! repository; and who was accepted is not refused for our own reasons.

use std::fs;
use std::thread;
use std::time::Duration;

use tidegate_conformance::client::gogit;
use tidegate_conformance::pkt::{self, FetchAnswer};
use tidegate_conformance::raw::{Answer, Request};
use tidegate_conformance::upstream::tls::Authority;
use tidegate_conformance::upstream::users::basic;
use tidegate_conformance::wait::at_a_beat;
use tidegate_conformance::{Git, Kind, Repository, Scene, Tidegate, Upstream, eventually, fixture};

const SOON: Duration = Duration::from_secs(20);
const ALICE: (&str, &str) = ("alice", "pw-alice-9f31");
const BOB: (&str, &str) = ("bob", "pw-bob-77c2");

/// `private` for alice, `open` for everybody; bob is known and may read only `open`.
fn guarded(upstream: Upstream) -> (Upstream, Repository) {
    let repository = fixture::plain(&upstream, "private");
    repository.commit("main", "the secret", &[("secret.txt", "the private bytes 4711\n")]);
    fixture::plain(&upstream, "open");
    for (user, password) in [ALICE, BOB] {
        upstream.users().set(user, password);
    }
    upstream.users().grant("alice", "private");
    upstream.users().publish("open");
    (upstream, repository)
}

fn scene(git: &str) -> (Scene, Repository) {
    let (upstream, repository) = guarded(Upstream::start());
    (Scene::before(upstream, |setup| setup.git(git)), repository)
}

fn as_user(user: (&str, &str)) -> Git {
    Git::new().sending(user.0, user.1)
}

/// Every way to ask for the repository's refs or objects, with this Authorization.
fn every_way(scene: &Scene, repository: &str, tip: &str, authorization: Option<&str>) -> Vec<Answer> {
    let path = Tidegate::path(&format!("auth/{repository}.git"));
    let want = format!("want {tip}");
    let requests = [
        Request::refs(&path),
        Request::refs(&path).v2(),
        Request::upload_pack(&path, pkt::v2("ls-refs", &[])).v2(),
        Request::upload_pack(&path, pkt::v2("fetch", &[want.clone(), "done".into()])).v2(),
        Request::upload_pack(&path, pkt::v0(&[format!("{want} side-band-64k")], true)),
        Request::upload_pack(&path, pkt::v0(&[want, "deepen 1".into()], true)),
        Request::upload_pack(&path, b"0000".to_vec()),
    ];
    let with = |request: Request| match authorization {
        Some(value) => request.header("Authorization", value),
        None => request,
    };
    requests.into_iter().map(|request| scene.tidegate().send(&with(request))).collect()
}

fn nothing_private(answers: &[Answer], tip: &str) {
    for answer in answers {
        assert!(answer.status >= 400, "{} {}", answer.status, answer.text());
        assert!(!answer.text().contains(tip) && FetchAnswer::read(&answer.body).pack.is_empty());
        assert!(
            !answer.headers.iter().any(|(name, _)| name == "tidegate-generation"),
            "{:?}",
            answer.headers
        );
    }
}

#[test]
fn strangers_get_nothing_by_any_request_cold_warm_or_while_the_upstream_is_away() {
    let (scene, repository) = scene("refresh_every: 2m");
    let tip = repository.resolve("main");
    let strangers = [
        None,
        Some(basic(ALICE.0, "wrong")),
        Some(basic(BOB.0, BOB.1)),
        Some("Bearer made-up".to_owned()),
        Some("Basic not-base64".to_owned()),
    ];
    let try_all = |statuses: &[u16]| {
        for stranger in &strangers {
            let answers = every_way(&scene, "private", &tip, stranger.as_deref());
            nothing_private(&answers, &tip);
            let unexpected = answers.iter().find(|answer| !statuses.contains(&answer.status));
            assert!(unexpected.is_none(), "{stranger:?}: {unexpected:?}");
        }
    };
    try_all(&[401, 403]);
    as_user(ALICE).mirror(&scene.url("auth/private.git"), &scene.folder("alice")).ok();
    try_all(&[401, 403]);
    scene.upstream.stop();
    // who was refused a moment ago is still refused; one never seen gets 503
    try_all(&[401, 403, 503]);
    let unseen = every_way(&scene, "private", &tip, Some(&basic("dave", "pw-dave")));
    nothing_private(&unseen, &tip);
    assert!(unseen.iter().all(|answer| answer.status == 503), "{unseen:?}");
    as_user(ALICE).mirror(&scene.url("auth/private.git"), &scene.folder("alice")).ok();
    let bare = Request::refs(&Tidegate::path("auth/private.git"));
    let bare = scene.tidegate().send(&bare);
    assert_eq!(bare.status, 401);
    assert!(bare.header("www-authenticate").is_some_and(|value| value.starts_with("Basic")), "{bare:?}");
}

// While another's fetch is running, and by an id only the other may know.
#[test]
fn a_stranger_cannot_join_the_fetch_of_one_who_may() {
    let (scene, repository) = scene("refresh_every: 2m");
    let tip = repository.resolve("main");
    let path = Tidegate::path("auth+slow+drippack/private.git");
    let body = pkt::v2("fetch", &[format!("want {tip}"), "deepen 1".into(), "done".into()]);
    let request = Request::upload_pack(&path, body).v2();
    let address = scene.tidegate().address();
    thread::scope(|scope| {
        let allowed =
            scope.spawn(|| request.clone().header("Authorization", &basic(ALICE.0, ALICE.1)).send(address));
        let log = scene.upstream.log();
        eventually(SOON, "alice's fetch is under way", || (log.count(Kind::Fetch) > 0).then_some(()));
        let strangers = [
            request.clone(),
            request.clone().header("Authorization", &basic(BOB.0, BOB.1)),
            request.clone().header("Authorization", &basic(ALICE.0, "wrong")),
        ];
        for stranger in strangers {
            nothing_private(&[stranger.send(address)], &tip);
        }
        let allowed = allowed.join().expect("alice's client ends");
        assert!(FetchAnswer::read(&allowed.body).objects() > Some(3), "{}", allowed.text());
    });
}

// An equal repository with equal ids, readable by bob, is not a way into alice's.
#[test]
fn an_equal_repository_opens_nothing() {
    let (upstream, _) = guarded(Upstream::start());
    let twin = fixture::plain(&upstream, "twin");
    twin.commit("main", "the secret", &[("secret.txt", "the private bytes 4711\n")]);
    upstream.users().grant("bob", "twin");
    let tip = twin.resolve("main");
    let scene = Scene::before(upstream, |setup| setup);
    as_user(ALICE).mirror(&scene.url("auth/private.git"), &scene.folder("alice")).ok();
    let twin_url = scene.url("auth/twin.git");
    as_user(BOB).mirror(&twin_url, &scene.folder("bob")).ok();
    let bob = basic(BOB.0, BOB.1);
    nothing_private(&every_way(&scene, "private", &tip, Some(&bob)), &tip);
    // and what bob may not read through his own door either: an id only `private` has
    let (_, only) = (scene.upstream.log(), Repository::create(&scene.upstream.repository_path("private")));
    let alone = only.commit("main", "only here", &[("only.txt", "only\n")]);
    as_user(ALICE).run(std::path::Path::new("/"), &["ls-remote", &scene.url("auth/private.git")]).ok();
    let answers = every_way(&scene, "twin", &alone, Some(&bob));
    for answer in answers.iter().skip(3).take(3) {
        assert!(FetchAnswer::read(&answer.body).pack.is_empty(), "{}", answer.text());
    }
}

// A9, A10
#[test]
fn the_upstreams_401_403_and_404_reach_the_client_as_they_are() {
    let (scene, _) = scene("refresh_every: 2m");
    let url = scene.url("auth/private.git");
    let git = Git::new();
    assert!(git.list(&url).failed().stderr.contains("could not read Username"), "no prompt");
    assert!(as_user(BOB).list(&url).failed().stderr.contains("403"));
    let path = Tidegate::path("auth/private.git");
    let bare = scene.tidegate().send(&Request::refs(&path));
    assert_eq!(bare.status, 401);
    assert_eq!(bare.header("www-authenticate"), Some("Basic realm=\"git.test\""));
    let refused = scene.tidegate().send(&Request::refs(&path).header("Authorization", &basic(BOB.0, BOB.1)));
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("not for you, says the upstream"), "{}", refused.text());
    let missing = git.list(&scene.url("ok/nothing.git")).failed();
    assert!(missing.stderr.contains("not found"), "{}", missing.stderr);
    let gone = scene.tidegate().send(&Request::refs(&Tidegate::path("s404/plain.git")));
    assert!(gone.status == 404 && gone.text().contains("scripted 404"), "{}", gone.text());
    let Some(client) = gogit::GoGit::find("go-git's errors") else { return };
    let asked = client.list(&url).failed().stderr;
    assert!(asked.contains("authentication required"), "{asked}");
    let denied = client.clone().sending(BOB.0, BOB.1).list(&url).failed().stderr;
    assert!(denied.contains("authorization failed"), "{denied}");
    let missing = client.list(&scene.url("s404/plain.git")).failed().stderr;
    assert!(missing.contains("repository not found"), "{missing}");
}

#[test]
fn a_revoked_right_ends_within_the_verdicts_life_though_the_repository_is_held() {
    let (scene, _) = scene("refresh_every: 1s");
    let url = scene.url("auth/private.git");
    as_user(ALICE).mirror(&url, &scene.folder("alice")).ok();
    scene.upstream.users().revoke("alice", "private");
    eventually(SOON, "alice is refused with the upstream's own 403", || {
        let run = as_user(ALICE).list(&url);
        (run.code != 0 && run.stderr.contains("403")).then_some(())
    });
    scene.upstream.stop();
    as_user(ALICE).list(&url).failed();
}

#[test]
fn a_restart_during_an_outage_refuses_nobody_who_was_proven() {
    for gently in [true, false] {
        restart_during_an_outage(gently);
    }
}

fn restart_during_an_outage(gently: bool) {
    let (mut scene, _) = scene("refresh_every: 1s");
    let (private, open) = (scene.url("auth/private.git"), scene.url("auth/open.git"));
    let person = Git::new().with_helper(ALICE.0, ALICE.1);
    person.clone_into(&private, &scene.folder("before"), &[]).ok();
    Git::new().clone_into(&open, &scene.folder("before"), &[]).ok();
    if gently {
        scene.tidegate_mut().terminate();
    } else {
        // a verdict may take a moment to reach the disk: what was proven two seconds ago is there
        at_a_beat(Duration::from_secs(2), Duration::from_millis(500), |_| {
            person.list(&private).ok();
        });
    }
    scene.upstream.stop();
    scene.tidegate_mut().restart();
    person.clone_into(&private, &scene.folder("after"), &[]).ok();
    Git::new().clone_into(&open, &scene.folder("after"), &[]).ok();
    let stranger = as_user(BOB).list(&private).failed();
    assert!(stranger.stderr.contains("503"), "{}", stranger.stderr);
    // the same bytes whether we hold the repository or not
    let path = |name: &str| Tidegate::path(&format!("auth/{name}.git"));
    let ask = |name: &str| {
        let request = Request::refs(&path(name)).header("Authorization", &basic(BOB.0, BOB.1));
        let answer = scene.tidegate().send(&request);
        (answer.status, answer.text().replace(&path(name), "$X").replace(name, "$X"))
    };
    assert_eq!(ask("private"), ask("absent"));
}

#[test]
fn basic_passes_over_https_as_well() {
    let (upstream, _) = guarded(Upstream::start_tls());
    let root = upstream.authority().root().display().to_string();
    let own = Authority::new(&["127.0.0.1", "localhost"]);
    let scene =
        Scene::before(upstream, |setup| setup.line(&format!("ca: {{from_file: {root}}}")).tls(own.folder()));
    let url = scene.url("auth/private.git");
    let trusting = |git: Git| git.trusting(&own.root());
    for protocol in [0, 2] {
        let git = trusting(Git::speaking(protocol));
        git.clone().list(&url).failed();
        git.clone().with_helper(ALICE.0, ALICE.1).mirror(&url, &scene.folder("alice")).ok();
        git.clone().sending(ALICE.0, ALICE.1).mirror(&url, &scene.folder("alice")).ok();
        assert!(git.sending(BOB.0, BOB.1).list(&url).failed().stderr.contains("403"));
    }
    // HTTP/2 is spoken where it is offered
    let verbose = trusting(Git::new()).sending(ALICE.0, ALICE.1).env("GIT_CURL_VERBOSE", "1").list(&url).ok();
    assert!(verbose.stderr.contains("HTTP/2"), "no h2 by ALPN");
}

// K7
#[test]
fn a_cookie_is_an_identity_of_its_own() {
    let scene = Scene::start();
    let repository = fixture::plain(&scene.upstream, "plain");
    let tip = repository.resolve("main");
    let url = scene.url("cookie/plain.git");
    let holder = Git::new().config("http.extraHeader=Cookie: o=s3cret");
    holder.mirror(&url, &scene.folder("holder")).ok();
    let stranger = Git::new().list(&url).failed();
    assert!(!stranger.text().contains(&tip));
    for cookie in [None, Some("o=other")] {
        let mut request = Request::refs(&Tidegate::path("cookie/plain.git"));
        if let Some(cookie) = cookie {
            request = request.header("Cookie", cookie);
        }
        let answer = scene.tidegate().send(&request);
        assert_eq!(answer.status, 401, "{}", answer.text());
        assert!(!answer.text().contains(&tip) && answer.header("location").is_none());
    }
    holder.list(&url).ok();
}

#[test]
fn a_configured_credential_is_sent_at_once_and_proves_nobody() {
    let (upstream, repository) = guarded(Upstream::start());
    let tip = repository.resolve("main");
    let folder = tempfile::tempdir().expect("a folder for the secret");
    let file = folder.path().join("token");
    fs::write(&file, format!("{}\n", ALICE.1)).expect("the secret is written");
    upstream.users().set("carol", "pw-carol");
    upstream.users().grant("carol", "private");
    let line = format!("credential: {{username: alice, password: {{from_file: {}}}}}", file.display());
    let scene = Scene::before(upstream, |setup| setup.line(&line).git("refresh_every: 1s"));
    for stranger in [None, Some(basic(BOB.0, BOB.1))] {
        nothing_private(&every_way(&scene, "private", &tip, stranger.as_deref()), &tip);
    }
    Git::new()
        .sending("carol", "pw-carol")
        .mirror(&scene.url("auth/private.git"), &scene.folder("carol"))
        .ok();
    scene.upstream.log().clear();
    let log = scene.upstream.log();
    eventually(SOON, "background looks use the configured credential", || {
        log.entries().iter().any(|entry| entry.user.as_deref() == Some("alice")).then_some(())
    });
    assert!(log.entries().iter().all(|entry| entry.status != 401), "{}", log.text());
    // K28: the file's next content is used without a restart
    scene.upstream.users().set("alice", "pw-next");
    let next = folder.path().join("token.next");
    fs::write(&next, "pw-next\n").expect("the next secret is written");
    fs::rename(&next, &file).expect("the next secret takes its place");
    eventually(Duration::from_secs(75), "the new secret is used", || {
        let mut entries = log.entries().into_iter().rev();
        entries
            .find(|entry| entry.user.as_deref() == Some("alice"))
            .filter(|entry| entry.status == 200)
            .map(|_| ())
    });
}

#[test]
fn no_secret_is_ever_said_or_kept() {
    let (scene, _) = scene("refresh_every: 1s");
    let url = scene.url("auth/private.git");
    as_user(ALICE).mirror(&url, &scene.folder("alice")).ok();
    as_user(BOB).list(&url).failed();
    as_user(("alice", "pw-mistyped-5512")).list(&url).failed();
    Git::new().list(&scene.url("login/open.git")).failed();
    let holder = Git::new().config("http.extraHeader=Cookie: o=s3cret");
    holder.list(&scene.url("cookie/open.git")).ok();
    let userinfo = url.replace("http://", "http://alice:pw-alice-9f31@");
    Git::new().list(&userinfo).ok();
    let encoded = [ALICE, BOB].map(|(user, password)| basic(user, password).replace("Basic ", ""));
    let mut secrets = vec![ALICE.1, BOB.1, "pw-mistyped-5512", "s3cret", "secret-ticket-4711"];
    secrets.extend(encoded.iter().map(String::as_str));
    let places = [("the log", scene.tidegate().said()), ("/metrics", scene.tidegate().metrics())];
    for secret in secrets {
        for (place, text) in &places {
            assert!(!text.contains(secret), "{secret} is in {place}");
        }
        let found = std::process::Command::new("grep")
            .args(["-r", "-l", "-a", "-F", secret])
            .arg(scene.tidegate().data())
            .output()
            .expect("grep runs");
        let files = String::from_utf8_lossy(&found.stdout).into_owned();
        assert!(files.is_empty(), "{secret} is in {files}");
    }
}

// A refusal belongs to the credential that got it.
#[test]
fn a_refused_first_caller_does_not_spoil_it_for_the_second() {
    let (scene, _) = scene("refresh_every: 2m");
    scene.upstream.delay(Duration::from_millis(400));
    let list = Request::refs(&Tidegate::path("auth/private.git"));
    let address = scene.tidegate().address();
    thread::scope(|scope| {
        let bob = scope.spawn(|| list.clone().header("Authorization", &basic(BOB.0, BOB.1)).send(address));
        let log = scene.upstream.log();
        eventually(SOON, "bob's request is under way", || (!log.is_empty()).then_some(()));
        let alice = list.clone().header("Authorization", &basic(ALICE.0, ALICE.1)).send(address);
        assert_eq!(alice.status, 200, "{}", alice.text());
        assert_eq!(bob.join().expect("bob's client ends").status, 403);
    });
}

#[test]
fn garbage_logins_are_metered_before_they_get_us_banned() {
    let (scene, _) = scene("refresh_every: 2m");
    let path = Tidegate::path("auth/private.git");
    as_user(ALICE).list(&scene.url("auth/private.git")).ok();
    Git::new().list(&scene.url("auth/open.git")).ok();
    let garbage = |number: u32| {
        let password = format!("guess-{number}");
        scene.tidegate().send(&Request::refs(&path).header("Authorization", &basic("alice", &password)))
    };
    let answers: Vec<Answer> = (0..40).map(garbage).collect();
    assert!(answers.iter().all(|answer| matches!(answer.status, 401 | 429)), "{answers:?}");
    let last = &answers[39];
    assert_eq!(last.status, 429, "{}", last.text());
    assert!(last.header("retry-after").is_some_and(|text| text.parse::<u64>().is_ok()), "{last:?}");
    let refused = scene.upstream.log().entries().iter().filter(|entry| entry.status == 401).count();
    assert!(refused <= 14, "{refused} refusals reached the upstream");
    // who was proven, and readers of what is public, never notice
    as_user(ALICE).list(&scene.url("auth/private.git")).ok();
    Git::new().list(&scene.url("auth/open.git")).ok();
}

#[test]
fn no_credential_follows_a_redirect_to_another_host() {
    let far = Upstream::start();
    fixture::plain(&far, "plain");
    let far_host = format!("localhost:{}", far.address().port());
    for allowed in [false, true] {
        let line = format!("redirects_to: ['{far_host}']");
        let scene = Scene::before(Upstream::start(), |setup| if allowed { setup.line(&line) } else { setup });
        scene.upstream.send_elsewhere(&format!("http://{far_host}"));
        far.log().clear();
        let git = as_user(ALICE).config("http.extraHeader=Cookie: o=s3cret");
        let run = git.list(&scene.url("elsewhere/plain.git"));
        // an answer from elsewhere proves nobody: allowed or not, a private caller is refused
        assert!(run.code != 0 && (allowed || far.log().is_empty()), "{}", far.log().text());
        for entry in far.log().entries() {
            assert!(entry.user.is_none() && !entry.headers.contains_key("cookie"), "{entry:?}");
        }
    }
}

#[test]
fn guesses_at_the_same_time_and_through_other_requests_are_metered_as_well() {
    let (scene, _) = scene("refresh_every: 2m");
    scene.upstream.delay(Duration::from_millis(200));
    let address = scene.tidegate().address();
    let guess = |number: usize| {
        let request = Request::refs(&Tidegate::path("auth/private.git"));
        request.header("Authorization", &basic("alice", &format!("guess-{number}"))).send(address).status
    };
    let statuses: Vec<u16> = thread::scope(|scope| {
        let all: Vec<_> = (0..40).map(|number| scope.spawn(move || guess(number))).collect();
        all.into_iter().map(|one| one.join().expect("it is answered")).collect()
    });
    assert!(statuses.iter().all(|status| matches!(status, 401 | 429)), "{statuses:?}");
    let refused = || scene.upstream.log().entries().iter().filter(|entry| entry.status == 401).count();
    assert!(refused() <= 10, "{} refusals reached the upstream", refused());
    // a push's first request is no way around it
    scene.upstream.log().clear();
    let path = Tidegate::path("auth/private.git/info/refs?service=git-receive-pack");
    for number in 0..20 {
        let request = Request::get(&path).header("Authorization", &basic("bob", &format!("guess-{number}")));
        let answer = scene.tidegate().send(&request);
        assert!(answer.status == 429 && answer.header("retry-after").is_some(), "{answer:?}");
    }
    // nor is what no room reads
    for number in 0..20 {
        let request = Request::get(&Tidegate::path("auth/private.git/HEAD"));
        let request = request.header("Authorization", &basic("bob", &format!("guess-{number}")));
        assert_eq!(scene.tidegate().send(&request).status, 429);
    }
    assert_eq!(refused(), 0);
}

#[test]
fn a_refused_fetch_ends_the_verdict_at_once() {
    let (upstream, repository) = guarded(Upstream::start());
    let tip = repository.resolve("main");
    let scene = Scene::before(upstream, |setup| setup.git("refresh_every: 10m"));
    let path = Tidegate::path("auth/private.git");
    let send = |request: Request| {
        scene.tidegate().send(&request.header("Authorization", &basic(ALICE.0, ALICE.1))).status
    };
    let list = || Request::upload_pack(&path, pkt::v2("ls-refs", &[])).v2();
    assert_eq!(send(list()), 200);
    scene.upstream.users().revoke("alice", "private");
    let fetch = pkt::v2("fetch", &[format!("want {tip}"), "done".into()]);
    assert_eq!(send(Request::upload_pack(&path, fetch).v2()), 403);
    assert_eq!(send(list()), 403);
}

#[test]
fn a_refused_configured_credential_takes_nothing_from_those_who_may_read() {
    let (upstream, repository) = guarded(Upstream::start());
    let folder = tempfile::tempdir().expect("a folder for the secret");
    let file = folder.path().join("token");
    fs::write(&file, BOB.1).expect("the secret is written");
    let line = format!("credential: {{username: bob, password: {{from_file: {}}}}}", file.display());
    let scene = Scene::before(upstream, |setup| setup.line(&line).git("refresh_every: 1s"));
    let url = scene.url("auth/private.git");
    as_user(ALICE).mirror(&url, &scene.folder("cold")).ok();
    let next = repository.commit("main", "the next", &[("secret.txt", "4712\n")]);
    eventually(SOON, "alice sees what moved", || {
        as_user(ALICE).list(&url).ok().text().contains(&next).then_some(())
    });
    as_user(ALICE).mirror(&url, &scene.folder("warm")).ok();
}

// Content is folded, verdicts are not: each spelling is asked for as it is written.
#[test]
fn each_spelling_is_judged_by_the_upstream_and_all_of_them_can_be_fetched() {
    let (upstream, repository) = guarded(Upstream::start());
    let tip = repository.resolve("main");
    let scene = Scene::before(upstream, |setup| {
        setup.line("names: {ignore_case: true, git_suffix: true}").git("refresh_every: 2m")
    });
    let as_alice =
        |request: Request| scene.tidegate().send(&request.header("Authorization", &basic(ALICE.0, ALICE.1)));
    // this upstream folds no case: PRIVATE is not alice's
    as_user(ALICE).list(&scene.url("auth/private.git")).ok();
    for other in ["auth/PRIVATE.git", "auth/private"] {
        let direct = Request::refs(&format!("/{other}")).header("Authorization", &basic(ALICE.0, ALICE.1));
        let direct = direct.send(scene.upstream.address()).status;
        let ours = as_alice(Request::refs(&Tidegate::path(other)).v2());
        assert_eq!(ours.status, direct, "{other}");
    }
    // this one does: all are one, in any order
    scene.upstream.users().grant("alice", "Private");
    for spelled in ["auth+fold/private.git", "auth+fold/Private.git"] {
        let path = Tidegate::path(spelled);
        assert_eq!(as_alice(Request::upload_pack(&path, pkt::v2("ls-refs", &[])).v2()).status, 200);
    }
    for spelled in ["auth+fold/private.git", "auth+fold/Private.git"] {
        let want = [format!("want {tip}"), "deepen 1".into(), "done".into()];
        let fetch = Request::upload_pack(&Tidegate::path(spelled), pkt::v2("fetch", &want)).v2();
        let answer = as_alice(fetch);
        assert!(answer.status == 200, "{spelled}: {} {}", answer.status, answer.text());
        assert!(FetchAnswer::read(&answer.body).objects().is_some(), "{spelled}: {}", answer.text());
    }
}

// What is passed through needs no refreshing, and no processor.
#[test]
fn a_repository_that_is_passed_through_costs_nothing_while_nobody_asks() {
    let scene = Scene::with(|setup| setup.git("refresh_every: 1s"));
    fixture::sha256(&scene.upstream);
    Git::new().list(&scene.url("ok/sha256.git")).ok();
    let ticks = || -> u64 {
        let pid = scene.tidegate().pid();
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).expect("it runs");
        let fields: Vec<&str> = stat.rsplit(')').next().expect("a name").split_whitespace().collect();
        fields[11].parse::<u64>().expect("ticks") + fields[12].parse::<u64>().expect("ticks")
    };
    let mut seen = Vec::new();
    at_a_beat(Duration::from_secs(5), Duration::from_secs(1), |_| seen.push(ticks()));
    let spent = seen[seen.len() - 1] - seen[2];
    assert!(spent < 40, "{spent} ticks of the processor in {} s", seen.len() - 3);
}

#[test]
fn who_waited_for_a_fetch_that_was_refused_to_another_takes_over() {
    let (upstream, repository) = guarded(Upstream::start());
    let tip = repository.resolve("main");
    upstream.users().set("carol", "pw-carol");
    upstream.users().grant("carol", "private");
    let scene = Scene::before(upstream, |setup| setup.git("refresh_every: 10m"));
    let path = Tidegate::path("auth/private.git");
    let fetch = pkt::v2("fetch", &[format!("want {tip}"), "deepen 1".into(), "done".into()]);
    let address = scene.tidegate().address();
    let send = |(user, password): (&str, &str), body: &[u8]| {
        let request = Request::upload_pack(&path, body.to_vec()).v2();
        request.header("Authorization", &basic(user, password)).send(address).status
    };
    let carol = ("carol", "pw-carol");
    for user in [ALICE, carol] {
        assert_eq!(send(user, &pkt::v2("ls-refs", &[])), 200);
    }
    scene.upstream.users().revoke("alice", "private");
    scene.upstream.delay(Duration::from_millis(500));
    scene.upstream.log().clear();
    thread::scope(|scope| {
        let alice = scope.spawn(|| send(ALICE, &fetch));
        eventually(SOON, "alice's fetch is under way", || (!scene.upstream.log().is_empty()).then_some(()));
        let others: Vec<_> = (0..3).map(|_| scope.spawn(|| send(carol, &fetch))).collect();
        for other in others {
            assert_eq!(other.join().expect("carol's client ends"), 200);
        }
        assert_eq!(alice.join().expect("alice's client ends"), 403);
    });
}
