//! Answers as servers really give them, in any pieces, and cut anywhere.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::wire::{
    error::AnswerError,
    fetch::{AckMode, Deepen, FetchRequest, Sideband},
    sideband::{self, Channel},
};

fn oid(n: u8) -> ObjectId {
    ObjectId::from_bytes_or_panic(&[n; 20])
}

fn request(done: bool) -> FetchRequest {
    FetchRequest { wants: vec![oid(1)], done, ack_mode: AckMode::Detailed, ..FetchRequest::default() }
}

/// Runs a whole answer through the parser; neighbouring pack pieces are joined.
fn run(parser: AnswerParser, body: &[u8], size: usize) -> Result<Vec<Event>, AnswerError> {
    let mut parser = parser;
    let mut events: Vec<Event> = Vec::new();
    let mut add = |more: Vec<Event>| {
        for event in more {
            match (events.last_mut(), event) {
                (Some(Event::Pack(before)), Event::Pack(bytes)) => {
                    *before = Bytes::from([&before[..], &bytes[..]].concat());
                }
                (_, event) => events.push(event),
            }
        }
    };
    for chunk in body.chunks(size.max(1)) {
        add(parser.push(chunk)?);
    }
    add(parser.finish()?);
    Ok(events)
}

fn framed(head: &Head, version: Version, pack: &[u8], sideband: Sideband) -> Vec<u8> {
    let mut out = head.encode(version);
    if head.pack {
        out.extend(sideband::text(Channel::Progress, "hi\n", sideband));
        for piece in sideband::frames(Bytes::copy_from_slice(pack), sideband) {
            out.extend_from_slice(&piece);
        }
        if sideband != Sideband::None {
            pkt::flush(&mut out);
        }
    }
    out
}

fn show(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string().replace("\\n", "\n")
}

fn cut() -> ShallowInfo {
    ShallowInfo { shallow: vec![oid(2)], unshallow: vec![oid(3)] }
}

#[test]
fn v0_has_shallow_lines_then_acknowledgments() {
    let head = Head {
        acknowledgments: vec![
            Acknowledgment::Ack(oid(1), AckKind::Common),
            Acknowledgment::Ack(oid(1), AckKind::Ready),
            Acknowledgment::Nak,
            Acknowledgment::Ack(oid(1), AckKind::Plain),
        ],
        shallow_info: Some(cut()),
        pack: true,
        ..Head::default()
    };
    insta::assert_snapshot!(show(&head.encode(Version::V0)), @r"
    0034shallow 02020202020202020202020202020202020202020036unshallow 030303030303030303030303030303030303030300000038ACK 0101010101010101010101010101010101010101 common
    0037ACK 0101010101010101010101010101010101010101 ready
    0008NAK
    0031ACK 0101010101010101010101010101010101010101
    ");
}

/// The cut before the wanted refs: git's server does it the other way round, and
/// its own client breaks on that.
#[test]
fn v2_has_sections_in_the_order_in_which_clients_read_them() {
    let head = Head {
        acknowledgments: vec![Acknowledgment::Ack(oid(1), AckKind::Plain)],
        ready: true,
        shallow_info: Some(cut()),
        wanted_refs: vec![WantedRef { oid: oid(1), name: b"refs/heads/main".to_vec() }],
        pack: true,
    };
    insta::assert_snapshot!(show(&head.encode(Version::V2)), @r"
    0014acknowledgments
    0031ACK 0101010101010101010101010101010101010101
    000aready
    00010011shallow-info
    0034shallow 02020202020202020202020202020202020202020036unshallow 030303030303030303030303030303030303030300010010wanted-refs
    003d0101010101010101010101010101010101010101 refs/heads/main
    0001000dpackfile
    ");
    let nothing = Head { acknowledgments: vec![Acknowledgment::Nak], ..Head::default() };
    assert_eq!(show(&nothing.encode(Version::V2)), "0014acknowledgments\n0008NAK\n0000");
    assert_eq!(Head::default().encode(Version::V2), b"");
}

#[test]
fn a_pack_without_frames_is_passed_on_as_it_is() {
    let head = Head { acknowledgments: vec![Acknowledgment::Nak], pack: true, ..Head::default() };
    let body = framed(&head, Version::V0, b"PACK0000ERR \xff", Sideband::None);
    for size in 1..20 {
        let parser = AnswerParser::new(Version::V0, &request(true), Sideband::None, Kind::Sha1);
        let events = run(parser, &body, size).unwrap();
        let pack = Event::Pack(Bytes::from_static(b"PACK0000ERR \xff"));
        assert_eq!(events, [Event::Head(head.clone()), pack, Event::End], "in pieces of {size}");
    }
}

#[test]
fn a_round_without_pack_ends_where_git_stops() {
    let parser = |mode, done| {
        let request = FetchRequest { ack_mode: mode, ..request(done) };
        AnswerParser::new(Version::V0, &request, Sideband::Large, Kind::Sha1)
    };
    let nak = Head { acknowledgments: vec![Acknowledgment::Nak], ..Head::default() };
    let ended = Ok(vec![Event::Head(nak), Event::End]);
    assert_eq!(run(parser(AckMode::Detailed, false), b"0008NAK\n", 9), ended);
    assert_eq!(run(parser(AckMode::Detailed, true), b"0008NAK\n", 9), Err(AnswerError::Truncated));
    let common = format!("0038ACK {} common\n", oid(1));
    assert_eq!(run(parser(AckMode::Detailed, false), common.as_bytes(), 9), Err(AnswerError::Truncated));
    let plain = format!("0031ACK {}\n", oid(1));
    assert!(run(parser(AckMode::Single, false), plain.as_bytes(), 9).is_ok());
}

#[test]
fn a_request_that_ends_after_its_depth_gets_only_the_cut() {
    let deepen = Some(Deepen::Depth { n: 1, relative: false });
    let request = FetchRequest { deepen, ended_after_deepen: true, ..request(false) };
    let head = Head { shallow_info: Some(cut()), ..Head::default() };
    let parser = || AnswerParser::new(Version::V0, &request, Sideband::Large, Kind::Sha1);
    let body = head.encode(Version::V0);
    assert_eq!(run(parser(), &body, 3), Ok(vec![Event::Head(head), Event::End]));
    assert_eq!(run(parser(), &body[..body.len() - 4], 3), Err(AnswerError::Truncated));
    let nothing = Head { shallow_info: Some(ShallowInfo::default()), ..Head::default() };
    assert_eq!(run(parser(), b"0000", 3), Ok(vec![Event::Head(nothing), Event::End]));
}

#[test]
fn an_upstream_that_gives_up_is_heard_wherever_it_does() {
    let gone = || AnswerError::Remote("gone away".into());
    let parser = |version| AnswerParser::new(version, &request(true), Sideband::Large, Kind::Sha1);
    for (version, body) in [
        (Version::V0, &b"0012ERR gone away\n"[..]),
        (Version::V2, b"0012ERR gone away\n"),
        (Version::V0, b"0008NAK\n000a\x01PACK!000e\x03gone away"),
        (Version::V2, b"000dpackfile\n000a\x01PACK!000e\x03gone away0000"),
        (Version::V2, b"000dpackfile\n000a\x01PACK!0012ERR gone away\n"),
    ] {
        let mut parser = parser(version);
        let events = parser.push(body).unwrap();
        assert_eq!(events.last(), Some(&Event::Error("gone away".into())), "{}", show(body));
        assert_eq!(parser.finish(), Err(gone()));
        assert_eq!(parser.push(b"garbage"), Ok(vec![]));
    }
}

#[test]
fn every_kind_of_broken_answer_has_its_own_error() {
    let v2 = |body: &[u8]| {
        run(AnswerParser::new(Version::V2, &request(true), Sideband::Large, Kind::Sha1), body, 7)
    };
    assert_eq!(v2(b""), Err(AnswerError::Empty));
    assert_eq!(v2(b"<html>"), Err(AnswerError::Html));
    assert_eq!(v2(b"000dpackfile\n"), Err(AnswerError::Truncated));
    assert_eq!(v2(b"000dpackfile\n0006\x01P"), Err(AnswerError::Truncated));
    assert_eq!(v2(b"000dpackfile\n00000"), Err(AnswerError::Trailing(1)));
    assert_eq!(v2(b"000dpackfile\n0006\x07P0000"), Err(AnswerError::Channel(7)));
    assert_eq!(v2(b"000dpackfile\n00040000"), Err(AnswerError::Channel(0)));
    assert_eq!(v2(b"000dpackfile\n0001"), Err(AnswerError::Marker));
    assert_eq!(v2(b"0000"), Err(AnswerError::Marker));
    assert_eq!(v2(b"0014acknowledgments\n0008NAK\n0001"), Err(AnswerError::Marker));
    assert_eq!(v2(b"0012packfile-uris\n"), Err(AnswerError::Line("packfile-uris".into())));
    let alive = v2(b"000dpackfile\n0005\x010006\x01P0005\x010000").unwrap();
    assert_eq!(alive[1..], [Event::Pack(Bytes::from_static(b"P")), Event::End]);
}

fn heads() -> impl Strategy<Value = (Head, Version)> {
    let oids = || prop::collection::vec(any::<u8>().prop_map(oid), 0..4);
    (oids(), oids(), oids(), any::<[bool; 4]>(), 0..3_usize).prop_map(
        |(acks, shallow, unshallow, on, version)| {
            let version = [Version::V0, Version::V1, Version::V2][version];
            let v2 = version == Version::V2;
            let kind = |n: usize| [AckKind::Common, AckKind::Ready, AckKind::Continue, AckKind::Plain][n % 4];
            let acks = acks.into_iter().enumerate();
            let mut acknowledgments: Vec<_> = acks
                .map(|(n, oid)| Acknowledgment::Ack(oid, if v2 { AckKind::Plain } else { kind(n) }))
                .collect();
            let negotiated = !v2 || on[0];
            let pack = on[1] || !negotiated;
            if !negotiated {
                acknowledgments.clear();
            } else if acknowledgments.is_empty() || !v2 {
                acknowledgments.push(Acknowledgment::Nak);
            }
            let sections = pack || !v2;
            let cut = ShallowInfo { shallow, unshallow };
            let wanted = WantedRef { oid: oid(9), name: b"refs/heads/\xff".to_vec() };
            let head = Head {
                acknowledgments,
                ready: v2 && negotiated && pack,
                shallow_info: (on[2] && sections).then_some(cut),
                wanted_refs: if v2 && pack && on[3] { vec![wanted] } else { Vec::new() },
                pack,
            };
            (head, version)
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read_back_in_any_pieces(
        (head, version) in heads(),
        pack in prop::collection::vec(any::<u8>(), 1..3_000),
        small in any::<bool>(),
        size in 1usize..600,
    ) {
        let sideband = if small && version != Version::V2 { Sideband::Small } else { Sideband::Large };
        let body = framed(&head, version, &pack, sideband);
        let parser = || AnswerParser::new(version, &request(false), sideband, Kind::Sha1);
        let mut expected = vec![Event::Head(head.clone())];
        if head.pack {
            expected.push(Event::Progress(Bytes::from_static(b"hi\n")));
            expected.push(Event::Pack(Bytes::from(pack)));
        }
        expected.push(Event::End);
        prop_assert_eq!(run(parser(), &body, size).unwrap(), expected);
        if head.pack {
            for end in (0..body.len()).step_by(7) {
                let cut = run(parser(), &body[..end], size);
                let round_over = cut.as_ref().is_ok_and(|events| {
                    matches!(&events[0], Event::Head(head) if !head.pack)
                });
                prop_assert!(cut.is_err() || round_over, "cut at {}: {:?}", end, cut);
            }
        }
    }

    #[test]
    fn garbage_is_an_error_or_events_never_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        version in 0usize..3,
        raw in any::<bool>(),
    ) {
        let version = [Version::V0, Version::V1, Version::V2][version];
        let sideband = if raw { Sideband::None } else { Sideband::Large };
        let _ = run(AnswerParser::new(version, &request(false), sideband, Kind::Sha1), &bytes, 5);
    }
}
