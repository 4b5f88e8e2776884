//! A partial clone filter: what was understood is the same after we wrote it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_git::wire::filter::Filter;

fuzz_target!(|spec: &[u8]| {
    let Ok(filter) = Filter::parse(spec) else { return };
    assert_eq!(Filter::parse(filter.encode().as_bytes()), Ok(filter));
});
