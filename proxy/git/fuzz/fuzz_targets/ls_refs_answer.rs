//! What an upstream answers to `ls-refs`: no panic, and what was understood is
//! the same after we wrote it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_git::wire::ls_refs::{Request, parse_answer};

fuzz_target!(|body: &[u8]| {
    let hash = gix_hash::Kind::Sha1;
    let Ok(refs) = parse_answer(body, hash) else { return };
    let written = Request::full(&[]).answer(&refs, &|_| false);
    assert_eq!(parse_answer(&written, hash), Ok(refs));
});
