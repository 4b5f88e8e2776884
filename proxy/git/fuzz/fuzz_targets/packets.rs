//! Packets, whole and in pieces: both ways find the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_git::wire::pkt::{Decoder, Reader};

fuzz_target!(|body: &[u8]| {
    let mut reader = Reader::new(body);
    let mut whole = 0;
    while let Ok(Some(_)) = reader.packet() {
        whole += 1;
    }
    let mut decoder = Decoder::default();
    let mut pieces = 0;
    for piece in body.chunks(3) {
        decoder.push(piece);
        while let Ok(Some(_)) = decoder.packet() {
            pieces += 1;
        }
    }
    assert_eq!(whole, pieces);
});
