//! A client's v2 request, arguments and all.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_git::wire::{fetch, ls_refs, request};

fuzz_target!(|body: &[u8]| {
    let hash = gix_hash::Kind::Sha1;
    let Ok(Some(mut found)) = request::parse(body, hash) else { return };
    match found.command {
        request::Command::LsRefs => _ = ls_refs::Request::parse(&mut found.args),
        request::Command::Fetch => _ = fetch::parse_v2(&mut found.args, found.agent, hash),
    }
});
