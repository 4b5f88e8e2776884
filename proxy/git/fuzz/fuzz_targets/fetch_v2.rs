//! The arguments of a client's v2 `fetch`, without the command around them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_git::wire::{fetch, pkt::Reader};

fuzz_target!(|body: &[u8]| {
    _ = fetch::parse_v2(&mut Reader::new(body), None, gix_hash::Kind::Sha1);
});
