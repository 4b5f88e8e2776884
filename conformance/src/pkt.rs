//! Just enough pkt-line to write requests and to read what came back.
//!
//! The harness's own reading, so that a slip in the product's parser can't hide
//! itself. Format: gitprotocol-common(5).

/// One packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pkt {
    /// `0000`.
    Flush,
    /// `0001`.
    Delimiter,
    /// `0002`.
    ResponseEnd,
    /// Bytes after the length.
    Data(Vec<u8>),
}

impl Pkt {
    /// The payload as text without its newline; empty for the special packets.
    pub fn text(&self) -> String {
        match self {
            Self::Data(bytes) => String::from_utf8_lossy(bytes).trim_end_matches('\n').to_owned(),
            _ => String::new(),
        }
    }
}

/// One data packet with a newline.
pub fn line(text: &str) -> Vec<u8> {
    raw(format!("{text}\n").as_bytes())
}

/// One data packet as it is.
pub fn raw(bytes: &[u8]) -> Vec<u8> {
    let mut packet = format!("{:04x}", bytes.len() + 4).into_bytes();
    packet.extend_from_slice(bytes);
    packet
}

/// A v2 request: the command with its capabilities, the delimiter, the arguments, a flush.
pub fn v2(command: &str, arguments: &[String]) -> Vec<u8> {
    let mut body = line(&format!("command={command}"));
    body.extend(line("object-format=sha1"));
    body.extend(b"0001");
    for argument in arguments {
        body.extend(line(argument));
    }
    body.extend(b"0000");
    body
}

/// A v0 request: `lines`, a flush, then `done`.
pub fn v0(lines: &[String], done: bool) -> Vec<u8> {
    let mut body: Vec<u8> = lines.iter().flat_map(|text| line(text)).collect();
    body.extend(b"0000");
    if done {
        body.extend(line("done"));
    }
    body
}

/// Every whole packet of `bytes`, and what was left over.
pub fn read(bytes: &[u8]) -> (Vec<Pkt>, &[u8]) {
    let mut packets = Vec::new();
    let mut rest = bytes;
    while let Some(length) = length_of(rest) {
        let (packet, used) = match length {
            0 => (Pkt::Flush, 4),
            1 => (Pkt::Delimiter, 4),
            2 => (Pkt::ResponseEnd, 4),
            size => {
                let Some(payload) = rest.get(4..size) else { break };
                (Pkt::Data(payload.to_vec()), size)
            }
        };
        packets.push(packet);
        rest = &rest[used..];
    }
    (packets, rest)
}

fn length_of(bytes: &[u8]) -> Option<usize> {
    let digits = std::str::from_utf8(bytes.get(..4)?).ok()?;
    usize::from_str_radix(digits, 16).ok().filter(|length| *length != 3)
}

/// What a fetch answer carries: the lines before the pack, the pack itself, an error.
#[derive(Debug, Default)]
pub struct FetchAnswer {
    /// ACK, NAK, shallow and section lines, in order.
    pub lines: Vec<String>,
    /// The pack's bytes without sideband framing.
    pub pack: Vec<u8>,
    /// Text of an ERR packet or of sideband 3.
    pub error: Option<String>,
}

impl FetchAnswer {
    /// Reads an answer in any protocol version, with or without sideband.
    pub fn read(body: &[u8]) -> Self {
        let mut answer = Self::default();
        let (packets, rest) = read(body);
        for packet in packets {
            let Pkt::Data(bytes) = packet else { continue };
            match bytes.first() {
                Some(1) => answer.pack.extend_from_slice(&bytes[1..]),
                Some(2) => {}
                Some(3) => answer.error = Some(String::from_utf8_lossy(&bytes[1..]).into_owned()),
                _ => answer.plain(&bytes),
            }
        }
        if rest.starts_with(b"PACK") {
            answer.pack = rest.to_vec();
        }
        answer
    }

    fn plain(&mut self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes).trim_end_matches('\n').to_owned();
        match text.strip_prefix("ERR ") {
            Some(reason) => self.error = Some(reason.to_owned()),
            None => self.lines.push(text),
        }
    }

    /// How many objects the pack's header promises.
    pub fn objects(&self) -> Option<u32> {
        let header = self.pack.strip_prefix(b"PACK")?;
        let count: [u8; 4] = header.get(4..8)?.try_into().ok()?;
        Some(u32::from_be_bytes(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let body = v2("fetch", &["want 11".into(), "done".into()]);
        let (packets, rest) = read(&body);
        assert!(rest.is_empty());
        let words: Vec<String> = packets.iter().map(Pkt::text).collect();
        assert_eq!(words, ["command=fetch", "object-format=sha1", "", "want 11", "done", ""]);
        assert_eq!(packets[2], Pkt::Delimiter);
    }

    #[test]
    fn a_sideband_answer_yields_its_pack_and_its_lines() {
        let mut body = line("NAK");
        body.extend(raw(b"\x01PACK\0\0\0\x02\0\0\0\x07"));
        body.extend(b"0000");
        let answer = FetchAnswer::read(&body);
        assert_eq!(answer.lines, ["NAK"]);
        assert_eq!(answer.objects(), Some(7));
    }
}
