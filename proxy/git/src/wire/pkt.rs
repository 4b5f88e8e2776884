//! Packet lines: the framing under everything git says over HTTP.
//!
//! `0008NAK\n` is a packet of four payload bytes; `0000`, `0001` and `0002`
//! carry none. Grammar: gitprotocol-common(5) and gitprotocol-v2(5). Limits are
//! git's own: a packet is 4 to 65,520 bytes long, its length included.

use bytes::{Bytes, BytesMut};

/// The longest packet, its four length digits included.
pub const MAX_PACKET: usize = 65_520;
/// The longest payload of one packet.
pub const MAX_PAYLOAD: usize = MAX_PACKET - 4;
/// A flush packet.
pub const FLUSH: &[u8; 4] = b"0000";
/// A delimiter packet.
pub const DELIM: &[u8; 4] = b"0001";

/// One packet; `T` is the payload, borrowed or owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<T> {
    /// Payload, possibly empty, its line end included.
    Data(T),
    /// `0000`, the end of a message.
    Flush,
    /// `0001`, the end of a section.
    Delim,
    /// `0002`, the end of an answer on a stateless connection.
    ResponseEnd,
}

/// Bytes that are no packet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PktError {
    /// The length is not made of hex digits, or out of range.
    #[error("`{shown}` at byte {at} is no packet length (four hex digits, 0004 to fff0)")]
    Length {
        /// The four bytes, made printable.
        shown: String,
        /// Where they stand.
        at: u64,
    },
    /// The data ends inside a packet.
    #[error("the data ends inside the packet that starts at byte {at}")]
    Truncated {
        /// Where the packet starts.
        at: u64,
    },
}

/// Reads packets off a complete body.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    at: u64,
}

impl<'a> Reader<'a> {
    /// Starts at the first byte of `body`.
    pub fn new(body: &'a [u8]) -> Self {
        Self { rest: body, at: 0 }
    }

    /// The next packet, or `None` after the last one.
    pub fn packet(&mut self) -> Result<Option<Packet<&'a [u8]>>, PktError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let Some((packet, used)) = split(self.rest, self.at)? else {
            return Err(PktError::Truncated { at: self.at });
        };
        self.rest = &self.rest[used..];
        self.at += used as u64;
        Ok(Some(packet))
    }

    /// What has not been read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

/// Finds packets in a stream that arrives in pieces.
///
/// Holds what was pushed and not yet taken: a caller that takes everything
/// after every push keeps it below one packet.
#[derive(Debug, Default)]
pub struct Decoder {
    held: BytesMut,
    at: u64,
}

impl Decoder {
    /// Adds the next piece of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// The next packet, or `None` until more bytes arrive.
    pub fn packet(&mut self) -> Result<Option<Packet<Bytes>>, PktError> {
        let Some((packet, used)) = split(&self.held, self.at)? else {
            return Ok(None);
        };
        let kind = match packet {
            Packet::Data(_) => Packet::Data(()),
            Packet::Flush => Packet::Flush,
            Packet::Delim => Packet::Delim,
            Packet::ResponseEnd => Packet::ResponseEnd,
        };
        let whole = self.held.split_to(used).freeze();
        self.at += used as u64;
        Ok(Some(match kind {
            Packet::Data(()) => Packet::Data(whole.slice(4..)),
            Packet::Flush => Packet::Flush,
            Packet::Delim => Packet::Delim,
            Packet::ResponseEnd => Packet::ResponseEnd,
        }))
    }

    /// What is held and not yet taken.
    pub fn held(&self) -> &[u8] {
        &self.held
    }

    /// Takes everything that is held, as it is.
    pub fn take_rest(&mut self) -> Bytes {
        self.at += self.held.len() as u64;
        self.held.split().freeze()
    }

    /// Says where the stream broke off, unless it ended between two packets.
    pub fn finish(&self) -> Result<(), PktError> {
        if self.held.is_empty() { Ok(()) } else { Err(PktError::Truncated { at: self.at }) }
    }
}

/// Appends a packet with `payload` as it is.
///
/// The caller keeps `payload` within [`MAX_PAYLOAD`].
pub fn data(out: &mut Vec<u8>, payload: &[u8]) {
    debug_assert!(payload.len() <= MAX_PAYLOAD, "a packet never carries more than git allows");
    out.extend_from_slice(&length(payload.len() + 4));
    out.extend_from_slice(payload);
}

/// Appends a line: the parts joined, then a line feed.
pub fn line(out: &mut Vec<u8>, parts: &[&[u8]]) {
    let payload: usize = parts.iter().map(|part| part.len()).sum::<usize>() + 1;
    debug_assert!(payload <= MAX_PAYLOAD, "a packet never carries more than git allows");
    out.extend_from_slice(&length(payload + 4));
    for part in parts {
        out.extend_from_slice(part);
    }
    out.push(b'\n');
}

/// Appends a flush packet.
pub fn flush(out: &mut Vec<u8>) {
    out.extend_from_slice(FLUSH);
}

/// Appends a delimiter packet.
pub fn delim(out: &mut Vec<u8>) {
    out.extend_from_slice(DELIM);
}

/// Appends an `ERR` packet; the text is cut at 1,000 bytes and kept to one line,
/// whose end is left out as git does.
pub fn error(out: &mut Vec<u8>, text: &str) {
    data(out, format!("ERR {}", one_line(text)).as_bytes());
}

/// The text as one line of at most 1,000 bytes, fit to follow `ERR `.
pub(super) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len().min(1_000));
    for c in text.chars() {
        if line.len() + c.len_utf8() > 1_000 {
            break;
        }
        line.push(if c.is_control() { ' ' } else { c });
    }
    line
}

/// The four lower-case hex digits of a packet of `length` bytes.
pub(super) fn length(length: usize) -> [u8; 4] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |shift: usize| DIGITS[(length >> shift) & 0xf];
    [digit(12), digit(8), digit(4), digit(0)]
}

/// A payload without its line end.
pub fn chomp(payload: &[u8]) -> &[u8] {
    payload.strip_suffix(b"\n").unwrap_or(payload)
}

/// The text of an `ERR` packet, made printable.
pub fn error_text(payload: &[u8]) -> Option<String> {
    payload.strip_prefix(b"ERR ").map(|text| one_line(String::from_utf8_lossy(text).trim_end()))
}

/// Bytes from outside made printable and short, for error texts.
pub fn shown(bytes: &[u8]) -> String {
    const MOST: usize = 120;
    let cut = &bytes[..bytes.len().min(MOST)];
    let tail = if bytes.len() > MOST { "..." } else { "" };
    format!("{}{tail}", cut.escape_ascii())
}

/// A packet and how many bytes it takes.
type Found<'a> = (Packet<&'a [u8]>, usize);

fn split(input: &[u8], at: u64) -> Result<Option<Found<'_>>, PktError> {
    let bad = |digits: &[u8]| PktError::Length { shown: shown(digits), at };
    let Some(digits) = input.get(..4) else {
        // Wrong digits are wrong however few have arrived.
        if input.iter().any(|digit| !digit.is_ascii_hexdigit()) {
            return Err(bad(input));
        }
        return Ok(None);
    };
    let mut length = 0;
    for digit in digits {
        let value = char::from(*digit).to_digit(16).ok_or_else(|| bad(digits))?;
        length = length * 16 + value as usize;
    }
    match length {
        0 => Ok(Some((Packet::Flush, 4))),
        1 => Ok(Some((Packet::Delim, 4))),
        2 => Ok(Some((Packet::ResponseEnd, 4))),
        4..=MAX_PACKET => Ok(input.get(4..length).map(|payload| (Packet::Data(payload), length))),
        _ => Err(bad(digits)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_empty_packet_is_data_and_three_is_refused() {
        assert_eq!(Reader::new(b"0004").packet(), Ok(Some(Packet::Data(&b""[..]))));
        for bad in [&b"0003"[..], b"fff1", b"ffff", b"00g0", b"<htm", b"-001", b"+004", b"g"] {
            assert!(matches!(Reader::new(bad).packet(), Err(PktError::Length { .. })), "{}", shown(bad));
        }
    }

    #[test]
    fn upper_case_is_read_and_lower_case_is_written() {
        let mut body = b"001E".to_vec();
        body.extend_from_slice(&[b'x'; 26]);
        assert_eq!(Reader::new(&body).packet(), Ok(Some(Packet::Data(&body[4..]))));
        let mut out = Vec::new();
        data(&mut out, &[b'x'; 26]);
        assert_eq!(&out[..4], b"001e");
    }

    #[test]
    fn the_longest_packet_passes() {
        let mut out = Vec::new();
        data(&mut out, &vec![7; MAX_PAYLOAD]);
        assert_eq!(&out[..4], b"fff0");
        assert_eq!(Reader::new(&out).packet(), Ok(Some(Packet::Data(&out[4..]))));
    }

    #[test]
    fn an_error_is_one_short_line() {
        let mut out = Vec::new();
        error(&mut out, "not our ref\nsecond line");
        assert_eq!(out, b"001fERR not our ref second line".to_vec().as_slice());
        let mut long = Vec::new();
        error(&mut long, &"é".repeat(40_000));
        assert!(long.len() < 1_100);
    }

    fn packets() -> impl Strategy<Value = Vec<Option<Vec<u8>>>> {
        prop::collection::vec(prop::option::weighted(0.8, prop::collection::vec(any::<u8>(), 0..300)), 0..12)
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_packets(packets in packets(), size in 1usize..40) {
            let mut body = Vec::new();
            for packet in &packets {
                match packet {
                    Some(payload) => data(&mut body, payload),
                    None => flush(&mut body),
                }
            }
            let mut decoder = Decoder::default();
            let mut found = Vec::new();
            for chunk in body.chunks(size) {
                decoder.push(chunk);
                while let Some(packet) = decoder.packet().unwrap() {
                    found.push(match packet {
                        Packet::Data(payload) => Some(payload.to_vec()),
                        _ => None,
                    });
                }
            }
            decoder.finish().unwrap();
            prop_assert_eq!(found, packets);
        }

        #[test]
        fn garbage_is_an_error_or_packets_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = Reader::new(&bytes);
            while let Ok(Some(_)) = reader.packet() {}
        }
    }
}
