//! Killed at any moment, started again, drained, reconfigured: ready at once,
//! no wrong object, no hand needed.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use tidegate_conformance::pkt::{self, FetchAnswer};
use tidegate_conformance::raw::{self, Request};
use tidegate_conformance::upstream::Quirk;
use tidegate_conformance::upstream::tls::Authority;
use tidegate_conformance::{Git, Repository, Scene, Tidegate, Upstream, eventually, fixture, tools};
use tokio::time::Instant;

const READY: Duration = Duration::from_secs(5);
const SOON: Duration = Duration::from_secs(20);

/// The same moments in every run, spread over the first second and a half.
fn moments(count: u64) -> impl Iterator<Item = Duration> {
    (0..count).map(|turn| Duration::from_millis(turn * 7919 % 1500))
}

fn whole(scene: &Scene, repository: &Repository, path: &str) {
    let folder = scene.folder("check");
    Git::new().mirror(&scene.url(path), &folder).ok();
    let git = Git::new();
    git.run(&folder, &["fsck", "--strict"]).ok();
    let held = git.run(&folder, &["rev-parse", "refs/heads/main"]).text();
    let known = repository.git(&["rev-list", "refs/heads/main"]);
    assert!(known.contains(held.trim()), "{held} was never main");
}

#[test]
fn killed_at_twenty_moments_of_refresh_and_serving_it_is_ready_in_five_seconds() {
    let mut scene = Scene::with(|setup| setup.git("refresh_every: 1s"));
    let repository = fixture::history(&scene.upstream, "history", 150);
    whole(&scene, &repository, "ok/history.git");
    for (turn, moment) in moments(20).enumerate() {
        let text = format!("{turn}\n");
        repository.commit("main", &text, &[("turn.txt", &text)]);
        let url = scene.url("ok/history.git");
        let folder = scene.folder("during");
        let during = thread::spawn(move || Git::new().clone_into(&url, &folder, &["--bare"]));
        thread::sleep(moment);
        scene.tidegate_mut().kill();
        during.join().expect("the client ends");
        scene.tidegate_mut().spawn();
        scene.tidegate_mut().wait_until_ready(READY);
        if turn % 4 == 3 {
            // what was published is served without the upstream, too
            scene.upstream.stop();
            whole(&scene, &repository, "ok/history.git");
            scene.upstream.resume();
        }
        whole(&scene, &repository, "ok/history.git");
    }
    let tip = repository.resolve("main");
    eventually(SOON, "the last tip is listed", || {
        Git::new().list(&scene.url("ok/history.git")).ok().text().contains(&tip).then_some(())
    });
}

// K27
#[test]
fn killed_at_twenty_moments_of_the_first_mirror_it_serves_after_each() {
    let mut scene = Scene::start();
    let fixtures: Vec<Repository> =
        (0..4).map(|number| fixture::heavy(&scene.upstream, &format!("cold{number}"), 768)).collect();
    for (turn, moment) in moments(20).enumerate() {
        let number = turn % fixtures.len();
        let path = format!("drippack/cold{number}.git");
        let (url, folder) = (scene.url(&path), scene.folder("first"));
        let first = thread::spawn(move || Git::new().clone_into(&url, &folder, &["--bare"]));
        thread::sleep(moment);
        scene.tidegate_mut().kill();
        first.join().expect("the client ends");
        scene.tidegate_mut().spawn();
        scene.tidegate_mut().wait_until_ready(READY);
        whole(&scene, &fixtures[number], &format!("ok/cold{number}.git"));
        if turn >= 15 {
            whole(&scene, &fixtures[(turn + 1) % 4], &format!("ok/cold{}.git", (turn + 1) % 4));
        }
    }
    // nothing unfinished is left behind for good
    scene.upstream.stop();
    scene.tidegate_mut().restart();
    let data = scene.tidegate().data();
    let left = files(&data, &|path| path.contains("tmp") || path.contains("quarantine"));
    assert!(left.is_empty(), "{left:?}");
}

/// All files below `folder` whose path in it satisfies `wanted`.
fn files(folder: &Path, wanted: &dyn Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).into_iter().flatten().flatten() {
            let path = entry.path();
            let inside = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().into_owned();
            if path.is_dir() {
                folders.push(path);
            } else if wanted(&inside) {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn a_drain_lets_the_running_answer_end_and_takes_no_new_ones() {
    let mut scene = Scene::start();
    let repository = fixture::heavy(&scene.upstream, "big", 128);
    let path = Tidegate::path("drippack/big.git");
    let want = format!("want {}", repository.resolve("main"));
    let request = Request::upload_pack(&path, pkt::v2("fetch", &[want, "done".into()])).v2();
    let mut stream = raw::connect(scene.tidegate().address());
    stream.write_all(&request.bytes("tidegate")).expect("the request is sent");
    let mut first = vec![0_u8; 512];
    stream.read_exact(&mut first).expect("the answer has begun");
    let address = scene.tidegate().address();
    let reader = thread::spawn(move || {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("the answer ends");
        rest
    });
    let status = scene.tidegate_mut().terminate();
    assert!(status.success(), "{status}");
    let rest = reader.join().expect("the reader ends");
    assert!(rest.ends_with(b"0\r\n\r\n"), "the answer was cut");
    assert!(std::net::TcpStream::connect(address).is_err(), "it still listens");
}

#[test]
fn two_servers_do_not_share_one_data_directory() {
    let scene = Scene::start();
    let output = scene.tidegate().verb(&["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("data directory"), "{said}");
}

#[test]
fn it_executes_nothing_but_itself() {
    let Some(strace) = tools::on_path("executes nothing but itself", "strace") else { return };
    let mut scene = Scene::start();
    let repository = fixture::plain(&scene.upstream, "plain");
    let trace = scene.folder("trace");
    let words = [
        strace.into_os_string(),
        "-D".into(),
        "-f".into(),
        "-qq".into(),
        "-e".into(),
        "trace=execve,execveat".into(),
    ];
    let mut words: Vec<OsString> = words.into();
    words.extend(["-o".into(), trace.clone().into_os_string()]);
    scene.tidegate_mut().wrap(&words);
    scene.tidegate_mut().restart();
    for protocol in 0..=2 {
        Git::speaking(protocol).mirror(&scene.url("ok/plain.git"), &scene.folder("clone")).ok();
    }
    repository.commit("main", "more", &[("more.txt", "more\n")]);
    Git::new().list(&scene.url("ok/plain.git")).ok();
    scene.tidegate_mut().kill();
    let pid = fs::read_to_string(&trace).expect("strace wrote");
    let executed: Vec<&str> = pid.lines().filter(|line| line.contains("exec")).collect();
    assert_eq!(executed.len(), 1, "{executed:#?}");
    assert!(executed[0].contains("tidegate"), "{executed:?}");
}

#[test]
fn check_prints_every_problem_with_its_path() {
    let scene = Scene::start();
    scene.tidegate().edit_config("upstreams:\n", "no_such_key: 1\ngit: {refresh_every: 1ms}\nupstreams:\n");
    let output = scene.tidegate().verb(&["check"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    for part in ["no_such_key", "git.refresh_every"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    // the running server keeps the old file, and says so
    scene.tidegate().signal(Signal::HUP);
    eventually(SOON, "the bad file is logged", || {
        scene.tidegate().said().contains("no_such_key").then_some(())
    });
    assert_eq!(scene.tidegate().send(&Request::get("/-/readyz")).status, 200);
}

// K28
#[test]
fn a_changed_list_of_upstreams_and_certificate_take_effect_without_a_restart() {
    let upstream = Upstream::start();
    fixture::plain(&upstream, "plain");
    let first = Authority::new(&["127.0.0.1"]);
    let second = Authority::new(&["127.0.0.1"]);
    // a folder as Kubernetes mounts it: files behind a link that is swapped
    let mount = tempfile::tempdir().expect("a folder for the mount");
    let link = |target: &Path| {
        let next = mount.path().join("..next");
        std::os::unix::fs::symlink(target, &next).expect("a link");
        fs::rename(next, mount.path().join("..data")).expect("the link is swapped");
    };
    link(first.folder());
    for file in ["cert.pem", "key.pem"] {
        let target = Path::new("..data").join(file);
        std::os::unix::fs::symlink(target, mount.path().join(file)).expect("a link");
    }
    let scene = Scene::before(upstream, |setup| setup.tls(mount.path()));
    let list = |root: &Authority, url: &str| Git::new().trusting(&root.root()).list(url);
    let url = scene.url("ok/plain.git");
    list(&first, &url).ok();
    let other = url.replace("/git.test/", "/other.test/");
    list(&first, &other).failed();
    link(second.folder());
    let entry = format!(
        "upstreams:\n  - {{host: other.test, url: '{}', allow_private: true}}\n",
        scene.upstream.base()
    );
    scene.tidegate().edit_config("upstreams:\n", &entry);
    let limit = Duration::from_secs(75);
    let started = Instant::now();
    eventually(limit, "the new certificate is shown", || (list(&second, &url).code == 0).then_some(()));
    eventually(limit, "the new upstream is served", || (list(&second, &other).code == 0).then_some(()));
    assert!(started.elapsed() < limit);
}

#[test]
fn purge_and_explain_do_what_they_say() {
    let scene = Scene::start();
    fixture::plain(&scene.upstream, "plain");
    let url = scene.url("ok/plain.git");
    Git::new().mirror(&url, &scene.folder("warm")).ok();
    let explained = scene.tidegate().verb(&["explain", "https://git.test/ok/plain.git"]);
    assert!(explained.status.success(), "{explained:?}");
    assert!(String::from_utf8_lossy(&explained.stdout).contains("git.test"), "{explained:?}");
    let purged = scene.tidegate().verb(&["purge", "git.test/ok/plain.git"]);
    assert!(purged.status.success(), "{purged:?}");
    scene.upstream.stop();
    Git::new().list(&url).failed();
    scene.upstream.resume();
    eventually(SOON, "it is fetched anew", || (Git::new().list(&url).code == 0).then_some(()));
}

// A pack that rots on disk is never served.
#[test]
fn bytes_that_rotted_on_disk_reach_nobody() {
    let mut scene = Scene::start();
    let repository = fixture::heavy(&scene.upstream, "big", 256);
    whole(&scene, &repository, "ok/big.git");
    scene.tidegate_mut().kill();
    let data = scene.tidegate().data();
    for file in files(&data, &|path| !path.contains("redb")) {
        if fs::metadata(&file).is_ok_and(|found| found.len() < 100_000) {
            continue;
        }
        let mut bytes = fs::read(&file).expect("the file is read");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x55;
        let mut permissions = fs::metadata(&file).expect("the file is there").permissions();
        #[expect(clippy::permissions_set_readonly_false, reason = "a test writes into a read-only pack")]
        permissions.set_readonly(false);
        fs::set_permissions(&file, permissions).expect("the file may be written");
        fs::write(&file, bytes).expect("the file is spoilt");
    }
    scene.tidegate_mut().restart();
    scene.upstream.force(&[Quirk::Status(503)]);
    let folder = scene.folder("spoilt");
    let run = Git::new().clone_into(&scene.url("ok/big.git"), &folder, &["--bare"]);
    assert!(run.code != 0, "spoilt bytes were served");
    scene.upstream.force(&[]);
    let path = Tidegate::path("ok/big.git");
    let want = format!("want {}", repository.resolve("main"));
    let request = Request::upload_pack(&path, pkt::v2("fetch", &[want, "done".into()])).v2();
    let answer = scene.tidegate().send(&request);
    let read = FetchAnswer::read(&answer.body);
    assert!(!answer.whole || read.error.is_some() || answer.status != 200 || read.objects() > Some(4));
}

// B31
#[test]
fn a_superseded_tip_outlives_the_process_in_every_version_and_no_generation_comes_again() {
    let mut scene = Scene::with(|setup| setup.git("revalidate: always"));
    let repository = fixture::plain(&scene.upstream, "plain");
    let old = repository.commit("main", "to be lost", &[("lost.txt", "lost\n")]);
    let (url, path) = (scene.url("ok/plain.git"), Tidegate::path("ok/plain.git"));
    Git::new().mirror(&url, &scene.folder("warm")).ok();
    repository.set("refs/heads/main", "main~2");
    repository.commit("main", "in its place", &[("place.txt", "new\n")]);
    Git::new().list(&url).ok();
    repository.prune();
    let generation = |scene: &Scene| {
        let answer = scene.tidegate().send(&Request::refs(&path));
        answer.header("tidegate-generation").and_then(|number| number.parse::<u64>().ok())
    };
    let mut last = generation(&scene).expect("a generation is named");
    for protocol in 0..=2 {
        scene.tidegate_mut().kill();
        scene.tidegate_mut().restart();
        let (git, folder) = (Git::speaking(protocol), scene.folder("client"));
        git.run(&std::env::temp_dir(), &["init", "-q", &folder.to_string_lossy()]).ok();
        git.run(&folder, &["fetch", "-q", &url, &old]).ok();
        git.run(&folder, &["fsck", "--strict"]).ok();
        repository.commit("main", "one more", &[("more.txt", &format!("{protocol}\n"))]);
        let now = generation(&scene).expect("a generation is named");
        assert!(now > last, "generation {now} after {last}");
        last = now;
    }
}
