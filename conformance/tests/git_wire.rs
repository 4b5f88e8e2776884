//! Requests as they stand on the wire: what every server of git must answer,
//! byte by byte.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use tidegate_conformance::pkt::{self, FetchAnswer};
use tidegate_conformance::raw::{self, Answer, Request};
use tidegate_conformance::scene::Door;
use tidegate_conformance::{Git, Outcome, Scene, Tidegate, fixture, pack};
use tokio::time::Instant;

const CAPABILITIES: &str = "multi_ack_detailed side-band-64k ofs-delta agent=go-git/5.x";

/// Sends a request through a door: `path` is `ok/plain.git`, the request is made for it.
fn send(scene: &Scene, door: &Door<'_>, path: &str, make: impl Fn(&str) -> Request) -> Answer {
    if door.is_direct() {
        make(&format!("/{path}")).send(scene.upstream.address())
    } else {
        make(&Tidegate::path(path)).send(scene.tidegate().address())
    }
}

fn fetched(outcome: &mut Outcome, label: &str, answer: &Answer, door: &Door<'_>) {
    let read = FetchAnswer::read(&answer.body);
    outcome.note(&format!("{label}: status"), answer.status.to_string());
    outcome.note(&format!("{label}: type"), answer.header("content-type").unwrap_or_default());
    outcome.note(&format!("{label}: lines"), read.lines.join("\n"));
    outcome.note(&format!("{label}: error"), read.error.clone().unwrap_or_default());
    outcome.note(&format!("{label}: objects"), format!("{:?}", read.objects()));
    if read.pack.len() > 32 {
        let ids = pack::objects(&read.pack, &door.folder(&label.replace([' ', ':'], "-")));
        outcome.note(&format!("{label}: ids"), ids.join("\n"));
    }
}

fn zipped(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).expect("a vector takes bytes");
    encoder.finish().expect("a vector takes bytes")
}

// K6 a
#[test]
fn a_want_of_a_nested_tag_brings_the_whole_chain_of_six_objects() {
    let scene = Scene::start();
    let repository = fixture::tags(&scene.upstream);
    let want = format!("want {}", repository.resolve("refs/tags/n3"));
    let outcome = scene.cold_and_warm(|door| {
        let mut outcome = Outcome::new();
        let answer = send(&scene, door, "ok/tags.git", |path| {
            Request::upload_pack(path, pkt::v0(std::slice::from_ref(&want), true))
        });
        let read = FetchAnswer::read(&answer.body);
        assert_eq!(read.objects(), Some(6), "{:?}", read.lines);
        fetched(&mut outcome, "n3", &answer, door);
        outcome
    });
    assert_ne!(outcome, Outcome::new());
}

// K6 b
#[test]
fn an_unknown_have_without_done_is_answered_nak_and_nothing_else() {
    let scene = Scene::start();
    let repository = fixture::tags(&scene.upstream);
    let want = format!("want {}", repository.resolve("refs/tags/n3"));
    let body =
        [pkt::v0(&[want], false), pkt::line(&format!("have {}", "1".repeat(40))), b"0000".to_vec()].concat();
    scene.cold_and_warm(|door| {
        let mut outcome = Outcome::new();
        let answer = send(&scene, door, "ok/tags.git", |path| Request::upload_pack(path, body.clone()));
        assert_eq!(answer.text(), "0008NAK\n");
        outcome.note("status", answer.status.to_string());
        outcome
    });
}

// K6 c
#[test]
fn wanting_what_one_has_is_answered_by_an_empty_pack() {
    let scene = Scene::start();
    let repository = fixture::tags(&scene.upstream);
    let tip = repository.resolve("refs/heads/main");
    let body =
        [pkt::v0(&[format!("want {tip}")], false), pkt::line(&format!("have {tip}")), pkt::line("done")]
            .concat();
    scene.cold_and_warm(|door| {
        let mut outcome = Outcome::new();
        let answer = send(&scene, door, "ok/tags.git", |path| Request::upload_pack(path, body.clone()));
        let read = FetchAnswer::read(&answer.body);
        assert_eq!((read.objects(), read.pack.len()), (Some(0), 32), "{}", answer.text());
        fetched(&mut outcome, "same", &answer, door);
        outcome
    });
}

// A14
#[test]
fn gzipped_and_chunked_bodies_mean_what_the_plain_ones_mean() {
    let scene = Scene::start();
    let repository = fixture::plain(&scene.upstream, "plain");
    let tip = repository.resolve("refs/heads/main");
    let old = pkt::v0(&[format!("want {tip} {CAPABILITIES}")], true);
    let new = pkt::v2("fetch", &[format!("want {tip}"), "ofs-delta".into(), "done".into()]);
    scene.cold_and_warm(|door| {
        let mut outcome = Outcome::new();
        for (version, body) in [("v0", &old), ("v2", &new)] {
            for form in ["plain", "gzip", "x-gzip", "chunked", "gzip and chunked"] {
                let answer = send(&scene, door, "ok/plain.git", |path| {
                    let zip = form.contains("gzip");
                    let bytes = if zip { zipped(body) } else { body.clone() };
                    let mut request = Request::upload_pack(path, bytes);
                    if zip {
                        request =
                            request.header("Content-Encoding", form.split(' ').next().unwrap_or_default());
                    }
                    if form.contains("chunked") && !door.is_direct() {
                        request = request.chunked();
                    }
                    if version == "v2" { request.v2() } else { request }
                });
                assert_eq!(answer.status, 200, "{version} {form}: {}", answer.text());
                fetched(&mut outcome, &format!("{version} {form}"), &answer, door);
            }
        }
        outcome
    });
}

// A14: git's probe before a large body carries no Git-Protocol.
#[test]
fn the_four_byte_probe_is_answered_200_and_empty() {
    let scene = Scene::start();
    fixture::plain(&scene.upstream, "plain");
    scene.cold_and_warm(|door| {
        let mut outcome = Outcome::new();
        let probe = send(&scene, door, "ok/plain.git", |path| Request::upload_pack(path, b"0000".to_vec()));
        assert_eq!((probe.status, probe.body.len()), (200, 0), "{}", probe.text());
        outcome.note("type", probe.header("content-type").unwrap_or_default());
        let push = send(&scene, door, "ok/plain.git", |path| {
            Request::post(&format!("{path}/git-receive-pack"), b"0000".to_vec())
                .header("Content-Type", "application/x-git-receive-pack-request")
        });
        outcome.note("receive-pack", format!("{} {}", push.status, push.body.len()));
        outcome
    });
}

// A14: a body over http.postBuffer, with the probe first.
#[test]
fn bodies_beyond_the_post_buffer_arrive_in_chunks() {
    for protocol in [0, 2] {
        let scene = Scene::start();
        fixture::many_refs(&scene.upstream, 2000);
        scene.cold_and_warm(|door| {
            let git = Git::speaking(protocol).config("http.postBuffer=66000");
            let mut outcome = Outcome::new();
            let folder = door.folder("clone");
            outcome.run("clone", &git.mirror(&door.url("ok/many.git"), &folder).ok(), door.base());
            outcome.repository("clone", &folder);
            outcome
        });
    }
}

// A14
#[test]
fn negotiation_over_many_rounds_ends_with_the_same_objects() {
    for protocol in 0..=2 {
        let scene = Scene::with(|setup| setup.git("refresh_every: 1s"));
        let repository = fixture::history(&scene.upstream, "history", 200);
        repository.set("refs/heads/main", "main~20");
        let tip = repository.resolve("main");
        let ahead = repository.resolve("side");
        scene.cold_and_warm(|door| {
            let git = Git::speaking(protocol);
            let folder = door.folder("clone");
            let url = door.url("ok/history.git");
            let mut outcome = Outcome::new();
            git.clone_into(&url, &folder, &["--single-branch", "--branch", "main", "--no-tags"]).ok();
            // three hundred commits that the server has never seen
            let mut stream = String::new();
            for turn in 0..300 {
                let date = 1_800_000_000 + turn;
                let from = if turn == 0 { format!("from {tip}\n") } else { String::new() };
                let _ = writeln!(
                    stream,
                    "commit refs/heads/mine\ncommitter B <b@x.test> {date} +0000\ndata 2\nm\n{from}"
                );
            }
            let file = door.folder("stream");
            std::fs::write(&file, stream).expect("the stream is written");
            let script = format!("git fast-import --quiet < {}", file.display());
            git.run(&folder, &["-c", &format!("alias.import=!{script}"), "import"]).ok();
            let run = git.run(&folder, &["fetch", "origin", "side"]).ok();
            outcome.run("fetch", &run, door.base());
            outcome.note("side", git.run(&folder, &["rev-parse", "FETCH_HEAD"]).text().trim());
            assert!(run.code == 0 && !ahead.is_empty());
            outcome.repository("clone", &folder);
            outcome
        });
    }
}

// B25: libgit2 ends its first POST after `deepen 1` and expects only the shallow section.
#[test]
fn a_shallow_post_in_two_steps_is_answered_in_two_steps() {
    let scene = Scene::start();
    let repository = fixture::plain(&scene.upstream, "plain");
    let tip = repository.resolve("refs/heads/main");
    // libgit2's capability list ends in a space and names no agent
    let want =
        pkt::line(&format!("want {tip} multi_ack_detailed side-band-64k include-tag thin-pack ofs-delta "));
    let first = [want, pkt::line("deepen 1"), b"0000".to_vec()].concat();
    let second = [first.clone(), pkt::line("done")].concat();
    scene.cold_and_warm(|door| {
        let mut outcome = Outcome::new();
        let answer = send(&scene, door, "ok/plain.git", |path| Request::upload_pack(path, first.clone()));
        assert_eq!(answer.text(), format!("0034shallow {tip}0000"), "{}", answer.text());
        let answer = send(&scene, door, "ok/plain.git", |path| Request::upload_pack(path, second.clone()));
        fetched(&mut outcome, "second", &answer, door);
        outcome
    });
}

// B26, and the like of it: what was not offered may not be used.
#[test]
fn a_pack_has_only_the_deltas_its_client_understands() {
    let scene = Scene::start();
    let repository = fixture::history(&scene.upstream, "history", 120);
    repository.git(&["repack", "-adfq", "--depth=20"]);
    let tip = repository.resolve("refs/heads/main");
    for version in [0, 2] {
        let outcome = scene.cold_and_warm(|door| {
            let mut outcome = Outcome::new();
            for offer in ["", "ofs-delta"] {
                let answer = send(&scene, door, "ok/history.git", |path| {
                    if version == 2 {
                        let mut lines = vec![format!("want {tip}"), "done".to_owned()];
                        lines.extend((!offer.is_empty()).then(|| offer.to_owned()));
                        Request::upload_pack(path, pkt::v2("fetch", &lines)).v2()
                    } else {
                        let want = format!("want {tip} side-band-64k {offer}").trim_end().to_owned();
                        Request::upload_pack(path, pkt::v0(&[want], true))
                    }
                });
                let read = FetchAnswer::read(&answer.body);
                let entries = pack::entries(&read.pack);
                assert!(offer == "ofs-delta" || entries.ofs_deltas == 0, "{entries:?}");
                fetched(&mut outcome, &format!("offer {offer}"), &answer, door);
            }
            outcome
        });
        assert_ne!(outcome, Outcome::new());
    }
}

#[test]
fn a_thin_pack_comes_only_to_those_who_ask_for_one() {
    let scene = Scene::start();
    let repository = fixture::history(&scene.upstream, "history", 120);
    let (tip, old) = (repository.resolve("main"), repository.resolve("main~5"));
    for thin in [false, true] {
        scene.cold_and_warm(|door| {
            let mut outcome = Outcome::new();
            let answer = send(&scene, door, "ok/history.git", |path| {
                let mut lines =
                    vec![format!("want {tip}"), format!("have {old}"), "ofs-delta".into(), "done".into()];
                lines.extend(thin.then(|| "thin-pack".to_owned()));
                Request::upload_pack(path, pkt::v2("fetch", &lines)).v2()
            });
            let read = FetchAnswer::read(&answer.body);
            outcome.note("error", read.error.clone().unwrap_or_default());
            if thin {
                // whatever the bases are, one who has `old` can complete it
                let copy = door.folder("has-old.git");
                Git::new().mirror(&scene.upstream.url("ok/history.git"), &copy).ok();
                let has_old = tidegate_conformance::Repository::create(&copy);
                pack::objects_on(&has_old, &read.pack);
            } else {
                fetched(&mut outcome, "whole", &answer, door);
            }
            outcome
        });
    }
}

// Capabilities a client did not ask for do not appear; without sideband the pack is bare.
#[test]
fn without_sideband_the_pack_follows_the_nak_bare() {
    let scene = Scene::start();
    let repository = fixture::plain(&scene.upstream, "plain");
    let tip = repository.resolve("refs/heads/main");
    scene.cold_and_warm(|door| {
        let mut outcome = Outcome::new();
        let answer = send(&scene, door, "ok/plain.git", |path| {
            Request::upload_pack(path, pkt::v0(&[format!("want {tip} ofs-delta")], true))
        });
        assert!(answer.body.starts_with(b"0008NAK\nPACK"), "{:?}", answer.body.get(..12));
        fetched(&mut outcome, "bare", &answer, door);
        outcome
    });
}

// ls-refs with and without prefixes, peel and symrefs
#[test]
fn ls_refs_answers_the_same_lines_for_every_argument() {
    let scene = Scene::start();
    fixture::plain(&scene.upstream, "plain");
    fixture::listed(&scene.upstream);
    let shapes: [&[&str]; 6] = [
        &[],
        &["peel", "symrefs"],
        &["peel", "symrefs", "unborn", "ref-prefix refs/heads/", "ref-prefix refs/tags/"],
        &["ref-prefix HEAD"],
        &["ref-prefix refs/heads/fea", "ref-prefix refs/pull/"],
        &["ref-prefix refs/nothing/"],
    ];
    scene.cold_and_warm(|door| {
        let mut outcome = Outcome::new();
        for repository in ["ok/plain.git", "ok/listed.git"] {
            for shape in shapes {
                let arguments: Vec<String> = shape.iter().map(ToString::to_string).collect();
                let body = pkt::v2("ls-refs", &arguments);
                let answer =
                    send(&scene, door, repository, |path| Request::upload_pack(path, body.clone()).v2());
                outcome.note(&format!("{repository} {shape:?}"), answer.text());
                outcome.note("type", answer.header("content-type").unwrap_or_default());
            }
        }
        outcome
    });
}

// An id nobody has: the words that Argo CD and git look for.
#[test]
fn an_unknown_want_is_not_our_ref_in_every_version() {
    let scene = Scene::start();
    fixture::plain(&scene.upstream, "plain");
    let nobody = "1".repeat(40);
    for version in 0..=2 {
        let answer = {
            let path = Tidegate::path("ok/plain.git");
            let want = format!("want {nobody}");
            let request = match version {
                2 => Request::upload_pack(&path, pkt::v2("fetch", &[want, "done".into()])).v2(),
                _ => Request::upload_pack(&path, pkt::v0(&[format!("{want} {CAPABILITIES}")], true))
                    .header("Git-Protocol", &format!("version={version}")),
            };
            scene.tidegate().send(&request)
        };
        let error = FetchAnswer::read(&answer.body).error.unwrap_or_default();
        assert!(
            error.contains(&format!("upload-pack: not our ref {nobody}")),
            "v{version}: {}",
            answer.text()
        );
    }
}

// K24
#[test]
fn expect_continue_is_answered_within_a_second() {
    let scene = Scene::start();
    let repository = fixture::plain(&scene.upstream, "plain");
    let want = format!("want {}", repository.resolve("main"));
    let body = pkt::v2("fetch", &[want, "done".into()]);
    for chunked in [false, true] {
        let mut request = Request::upload_pack(&Tidegate::path("ok/plain.git"), body.clone());
        request = request.v2().header("Expect", "100-continue");
        if chunked {
            request = request.chunked();
        }
        let bytes = request.bytes("tidegate");
        let end = bytes.windows(4).position(|part| part == b"\r\n\r\n").expect("a head") + 4;
        let mut stream = raw::connect(scene.tidegate().address());
        stream.write_all(&bytes[..end]).expect("the head is sent");
        let asked = Instant::now();
        let mut interim = Vec::new();
        while !interim.ends_with(b"\r\n\r\n") {
            let mut byte = [0_u8];
            stream.read_exact(&mut byte).expect("an interim answer");
            interim.push(byte[0]);
        }
        assert!(interim.starts_with(b"HTTP/1.1 100"), "{}", interim.escape_ascii());
        assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
        stream.write_all(&bytes[end..]).expect("the body is sent");
        let answer = raw::read_answer(&mut stream);
        assert!(FetchAnswer::read(&answer.body).objects() > Some(1), "{}", answer.text());
    }
}

// K24: a body of five mebibytes, as a client with very many refs sends it
#[test]
fn a_large_body_is_taken_in_after_the_client_was_told_to_continue() {
    let scene = Scene::start();
    let repository = fixture::plain(&scene.upstream, "plain");
    let mut lines = vec![format!("want {}", repository.resolve("main")); 110_000];
    lines.push("done".into());
    let body = pkt::v2("fetch", &lines);
    assert!(body.len() > 5 << 20);
    for chunked in [false, true] {
        let mut request = Request::upload_pack(&Tidegate::path("ok/plain.git"), body.clone());
        request = request.v2().header("Expect", "100-continue");
        if chunked {
            request = request.chunked();
        }
        let bytes = request.bytes("tidegate");
        let end = bytes.windows(4).position(|part| part == b"\r\n\r\n").expect("a head") + 4;
        let mut stream = raw::connect(scene.tidegate().address());
        stream.write_all(&bytes[..end]).expect("the head is sent");
        let mut interim = [0_u8; 25];
        std::io::Read::read_exact(&mut stream, &mut interim).expect("an interim answer");
        assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream.write_all(&bytes[end..]).expect("the body is sent");
        let answer = raw::read_answer(&mut stream);
        assert!(FetchAnswer::read(&answer.body).objects() > Some(1), "{}", answer.status);
    }
}

// K25: the git half of it
#[test]
fn compression_comes_only_to_those_who_asked() {
    let scene = Scene::start();
    fixture::many_refs(&scene.upstream, 500);
    let path = Tidegate::path("ok/many.git");
    let asked = |accept: Option<&str>| {
        let request = Request::refs(&path);
        let request = match accept {
            Some(accept) => request.header("Accept-Encoding", accept),
            None => request,
        };
        scene.tidegate().send(&request)
    };
    assert!(matches!(asked(Some("gzip")).header("content-encoding"), None | Some("gzip")));
    for accept in [None, Some("identity"), Some("gzip;q=0"), Some("deflate, br"), Some("")] {
        let answer = asked(accept);
        assert_eq!(answer.header("content-encoding"), None, "{accept:?}");
        assert!(answer.body.starts_with(b"001e# service=git-upload-pack\n"), "{accept:?}");
    }
}
