//! Filters of partial clones: which objects a client does without.
//!
//! Spelled as in git-rev-list(1), `--filter`: `blob:none`, `blob:limit=1k`,
//! `tree:0`, `object:type=commit`, `combine:blob:none+tree:3`. The parts of a
//! combination are percent-encoded.

use gix_object::Kind as ObjectKind;

use super::{decimal, error::RequestError, pkt};

/// The most parts of a combination.
pub const MOST_PARTS: usize = 4;

/// Which objects are left out of a pack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Filter {
    /// All blobs.
    BlobNone,
    /// Blobs of at least so many bytes.
    BlobLimit(u64),
    /// Trees and blobs so many steps below a commit's root tree, and deeper.
    Tree(u32),
    /// Everything that is not of this type.
    ObjectType(ObjectKind),
    /// What any of the parts leaves out. Two to four parts, none a combination.
    Combine(Vec<Filter>),
}

impl Filter {
    /// Reads a filter as a client writes it.
    pub fn parse(spec: &[u8]) -> Result<Self, RequestError> {
        let mut parts = Vec::new();
        collect(spec, 0, &mut parts).map_err(|why| RequestError::Filter { filter: pkt::shown(spec), why })?;
        match (parts.pop(), parts.is_empty()) {
            (Some(only), true) => Ok(only),
            (Some(last), false) => {
                parts.push(last);
                Ok(Self::Combine(parts))
            }
            (None, _) => Err(RequestError::Filter { filter: pkt::shown(spec), why: "it is empty" }),
        }
    }

    /// Writes it as git would: numbers without a unit.
    pub fn encode(&self) -> String {
        match self {
            Self::BlobNone => "blob:none".to_owned(),
            Self::BlobLimit(limit) => format!("blob:limit={limit}"),
            Self::Tree(depth) => format!("tree:{depth}"),
            Self::ObjectType(kind) => format!("object:type={kind}"),
            // No part has a byte that needs escaping.
            Self::Combine(parts) => {
                format!("combine:{}", parts.iter().map(Self::encode).collect::<Vec<_>>().join("+"))
            }
        }
    }
}

fn collect(spec: &[u8], depth: usize, parts: &mut Vec<Filter>) -> Result<(), &'static str> {
    if let Some(list) = spec.strip_prefix(b"combine:") {
        if depth == MOST_PARTS {
            return Err("it is nested too deeply");
        }
        if list.is_empty() {
            return Err("expected something after combine:");
        }
        for part in list.split(|byte| *byte == b'+') {
            collect(&unescape(part)?, depth + 1, parts)?;
        }
        return Ok(());
    }
    if parts.len() == MOST_PARTS {
        return Err("at most 4 filters can be combined");
    }
    parts.push(simple(spec)?);
    Ok(())
}

fn simple(spec: &[u8]) -> Result<Filter, &'static str> {
    if spec == b"blob:none" {
        return Ok(Filter::BlobNone);
    }
    if let Some(limit) = spec.strip_prefix(b"blob:limit=") {
        return number(limit).map(Filter::BlobLimit).ok_or("expected 'blob:limit=<n>[kmg]'");
    }
    if let Some(depth) = spec.strip_prefix(b"tree:") {
        let depth = number(depth).ok_or("expected 'tree:<depth>'")?;
        return Ok(Filter::Tree(u32::try_from(depth).unwrap_or(u32::MAX)));
    }
    if let Some(kind) = spec.strip_prefix(b"object:type=") {
        return ObjectKind::from_bytes(kind)
            .map(Filter::ObjectType)
            .map_err(|_| "expected 'object:type=' and one of blob, tree, commit, tag");
    }
    if spec.starts_with(b"sparse:") {
        return Err("filters by a sparse specification are not served; use blob:none");
    }
    Err("use blob:none, blob:limit=<n>, tree:<depth>, object:type=<type> or combine:<filter>+<filter>")
}

/// A number as git's configuration has it, with k, m or g behind it.
fn number(text: &[u8]) -> Option<u64> {
    let (digits, unit) = match text.split_last()? {
        (b'k' | b'K', digits) => (digits, 1 << 10),
        (b'm' | b'M', digits) => (digits, 1 << 20),
        (b'g' | b'G', digits) => (digits, 1 << 30),
        _ => (text, 1_u64),
    };
    decimal(digits)?.checked_mul(unit)
}

/// Undoes percent-encoding; a byte that had to be encoded and isn't is refused.
fn unescape(part: &[u8]) -> Result<Vec<u8>, &'static str> {
    const RESERVED: &[u8] = b"~`!@#$^&*()[]{}\\;'\",<>?";
    let mut plain = Vec::with_capacity(part.len());
    let mut rest = part;
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        if *byte <= b' ' || RESERVED.contains(byte) {
            return Err("a part of the combination has a character that must be escaped");
        }
        let escaped = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let escaped = escaped.filter(|hex| hex.bytes().all(|digit| digit.is_ascii_hexdigit()));
        // A percent sign without two hex digits stands for itself, as in git.
        if *byte == b'%'
            && let Some(value) = escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok())
        {
            plain.push(value);
            rest = &tail[2..];
        } else {
            plain.push(*byte);
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_spelling_is_read() {
        for (spec, filter) in [
            ("blob:none", Filter::BlobNone),
            ("blob:limit=0", Filter::BlobLimit(0)),
            ("blob:limit=1k", Filter::BlobLimit(1_024)),
            ("blob:limit=2G", Filter::BlobLimit(2 << 30)),
            ("tree:0", Filter::Tree(0)),
            ("tree:99999999999", Filter::Tree(u32::MAX)),
            ("object:type=tag", Filter::ObjectType(ObjectKind::Tag)),
            ("combine:blob:none", Filter::BlobNone),
            ("combine:tree%3A2+blob%3anone", Filter::Combine(vec![Filter::Tree(2), Filter::BlobNone])),
            (
                "combine:tree:1+combine%3Ablob:none%2Btree:2",
                Filter::Combine(vec![Filter::Tree(1), Filter::BlobNone, Filter::Tree(2)]),
            ),
        ] {
            assert_eq!(Filter::parse(spec.as_bytes()), Ok(filter), "{spec}");
        }
    }

    #[test]
    fn what_is_not_served_is_refused_with_a_reason() {
        for (spec, reason) in [
            ("sparse:oid=main:.sparse", "sparse specification"),
            ("sparse:path=x", "sparse specification"),
            ("blob:limit=", "blob:limit=<n>"),
            ("blob:limit=-1", "blob:limit=<n>"),
            ("blob:limit=99999999999g", "blob:limit=<n>"),
            ("tree:", "tree:<depth>"),
            ("object:type=note", "one of blob"),
            ("combine:", "expected something"),
            ("combine:blob:none+", "use blob:none"),
            ("combine:blob:none+tree~1", "escaped"),
            ("combine:tree:1+tree:2+tree:3+tree:4+tree:5", "at most 4"),
            ("combine:combine:combine:combine:combine:blob:none", "nested too deeply"),
            ("", "use blob:none"),
        ] {
            let text = Filter::parse(spec.as_bytes()).unwrap_err().to_string();
            assert!(text.contains(reason), "{spec}: {text}");
        }
    }

    fn leaf() -> impl Strategy<Value = Filter> {
        prop_oneof![
            Just(Filter::BlobNone),
            any::<u64>().prop_map(Filter::BlobLimit),
            any::<u32>().prop_map(Filter::Tree),
            Just(Filter::ObjectType(ObjectKind::Tree)),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(parts in prop::collection::vec(leaf(), 1..=MOST_PARTS)) {
            let filter = if parts.len() == 1 { parts[0].clone() } else { Filter::Combine(parts) };
            prop_assert_eq!(Filter::parse(filter.encode().as_bytes()), Ok(filter));
        }

        #[test]
        fn garbage_never_panics(spec in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Filter::parse(&[b"combine:", &spec[..]].concat());
        }
    }
}
