//! An upstream's answer to a fetch, in pieces: the first byte says which
//! version, framing and size of piece. However it is cut, it says the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_git::wire::{
    answer::{AnswerParser, Event},
    fetch::{FetchRequest, Sideband},
    protocol::Version,
};

fuzz_target!(|input: &[u8]| {
    let Some((how, body)) = input.split_first() else { return };
    let how = usize::from(*how);
    let version = [Version::V0, Version::V1, Version::V2][how % 3];
    let sideband = [Sideband::None, Sideband::Large][how / 3 % 2];
    let request = FetchRequest { done: how & 64 != 0, ..FetchRequest::default() };
    let parser = || AnswerParser::new(version, &request, sideband, gix_hash::Kind::Sha1);
    let whole = run(parser(), body, body.len().max(1));
    let pieces = run(parser(), body, how / 6 % 10 + 1);
    assert!(whole == pieces, "{whole:?}\n{pieces:?}");
});

/// The events without pack bytes, and the bytes joined; `None` after an error.
fn run(mut parser: AnswerParser, body: &[u8], size: usize) -> Option<(Vec<Event>, Vec<u8>)> {
    let mut said = (Vec::new(), Vec::new());
    let mut keep = |events: Vec<Event>| {
        for event in events {
            match event {
                Event::Pack(bytes) => said.1.extend_from_slice(&bytes),
                event => said.0.push(event),
            }
        }
    };
    for piece in body.chunks(size) {
        keep(parser.push(piece).ok()?);
    }
    keep(parser.finish().ok()?);
    Some(said)
}
