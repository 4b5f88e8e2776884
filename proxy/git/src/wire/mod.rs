//! Git's wire protocol, both ways: what clients ask and upstreams answer is
//! parsed, what upstreams are asked and clients are answered is encoded.
//!
//! Bytes in, values out: nothing here waits, reads files or knows the time.
//! Everything parsed comes from outside and is bounded and checked; ref names
//! are bytes. Public only for the fuzz targets beside this crate.

pub mod advertisement;
pub mod answer;
pub mod capabilities;
pub mod error;
pub mod fetch;
pub mod filter;
pub mod ls_refs;
pub mod pkt;
pub mod protocol;
pub mod request;
pub mod sideband;

use gix_hash::{Kind, ObjectId};

pub use error::{AnswerError, RequestError, Unsupported};

/// Reads an object id that fills `hex` exactly.
fn object_id(hex: &[u8], hash: Kind) -> Option<ObjectId> {
    if hex.len() == hash.len_in_hex() { ObjectId::from_hex(hex).ok() } else { None }
}

/// Splits at the first space; no space leaves the second half empty.
fn split_word(line: &[u8]) -> (&[u8], &[u8]) {
    match line.iter().position(|byte| *byte == b' ') {
        Some(at) => (&line[..at], &line[at + 1..]),
        None => (line, b""),
    }
}

/// Reads a decimal number without sign.
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}
