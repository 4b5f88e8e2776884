//! The arguments of a client's `ls-refs`, without the command around them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_git::wire::{ls_refs::Request, pkt::Reader};

fuzz_target!(|body: &[u8]| {
    _ = Request::parse(&mut Reader::new(body));
});
