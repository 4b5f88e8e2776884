//! A client's v0 or v1 request.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_git::wire::fetch;

fuzz_target!(|body: &[u8]| {
    _ = fetch::parse_v0(body, gix_hash::Kind::Sha1);
});
