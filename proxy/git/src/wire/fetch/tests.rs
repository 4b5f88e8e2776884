//! Requests as clients really send them, and what we write being read back.

use gix_object::Kind as ObjectKind;
use proptest::prelude::*;

use super::*;
use crate::wire::{
    capabilities::{Capabilities, Feature, UPSTREAM_AGENT},
    error::Unsupported,
    request,
};

const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

fn oid(hex: &str) -> ObjectId {
    ObjectId::from_hex(hex.as_bytes()).unwrap()
}

/// `.` is a flush, `|` a delimiter, anything else a line.
fn body<S: AsRef<str>>(lines: &[S]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in lines {
        match line.as_ref() {
            "." => pkt::flush(&mut out),
            "|" => pkt::delim(&mut out),
            line => pkt::line(&mut out, &[line.as_bytes()]),
        }
    }
    out
}

fn v0<S: AsRef<str>>(lines: &[S]) -> Result<Option<FetchRequest>, RequestError> {
    parse_v0(&body(lines), Kind::Sha1)
}

fn v2(lines: &[&str]) -> Result<FetchRequest, RequestError> {
    parse_v2(&mut Reader::new(&body(lines)), None, Kind::Sha1)
}

#[test]
fn flux_clones_one_branch_at_depth_one() {
    let want =
        format!("want {A} multi_ack_detailed side-band-64k ofs-delta agent=go-git/5.x shallow no-progress");
    let found = v0(&[want.as_str(), "deepen 1", ".", "done"]).unwrap().unwrap();
    assert_eq!(found.wants, [oid(A)]);
    assert_eq!(found.deepen, Some(Deepen::Depth { n: 1, relative: false }));
    assert_eq!((found.sideband, found.ack_mode), (Sideband::Large, AckMode::Detailed));
    assert!(found.done && found.ofs_delta && found.no_progress && !found.thin_pack && !found.no_done);
    assert_eq!(found.agent.as_deref(), Some(&b"go-git/5.x"[..]));
    assert!(!found.ended_after_deepen && found.has_shallow_section(Version::V0));
}

#[test]
fn libgit2_stops_after_the_depth_and_asks_again() {
    let want = format!("want {A} multi_ack_detailed side-band-64k include-tag thin-pack ofs-delta ");
    let first = v0(&[want.as_str(), "deepen 1", "."]).unwrap().unwrap();
    assert!(first.ended_after_deepen && !first.done && first.haves.is_empty());
    let second = v0(&[want.as_str(), "deepen 1", ".", "done"]).unwrap().unwrap();
    assert!(!second.ended_after_deepen && second.done);
}

#[test]
fn a_probe_wants_nothing() {
    assert_eq!(parse_v0(b"", Kind::Sha1), Ok(None));
    assert_eq!(parse_v0(b"0000", Kind::Sha1), Ok(None));
}

#[test]
fn a_round_ends_at_its_flush_and_nothing_behind_it_counts() {
    let lines = [format!("want {A}"), ".".into(), format!("have {B}"), ".".into(), "done".into()];
    let found = v0(&lines).unwrap().unwrap();
    assert_eq!((found.haves.as_slice(), found.done), (&[oid(B)][..], false));
    assert_eq!((found.sideband, found.ack_mode), (Sideband::None, AckMode::Single));
}

#[test]
fn wants_and_shallows_may_come_twice_and_count_once() {
    let lines = [format!("want {A} side-band"), format!("want {A}"), format!("want {B}")];
    let shallow = [format!("shallow {A}"), format!("shallow {A}"), ".".into(), "done".into()];
    let found = v0(&[&lines[..], &shallow].concat()).unwrap().unwrap();
    assert_eq!((found.wants.len(), found.shallows.len(), found.sideband), (2, 1, Sideband::Small));
}

#[test]
fn a_v2_request_has_every_argument() {
    let found = v2(&[
        "thin-pack",
        "no-progress",
        "include-tag",
        "ofs-delta",
        &format!("shallow {B}"),
        "deepen 2147483647",
        "deepen-relative",
        "filter blob:none",
        &format!("want {A}"),
        "want-ref refs/heads/main",
        &format!("have {B}"),
        "wait-for-done",
        "packfile-uris https",
        "done",
        ".",
    ])
    .unwrap();
    assert_eq!(found.deepen, Some(Deepen::Depth { n: INFINITE_DEPTH, relative: true }));
    assert_eq!(found.filter, Some(Filter::BlobNone));
    assert_eq!(found.want_refs, [b"refs/heads/main".to_vec()]);
    assert!(found.wait_for_done && found.done && found.thin_pack && found.include_tag);
    assert_eq!((found.sideband, found.no_done), (Sideband::Large, true));
}

#[test]
fn depth_zero_is_no_depth() {
    assert_eq!(v2(&["deepen 0", "."]).unwrap().deepen, None);
    assert_eq!(
        v2(&["deepen 99999999999", "."]).unwrap().deepen,
        v2(&["deepen 2147483647", "."]).unwrap().deepen
    );
}

#[test]
fn a_date_and_refs_combine_but_not_with_a_depth() {
    let found = v2(&["deepen-since 1700000000", "deepen-not main", "deepen-not refs/tags/v1", "."]).unwrap();
    let not = vec![b"main".to_vec(), b"refs/tags/v1".to_vec()];
    assert_eq!(found.deepen, Some(Deepen::Cutoff { since: Some(1_700_000_000), not }));
    assert_eq!(v2(&["deepen 1", "deepen-not main", "."]), Err(RequestError::TwoDepths));
}

#[test]
fn what_makes_no_sense_is_refused_in_words() {
    for (lines, reason) in [
        (vec!["want zz", "."], "cannot read the line 'want zz'"),
        (vec!["have zz", "."], "cannot read the line 'have zz'"),
        (vec!["deepen -1", "."], "cannot read the line 'deepen -1'"),
        (vec!["deepen-since now", "."], "cannot read"),
        (vec!["shallow", "."], "cannot read"),
        (vec!["sideband-all", "."], "unexpected line: 'sideband-all'"),
        (vec!["done now", "."], "unexpected line"),
        (vec!["filter blob:none", "filter tree:0", "."], "another one was given"),
        (vec!["filter sparse:oid=x", "."], "sparse"),
        (vec!["done", "|", "."], "section marker"),
        (vec!["done"], "ends before its flush"),
    ] {
        let text = v2(&lines).unwrap_err().to_string();
        assert!(text.contains(reason), "{lines:?}: {text}");
    }
    let text = v0(&[format!("want {A}"), "filter blob:none".into(), ".".into()]).unwrap_err().to_string();
    assert!(text.contains("not negotiated"), "{text}");
    let text = v0(&[format!("want {A} object-format=sha256"), ".".into()]).unwrap_err().to_string();
    assert!(text.contains("mismatched object format"), "{text}");
}

#[test]
fn haves_are_capped_and_wants_are_not() {
    let hex = |n: usize| format!("{n:040x}");
    let mut lines: Vec<String> = (0..70_000).map(|n| format!("want {}", hex(n))).collect();
    lines.push(".".into());
    lines.extend((0..MOST_HAVES).map(|n| format!("have {}", hex(n))));
    lines.push(".".into());
    assert_eq!(v0(&lines).unwrap().unwrap().wants.len(), 70_000);
    lines.insert(70_001, format!("have {A}"));
    assert!(matches!(v0(&lines), Err(RequestError::TooMany { .. })));
}

#[test]
fn a_body_cut_anywhere_is_refused_or_stops_after_its_wants() {
    let whole = body(&[
        format!("want {A} side-band-64k"),
        "deepen 1".into(),
        ".".into(),
        format!("have {B}"),
        "done".into(),
    ]);
    let wants = body(&[format!("want {A} side-band-64k"), "deepen 1".into(), ".".into()]).len();
    for end in 1..whole.len() {
        match parse_v0(&whole[..end], Kind::Sha1) {
            Ok(Some(found)) => assert!(end == wants && found.ended_after_deepen, "cut at {end}"),
            Ok(None) => panic!("cut at {end} asks for nothing"),
            Err(_) => {}
        }
    }
}

#[test]
fn an_upstream_is_asked_only_for_what_it_has() {
    let bare = Capabilities::new(Version::V0, Kind::Sha1);
    let mut request = v2(&[&format!("want {A}"), "thin-pack", "ofs-delta", "done", "."]).unwrap();
    let text = request.encode(&bare).unwrap().escape_ascii().to_string();
    assert_eq!(text, format!("0032want {A}\\n00000009done\\n"));
    assert_eq!(request.upstream_sideband(&bare), Sideband::None);
    request.filter = Some(Filter::BlobNone);
    assert_eq!(request.encode(&bare), Err(Unsupported::Filter));
    request.filter = None;
    request.deepen = Some(Deepen::Depth { n: 1, relative: false });
    assert_eq!(request.encode(&bare), Err(Unsupported::Shallow));
    request.deepen = None;
    request.want_refs.push(b"HEAD".to_vec());
    assert_eq!(request.encode(&bare), Err(Unsupported::WantRef));
    assert_eq!(request.encode(&Capabilities::new(Version::V2, Kind::Sha1)), Err(Unsupported::WantRef));
}

fn everything(version: Version) -> Capabilities {
    use Feature as F;
    let mut all = Capabilities::new(version, Kind::Sha1).with(&[
        F::MultiAck,
        F::MultiAckDetailed,
        F::NoDone,
        F::ThinPack,
        F::SideBand64k,
        F::OfsDelta,
        F::Shallow,
        F::DeepenSince,
        F::DeepenNot,
        F::DeepenRelative,
        F::NoProgress,
        F::IncludeTag,
        F::Filter,
        F::Agent,
    ]);
    if version == Version::V2 {
        all = all.with(&[F::ObjectFormat, F::RefInWant, F::WaitForDone]);
    }
    all
}

fn oids(least: usize) -> impl Strategy<Value = Vec<ObjectId>> {
    prop::collection::btree_set(any::<[u8; 20]>(), least..5)
        .prop_map(|set| set.iter().map(|bytes| ObjectId::from_bytes_or_panic(bytes)).collect())
}

fn deepen() -> impl Strategy<Value = Option<Deepen>> {
    prop_oneof![
        Just(None),
        (1..=INFINITE_DEPTH, any::<bool>()).prop_map(|(n, relative)| Some(Deepen::Depth { n, relative })),
        (any::<u64>(), prop::collection::vec("[a-z/]{1,9}", 0..3)).prop_map(|(since, not)| {
            let not = not.into_iter().map(String::into_bytes).collect();
            Some(Deepen::Cutoff { since: Some(since), not })
        }),
    ]
}

fn filter() -> impl Strategy<Value = Option<Filter>> {
    let combined = vec![Filter::Tree(0), Filter::ObjectType(ObjectKind::Blob)];
    prop_oneof![Just(None), Just(Some(Filter::BlobLimit(9))), Just(Some(Filter::Combine(combined)))]
}

fn requests() -> impl Strategy<Value = FetchRequest> {
    (oids(1), oids(0), oids(0), deepen(), filter(), any::<[bool; 6]>()).prop_map(
        |(wants, haves, shallows, deepen, filter, on)| FetchRequest {
            wants,
            haves,
            shallows,
            deepen,
            filter,
            done: on[0],
            thin_pack: on[1],
            ofs_delta: on[2],
            include_tag: on[3],
            no_progress: on[4],
            no_done: true,
            sideband: Sideband::Large,
            ack_mode: AckMode::Detailed,
            agent: Some(UPSTREAM_AGENT.as_bytes().to_vec()),
            wait_for_done: false,
            ended_after_deepen: false,
            want_refs: Vec::new(),
        },
    )
}

proptest! {
    #[test]
    fn what_is_asked_of_a_v0_upstream_is_read_back(request in requests(), ended in any::<bool>()) {
        let mut request = request;
        if ended {
            (request.haves, request.done, request.ended_after_deepen) = (Vec::new(), false, true);
        }
        let body = request.encode(&everything(Version::V0)).unwrap();
        prop_assert_eq!(parse_v0(&body, Kind::Sha1), Ok(Some(request)));
    }

    #[test]
    fn what_is_asked_of_a_v2_upstream_is_read_back(request in requests(), wait in any::<bool>()) {
        let mut request = request;
        request.wait_for_done = wait;
        request.want_refs = vec![b"refs/heads/\xff".to_vec(), b"HEAD".to_vec()];
        let body = request.encode(&everything(Version::V2)).unwrap();
        let mut found = request::parse(&body, Kind::Sha1).unwrap().unwrap();
        prop_assert_eq!(parse_v2(&mut found.args, found.agent, Kind::Sha1), Ok(request));
        for end in 1..body.len() {
            let cut = request::parse(&body[..end], Kind::Sha1);
            let whole = cut.and_then(|found| parse_v2(&mut found.unwrap().args, None, Kind::Sha1));
            prop_assert!(whole.is_err(), "cut at {}", end);
        }
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_v0(&bytes, Kind::Sha1);
        let _ = parse_v2(&mut Reader::new(&bytes), None, Kind::Sha1);
    }
}
