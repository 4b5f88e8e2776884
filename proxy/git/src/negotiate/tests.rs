//! Stock git is the judge: the same bodies go to `git upload-pack
//! --stateless-rpc` and through our parsers, and the answers have to agree
//! byte for byte up to the pack.

use std::{
    collections::{HashMap, HashSet},
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
};

use gix_hash::Kind;
use tempfile::TempDir;

use super::*;
use crate::{
    refs::RefTable,
    wire::{
        advertisement,
        answer::{AnswerParser, Event, ShallowInfo},
        capabilities::Feature,
        fetch,
        fetch::Sideband,
        ls_refs, pkt, request,
    },
};

/// A repository of stock git, and its commits as we would know them.
struct Upstream {
    folder: TempDir,
    objects: HashSet<ObjectId>,
    parents: HashMap<ObjectId, Vec<ObjectId>>,
    names: HashMap<String, ObjectId>,
}

impl Upstream {
    /// Two lines that part at `c3`, a root of its own, nested tags.
    fn new() -> Self {
        let mut upstream = Self {
            folder: TempDir::new().unwrap(),
            objects: HashSet::new(),
            parents: HashMap::new(),
            names: HashMap::new(),
        };
        upstream.git(&["init", "-q", "-b", "main", "."]);
        for n in 1..=8 {
            let (branch, start) = match n {
                1 => ("main", None),
                6 => ("side", Some("main~2")),
                8 => ("other", None),
                _ => ("", None),
            };
            match (branch, start) {
                ("other", _) => upstream.git(&["checkout", "-q", "--orphan", "other"]),
                (branch, Some(start)) => upstream.git(&["checkout", "-q", "-b", branch, start]),
                _ => String::new(),
            };
            std::fs::write(upstream.path().join("file"), format!("{n}\n").repeat(50)).unwrap();
            upstream.git(&["add", "file"]);
            upstream.dated(n, &["commit", "-q", "-m", "change"]);
            let oid = upstream.oid("HEAD");
            upstream.names.insert(format!("c{n}"), oid);
        }
        upstream.git(&["checkout", "-q", "main"]);
        upstream.git(&["tag", "-a", "-m", "1", "n1", "main~1"]);
        upstream.git(&["tag", "-a", "-m", "2", "n2", "n1"]);
        upstream.git(&["tag", "light", "main"]);
        upstream.git(&["symbolic-ref", "refs/remotes/o/HEAD", "refs/heads/side"]);
        for key in ["allowAnySHA1InWant", "allowFilter", "allowRefInWant"] {
            upstream.git(&["config", &format!("uploadpack.{key}"), "true"]);
        }
        let tag = upstream.oid("n2");
        upstream.names.insert("n2".to_owned(), tag);
        for (n, name) in ["x1", "x2", "x3"].into_iter().enumerate() {
            let oid = ObjectId::from_bytes_or_panic(&[u8::try_from(n).unwrap() + 200; 20]);
            upstream.names.insert(name.to_owned(), oid);
        }
        upstream.look();
        upstream
    }

    fn look(&mut self) {
        let all = self.git(&["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"]);
        self.objects = all.lines().map(hex).collect();
        let list = self.git(&["rev-list", "--parents", "--all"]);
        for line in list.lines() {
            let mut oids = line.split(' ').map(hex);
            self.parents.insert(oids.next().unwrap(), oids.collect());
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    fn command(&self) -> Command {
        let mut command = Command::new("git");
        command.current_dir(self.path()).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.env("HOME", self.path()).env("GIT_CONFIG_NOSYSTEM", "1");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "a").env(format!("GIT_{who}_EMAIL"), "a@example.com");
        }
        command
    }

    fn git(&self, args: &[&str]) -> String {
        self.dated(0, args)
    }

    fn dated(&self, n: u64, args: &[&str]) -> String {
        let date = format!("{} +0000", 1_700_000_000 + n * 100);
        let mut command = self.command();
        command.env("GIT_COMMITTER_DATE", &date).env("GIT_AUTHOR_DATE", &date);
        let output = command.args(args).output().unwrap();
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn oid(&self, name: &str) -> ObjectId {
        hex(self.git(&["rev-parse", name]).trim())
    }

    fn advertise(&self, version: Version) -> Vec<u8> {
        let mut command = self.command();
        if let Some(value) = version.as_header() {
            command.env("GIT_PROTOCOL", value);
        }
        command.args(["upload-pack", "--http-backend-info-refs", "."]).output().unwrap().stdout
    }

    /// What stock git answers to this body.
    fn post(&self, version: Version, body: &[u8]) -> Vec<u8> {
        let mut command = self.command();
        if let Some(value) = version.as_header() {
            command.env("GIT_PROTOCOL", value);
        }
        command.args(["upload-pack", "--stateless-rpc", "."]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(body).unwrap();
        child.wait_with_output().unwrap().stdout
    }

    /// Whether every want reaches something the client has, as git counts it:
    /// the parents of a common commit are common too.
    fn ready(&self, wants: &[ObjectId], common: &[ObjectId]) -> bool {
        let parents = |oid: &ObjectId| self.parents.get(oid).cloned().unwrap_or_default();
        let mut known: HashSet<ObjectId> = common.iter().copied().collect();
        known.extend(common.iter().flat_map(parents));
        wants.iter().all(|want| {
            let tagged = *want == self.names["n2"];
            let mut rest = vec![if tagged { self.names["c4"] } else { *want }];
            while let Some(oid) = rest.pop() {
                if known.contains(&oid) {
                    return true;
                }
                rest.extend(parents(&oid));
            }
            false
        })
    }

    fn negotiate(&self, request: &FetchRequest, version: Version) -> Negotiation {
        let has = |oid: &oid| self.objects.contains(oid);
        negotiate(request, version, has, |common| self.ready(&request.wants, common))
    }

    /// `want c5` becomes `want <oid>`; `.` is a flush, `|` a delimiter.
    fn body(&self, lines: &[String]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in lines {
            let words: Vec<String> = line
                .split(' ')
                .map(|word| self.names.get(word).map_or_else(|| word.to_owned(), ToString::to_string))
                .collect();
            match line.as_str() {
                "." => pkt::flush(&mut out),
                "|" => pkt::delim(&mut out),
                _ => pkt::line(&mut out, &[words.join(" ").as_bytes()]),
            }
        }
        out
    }

    /// Sends the body to git and to ourselves and compares all but the pack.
    fn compare(&self, version: Version, lines: &[String]) -> Negotiation {
        let body = self.body(lines);
        let theirs = self.post(version, &body);
        let request = match version {
            Version::V2 => {
                let mut found = request::parse(&body, Kind::Sha1).unwrap().unwrap();
                fetch::parse_v2(&mut found.args, found.agent, Kind::Sha1).unwrap()
            }
            _ => fetch::parse_v0(&body, Kind::Sha1).unwrap().unwrap(),
        };
        let mut ours = self.negotiate(&request, version);
        let mut parser = AnswerParser::new(version, &request, request.sideband, Kind::Sha1);
        let events = match theirs.as_slice() {
            [] => vec![Event::Head(Head::default())],
            theirs => {
                let mut events = parser.push(theirs).unwrap();
                events.extend(parser.finish().unwrap_or_else(|error| panic!("{lines:?}: {error}")));
                events
            }
        };
        let Some(Event::Head(head)) = events.first() else { panic!("{lines:?}: {events:?}") };
        // Walking history is not ours: take the cut from them.
        ours.head.shallow_info.clone_from(&head.shallow_info);
        assert_eq!(&ours.head, head, "{version:?} {lines:?}");
        let written = ours.head.encode(version);
        assert!(theirs.starts_with(&written), "{version:?} {lines:?}\n{}", theirs.escape_ascii());
        let packed = events.iter().any(|event| matches!(event, Event::Pack(_)));
        assert_eq!(packed, ours.send_pack, "{version:?} {lines:?}");
        if !ours.send_pack {
            assert_eq!(theirs, written, "{version:?} {lines:?}");
        }
        ours
    }
}

fn hex(text: &str) -> ObjectId {
    ObjectId::from_hex(text.as_bytes()).unwrap()
}

fn lines(text: &str) -> Vec<String> {
    text.split(" / ").map(ToOwned::to_owned).collect()
}

/// What clients may have: nothing, old things, new things, things we don't know.
const HAVES: [&[&str]; 9] = [
    &[],
    &["x1"],
    &["c1"],
    &["c5", "c4"],
    &["x1", "x2", "c3", "x3"],
    &["c3", "c7"],
    &["c7", "x1", "c5", "x2"],
    &["x1", "c8", "c2", "x2", "c2"],
    &["n2", "c4", "x1"],
];

const WANTS: [&[&str]; 4] = [&["c5"], &["c5", "c7"], &["c8", "c5"], &["n2"]];

#[test]
fn every_v0_negotiation_goes_as_with_git() {
    let upstream = Upstream::new();
    for words in [
        "multi_ack_detailed side-band-64k ofs-delta",
        "multi_ack_detailed no-done side-band-64k",
        "multi_ack side-band",
        "multi_ack no-done side-band-64k",
        "multi_ack_detailed no-done",
    ] {
        for wants in WANTS {
            for haves in HAVES {
                for end in ["done", "."] {
                    let mut body: Vec<String> = wants.iter().map(|want| format!("want {want}")).collect();
                    body[0] = format!("{} {words} no-progress", body[0]);
                    body.push(".".into());
                    body.extend(haves.iter().map(|have| format!("have {have}")));
                    body.push(end.into());
                    upstream.compare(Version::V0, &body);
                }
            }
        }
    }
}

#[test]
fn every_v2_negotiation_goes_as_with_git() {
    let upstream = Upstream::new();
    for wants in WANTS {
        for haves in HAVES {
            for end in [&[][..], &["done"], &["wait-for-done"], &["wait-for-done", "done"]] {
                let mut body = lines("command=fetch / object-format=sha1 / | / no-progress");
                body.extend(wants.iter().map(|want| format!("want {want}")));
                body.extend(haves.iter().map(|have| format!("have {have}")));
                body.extend(end.iter().map(ToString::to_string));
                body.push(".".into());
                upstream.compare(Version::V2, &body);
            }
        }
    }
}

#[test]
fn plain_acknowledgments_are_one_and_the_first() {
    let upstream = Upstream::new();
    for (text, pack) in [
        ("want c5 / . / have c5 / done", true),
        ("want c5 / . / have x1 / done", true),
        ("want c5 / . / done", true),
        ("want c5 side-band-64k no-progress / . / have x1 / have c3 / have x2 / done", true),
        ("want c5 / . / have x1 / .", false),
        ("want c5 / . / have c1 / .", false),
    ] {
        assert_eq!(upstream.compare(Version::V1, &lines(text)).send_pack, pack, "{text}");
    }
    // Git repeats itself for a parent of the first; the protocol has one word only.
    let request = fetch::parse_v0(&upstream.body(&lines("want c5 / . / have c4 / have c3 / .")), Kind::Sha1);
    let head = upstream.negotiate(&request.unwrap().unwrap(), Version::V0).head;
    assert_eq!(head.acknowledgments, [Acknowledgment::Ack(upstream.names["c4"], AckKind::Plain)]);
}

#[test]
fn an_unknown_have_without_done_is_answered_nak_and_nothing_else() {
    let upstream = Upstream::new();
    let ours = upstream.compare(Version::V0, &lines("want n2 / . / have x1 / ."));
    assert_eq!(ours.head.encode(Version::V0), b"0008NAK\n");
    let ours = upstream.compare(Version::V0, &lines("want c5 / . / have c5 / done"));
    assert_eq!(ours.head.encode(Version::V0), format!("0031ACK {}\n", upstream.names["c5"]).into_bytes());
    assert_eq!(ours.common, [upstream.names["c5"]]);
}

#[test]
fn cut_histories_are_answered_where_git_answers_them() {
    let upstream = Upstream::new();
    for (version, text) in [
        (Version::V0, "want c5 multi_ack_detailed side-band-64k no-progress / deepen 1 / . / done"),
        (Version::V0, "want c5 multi_ack_detailed side-band-64k no-progress / deepen 1 / ."),
        (
            Version::V0,
            "want c5 multi_ack_detailed side-band-64k no-progress / shallow c3 / . / have c3 / done",
        ),
        (Version::V0, "want c5 no-progress deepen-relative / shallow c4 / deepen 1 / . / have c5 / done"),
        (Version::V0, "want c5 side-band / deepen-since 1700000350 / . / done"),
        (Version::V2, "command=fetch / | / no-progress / deepen 2 / want c5 / done / ."),
        (Version::V2, "command=fetch / | / no-progress / shallow c3 / want c5 / have c3 / done / ."),
        (Version::V2, "command=fetch / | / no-progress / shallow c3 / deepen 1 / want c5 / have c3 / ."),
        (Version::V2, "command=fetch / | / no-progress / deepen-not light / want c7 / done / ."),
    ] {
        let ours = upstream.compare(version, &lines(text));
        let body = upstream.body(&lines(text));
        let request = match version {
            Version::V2 => {
                let mut found = request::parse(&body, Kind::Sha1).unwrap().unwrap();
                fetch::parse_v2(&mut found.args, None, Kind::Sha1).unwrap()
            }
            _ => fetch::parse_v0(&body, Kind::Sha1).unwrap().unwrap(),
        };
        assert_eq!(ours.head.shallow_info.is_some(), request.has_shallow_section(version), "{text}");
    }
}

#[test]
fn a_request_that_wants_nothing_gets_nothing() {
    let upstream = Upstream::new();
    let ours = upstream.compare(Version::V2, &lines("command=fetch / | / have c1 / ."));
    assert!(!ours.send_pack && ours.head == Head::default());
    let ours =
        upstream.compare(Version::V2, &lines("command=fetch / | / wait-for-done / have c1 / have x1 / ."));
    assert_eq!(ours.head.acknowledgments, [Acknowledgment::Ack(upstream.names["c1"], AckKind::Plain)]);
    assert_eq!(upstream.post(Version::V0, b"0000"), b"");
    assert_eq!(fetch::parse_v0(b"0000", Kind::Sha1), Ok(None));
    assert_eq!(upstream.post(Version::V2, b"0000"), b"");
}

#[test]
fn what_we_ask_git_understands_in_every_version() {
    let upstream = Upstream::new();
    let request = FetchRequest {
        wants: vec![upstream.names["c5"]],
        haves: vec![upstream.names["x1"], upstream.names["c3"]],
        done: true,
        thin_pack: true,
        ofs_delta: true,
        ack_mode: AckMode::Detailed,
        no_done: true,
        ..FetchRequest::default()
    };
    let v0 = advertisement::parse(&upstream.advertise(Version::V0)).unwrap().capabilities;
    assert!(v0.takes_any_want() && v0.has(Feature::Filter) && v0.has(Feature::NoDone));
    for version in [Version::V0, Version::V1, Version::V2] {
        let upstream_can = advertisement::parse(&upstream.advertise(version)).unwrap().capabilities;
        assert_eq!(upstream_can.version(), version);
        let body = request.encode(&upstream_can).unwrap();
        let sideband = request.upstream_sideband(&upstream_can);
        assert_eq!(sideband, Sideband::Large);
        let mut parser = AnswerParser::new(version, &request, sideband, Kind::Sha1);
        let mut events = parser.push(&upstream.post(version, &body)).unwrap();
        events.extend(parser.finish().unwrap());
        let pack: Vec<u8> = events
            .iter()
            .filter_map(|event| if let Event::Pack(bytes) = event { Some(&bytes[..]) } else { None })
            .collect::<Vec<_>>()
            .concat();
        // Two commits, two trees, two blobs.
        assert_eq!(pack[..12], *b"PACK\0\0\0\x02\0\0\0\x06", "{version:?}");
        assert_eq!(events.last(), Some(&Event::End));
    }
}

#[test]
fn git_lists_the_refs_we_list() {
    let upstream = Upstream::new();
    let ask = |request: &ls_refs::Request| {
        let upstream_can = advertisement::parse(&upstream.advertise(Version::V2)).unwrap().capabilities;
        upstream.post(Version::V2, &request.encode(&upstream_can))
    };
    let full = ask(&ls_refs::Request::full(&[]));
    let table = ls_refs::parse_answer(&full, Kind::Sha1).unwrap();
    assert_eq!(table.get(b"refs/tags/n2").unwrap().peeled, Some(upstream.names["c4"]));
    let shown = |_: &[u8]| false;
    for request in [
        ls_refs::Request::full(&[]),
        ls_refs::Request::full(&[b"refs/tags/", b"HEAD"]),
        ls_refs::Request::full(&[b"refs/tags/n", b"refs/tags/n1", b"refs/h"]),
        ls_refs::Request { peel: true, ..ls_refs::Request::default() },
        ls_refs::Request { symrefs: true, ..ls_refs::Request::default() },
    ] {
        assert_eq!(request.answer(&table, &shown), ask(&request), "{request:?}");
    }
    for version in [Version::V0, Version::V1] {
        same_advertisement(&upstream, &table, version);
    }
    upstream.git(&["symbolic-ref", "HEAD", "refs/heads/gone"]);
    let table = ls_refs::parse_answer(&ask(&ls_refs::Request::full(&[])), Kind::Sha1).unwrap();
    assert!(matches!(table.head(), Some(crate::refs::Head::Unborn { .. })));
    same_advertisement(&upstream, &table, Version::V0);
    let without = ls_refs::Request { symrefs: true, ..ls_refs::Request::default() };
    assert_eq!(without.answer(&table, &shown), ask(&without));
    upstream.git(&["checkout", "-q", "--detach", "main"]);
    let table = ls_refs::parse_answer(&ask(&ls_refs::Request::full(&[])), Kind::Sha1).unwrap();
    same_advertisement(&upstream, &table, Version::V0);
}

/// Compares lines, and where the words say HEAD is.
fn same_advertisement(upstream: &Upstream, table: &RefTable, version: Version) {
    let theirs = upstream.advertise(version);
    let ours = advertisement::encode(table, version, &|_| false);
    // Git's program leaves the service line to its web server.
    let ours = &ours[b"001e# service=git-upload-pack\n0000".len()..];
    assert_eq!(same_but_words(ours), same_but_words(&theirs));
    let symrefs = |body: &[u8]| {
        let words = String::from_utf8_lossy(body);
        let found = words.split(' ').filter(|word| word.starts_with("symref="));
        found.map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(symrefs(ours), symrefs(&theirs));
    let (theirs, ours) = (advertisement::parse(&theirs).unwrap(), advertisement::parse(ours).unwrap());
    assert_eq!(theirs.refs, ours.refs);
}

/// The lines of an answer, without the capabilities behind the first ref.
fn same_but_words(body: &[u8]) -> Vec<Vec<u8>> {
    let mut reader = pkt::Reader::new(body);
    let mut lines = Vec::new();
    while let Some(packet) = reader.packet().unwrap() {
        lines.push(match packet {
            pkt::Packet::Data(line) => {
                line.split(|byte| *byte == 0).next().unwrap().trim_ascii_end().to_vec()
            }
            _ => b"0000".to_vec(),
        });
    }
    lines
}

#[test]
fn wanted_refs_and_a_cut_are_both_understood() {
    let upstream = Upstream::new();
    let text = "command=fetch / | / no-progress / deepen 1 / want-ref refs/heads/main / done / .";
    let body = upstream.body(&lines(text));
    let theirs = upstream.post(Version::V2, &body);
    let request = FetchRequest { done: true, ..FetchRequest::default() };
    let mut parser = AnswerParser::new(Version::V2, &request, Sideband::Large, Kind::Sha1);
    let events = parser.push(&theirs).unwrap();
    let Some(Event::Head(head)) = events.first() else { panic!("{events:?}") };
    assert_eq!(head.wanted_refs[0].name, b"refs/heads/main");
    let cut = ShallowInfo { shallow: vec![upstream.names["c5"]], unshallow: Vec::new() };
    assert_eq!(head.shallow_info, Some(cut));
}
