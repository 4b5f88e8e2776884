//! What an upstream answers to `info/refs`: no panic, and what was understood
//! is understood again after we wrote it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_git::wire::{advertisement, protocol::Version};

fuzz_target!(|body: &[u8]| {
    let Ok(found) = advertisement::parse(body) else { return };
    let Some(refs) = found.refs else { return };
    let written = advertisement::encode(&refs, Version::V0, &|_| false);
    let again = advertisement::parse(&written).expect("our own answer is one").refs.expect("v0 has refs");
    assert!(again.refs().len() == refs.refs().len() && again.tips() == refs.tips());
});
