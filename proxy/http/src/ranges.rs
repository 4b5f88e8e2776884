//! `Range` requests for bytes, RFC 9110 section 14: one range, or the whole.

use std::ops::Range;

/// A satisfiable byte range of content of a known size: `start..end`.
pub type ByteRange = Range<u64>;

/// What a `Range` header asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeRequest {
    /// No range, or one we may ignore (several ranges, another unit, bad
    /// syntax): answer 200 with everything.
    Whole,
    /// Answer 206 with these bytes.
    Part(ByteRange),
    /// Answer 416 with `Content-Range: bytes */<size>`.
    Unsatisfiable,
}

/// Reads a `Range` header value against content of `size` bytes.
pub fn parse_range(header: Option<&[u8]>, size: u64) -> RangeRequest {
    let Some(spec) = header
        .and_then(|value| std::str::from_utf8(value).ok())
        .and_then(|value| value.trim().strip_prefix("bytes="))
        .filter(|spec| !spec.contains(','))
    else {
        return RangeRequest::Whole;
    };
    let Some((first, last)) = spec.trim().split_once('-') else { return RangeRequest::Whole };
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u64>().unwrap_or(u64::MAX))
    };
    match (first, last) {
        ("", suffix) => match number(suffix) {
            None => RangeRequest::Whole,
            Some(0) => RangeRequest::Unsatisfiable,
            Some(_) if size == 0 => RangeRequest::Unsatisfiable,
            Some(length) => RangeRequest::Part(size.saturating_sub(length)..size),
        },
        (first, "") => match number(first) {
            None => RangeRequest::Whole,
            Some(start) if start >= size => RangeRequest::Unsatisfiable,
            Some(start) => RangeRequest::Part(start..size),
        },
        (first, last) => match (number(first), number(last)) {
            (Some(start), Some(end)) if start <= end => {
                if start >= size {
                    RangeRequest::Unsatisfiable
                } else {
                    RangeRequest::Part(start..end.saturating_add(1).min(size))
                }
            }
            _ => RangeRequest::Whole,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_rfc_9110() {
        for (header, answer) in [
            ("bytes=0-0", RangeRequest::Part(0..1)),
            ("bytes=2-", RangeRequest::Part(2..10)),
            ("bytes=-3", RangeRequest::Part(7..10)),
            ("bytes=-30", RangeRequest::Part(0..10)),
            ("bytes=5-99", RangeRequest::Part(5..10)),
            ("bytes=10-", RangeRequest::Unsatisfiable),
            ("bytes=-0", RangeRequest::Unsatisfiable),
            ("bytes=3-1", RangeRequest::Whole),
            ("bytes=0-1,3-4", RangeRequest::Whole),
            ("lines=1-2", RangeRequest::Whole),
            ("bytes=a-b", RangeRequest::Whole),
        ] {
            assert_eq!(parse_range(Some(header.as_bytes()), 10), answer, "{header}");
        }
        assert_eq!(parse_range(None, 10), RangeRequest::Whole);
    }
}
