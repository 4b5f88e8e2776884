//! Frames around a pack, so that progress and errors can travel beside it.
//!
//! `fff0 01 <65,515 bytes>`: four length digits, the channel, the payload. The
//! payload is never copied: a frame is its five-byte head, then a slice of what
//! was given. Grammar: gitprotocol-pack(5), "Packfile Data".

use bytes::Bytes;

use super::{fetch::Sideband, pkt};

/// What travels in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// The pack.
    Pack,
    /// Text for the user.
    Progress,
    /// Text for the user, and the end of everything.
    Error,
}

impl Channel {
    /// The channel of this number.
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Pack),
            2 => Some(Self::Progress),
            3 => Some(Self::Error),
            _ => None,
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Pack => 1,
            Self::Progress => 2,
            Self::Error => 3,
        }
    }
}

/// The empty pack frame that keeps a slow answer's connection alive.
pub const KEEP_ALIVE: &[u8; 5] = b"0005\x01";

/// The most pack bytes in one frame; `None` if there are no frames.
pub fn most(sideband: Sideband) -> Option<usize> {
    match sideband {
        Sideband::None => None,
        Sideband::Small => Some(995),
        Sideband::Large => Some(pkt::MAX_PAYLOAD - 1),
    }
}

/// The head of a frame that carries `payload` bytes, at most [`most`] of them.
pub fn head(channel: Channel, payload: usize) -> [u8; 5] {
    let [a, b, c, d] = pkt::length(payload + 5);
    [a, b, c, d, channel.number()]
}

/// Pack bytes as they travel: without frames one piece, the payload itself;
/// with frames a head and a slice in turn.
pub fn frames(payload: Bytes, sideband: Sideband) -> Frames {
    Frames { rest: payload, most: most(sideband), next: None }
}

/// The pieces of a framed payload; see [`frames`].
#[derive(Debug)]
pub struct Frames {
    rest: Bytes,
    most: Option<usize>,
    /// The slice whose head was given out.
    next: Option<Bytes>,
}

impl Iterator for Frames {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if let Some(slice) = self.next.take() {
            return Some(slice);
        }
        if self.rest.is_empty() {
            return None;
        }
        let Some(most) = self.most else {
            return Some(std::mem::take(&mut self.rest));
        };
        let slice = self.rest.split_to(self.rest.len().min(most));
        let head = head(Channel::Pack, slice.len());
        self.next = Some(slice);
        Some(Bytes::copy_from_slice(&head))
    }
}

/// A text frame, cut to what one frame holds; nothing if there are no frames.
pub fn text(channel: Channel, text: &str, sideband: Sideband) -> Vec<u8> {
    let Some(most) = most(sideband) else { return Vec::new() };
    let payload = &text.as_bytes()[..text.len().min(most)];
    [&head(channel, payload.len())[..], payload].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(bytes: usize, sideband: Sideband) -> Vec<usize> {
        frames(Bytes::from(vec![7; bytes]), sideband).map(|piece| piece.len()).collect()
    }

    #[test]
    fn frames_are_as_big_as_the_client_takes() {
        assert_eq!(lengths(65_516, Sideband::Large), [5, 65_515, 5, 1]);
        assert_eq!(lengths(996, Sideband::Small), [5, 995, 5, 1]);
        assert_eq!(lengths(996, Sideband::None), [996]);
        assert_eq!(lengths(0, Sideband::Large), Vec::<usize>::new());
        assert_eq!(&head(Channel::Pack, 65_515), b"fff0\x01");
        assert_eq!(&head(Channel::Pack, 995), b"03e8\x01");
    }

    #[test]
    fn a_payload_is_passed_on_and_not_copied() {
        let payload = Bytes::from(vec![7; 70_000]);
        let pieces: Vec<Bytes> = frames(payload.clone(), Sideband::Large).collect();
        assert_eq!(pieces[1].as_ptr(), payload.as_ptr());
        assert_eq!(pieces[3].as_ptr(), payload[65_515..].as_ptr());
    }

    #[test]
    fn texts_travel_beside_the_pack_or_not_at_all() {
        assert_eq!(text(Channel::Progress, "hi\n", Sideband::Small), b"0008\x02hi\n");
        assert_eq!(text(Channel::Error, &"x".repeat(2_000), Sideband::Small).len(), 1_000);
        assert!(text(Channel::Progress, "hi", Sideband::None).is_empty());
    }
}
