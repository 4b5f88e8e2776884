//! The answer to a fetch, up to its pack: what is in common, where history is
//! cut, which refs were wanted. Writing is here, reading (from upstreams) in
//! `parser`.
//!
//! V0 and v1 (gitprotocol-pack(5)): `shallow` lines and a flush if history is
//! cut, `ACK` and `NAK` lines, the pack. V2 (gitprotocol-v2(5)): sections with a
//! name, a delimiter between them, the pack in the last.

mod parser;
#[cfg(test)]
mod tests;

use gix_hash::{Kind, ObjectId};

pub use parser::{AnswerParser, Event};

use super::{pkt, protocol::Version};

/// What an acknowledgment says beside the object. V2 has only `Plain` ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckKind {
    /// Common; in v0 and v1 also the last word before the pack.
    Plain,
    /// Common, go on (detailed mode).
    Common,
    /// Common, go on (multi mode).
    Continue,
    /// Enough is in common to make a pack.
    Ready,
}

/// One line of the negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledgment {
    /// Nothing more in common.
    Nak,
    /// This object is in common.
    Ack(ObjectId, AckKind),
}

/// Where the client's history will be cut, as a change to where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShallowInfo {
    /// Commits that become the boundary.
    pub shallow: Vec<ObjectId>,
    /// Commits that no longer are.
    pub unshallow: Vec<ObjectId>,
}

/// A ref that was wanted by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedRef {
    /// What it points at.
    pub oid: ObjectId,
    /// Its name, as it was asked for.
    pub name: Vec<u8>,
}

/// Everything before the pack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The lines of the negotiation, in their order. In v2 none means that the
    /// section is left out.
    pub acknowledgments: Vec<Acknowledgment>,
    /// V2: the `ready` line.
    pub ready: bool,
    /// The cut, if the answer has a section for it.
    pub shallow_info: Option<ShallowInfo>,
    /// V2: the refs wanted by name.
    pub wanted_refs: Vec<WantedRef>,
    /// Whether a pack follows.
    pub pack: bool,
}

impl Head {
    /// Writes all that stands before the pack.
    pub fn encode(&self, version: Version) -> Vec<u8> {
        match version {
            Version::V0 | Version::V1 => self.encode_v0(),
            Version::V2 => self.encode_v2(),
        }
    }

    fn encode_v0(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(cut) = &self.shallow_info {
            cut.lines(&mut out);
            pkt::flush(&mut out);
        }
        for acknowledgment in &self.acknowledgments {
            acknowledgment.line(&mut out);
        }
        out
    }

    fn encode_v2(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.acknowledgments.is_empty() || self.ready {
            pkt::line(&mut out, &[b"acknowledgments"]);
            for acknowledgment in &self.acknowledgments {
                acknowledgment.line(&mut out);
            }
            if self.ready {
                pkt::line(&mut out, &[b"ready"]);
            }
            if !self.pack {
                pkt::flush(&mut out);
                return out;
            }
            pkt::delim(&mut out);
        }
        if !self.pack {
            return out;
        }
        if let Some(cut) = &self.shallow_info {
            pkt::line(&mut out, &[b"shallow-info"]);
            cut.lines(&mut out);
            pkt::delim(&mut out);
        }
        if !self.wanted_refs.is_empty() {
            pkt::line(&mut out, &[b"wanted-refs"]);
            for wanted in &self.wanted_refs {
                pkt::line(&mut out, &[wanted.oid.to_string().as_bytes(), b" ", &wanted.name]);
            }
            pkt::delim(&mut out);
        }
        pkt::line(&mut out, &[b"packfile"]);
        out
    }
}

impl ShallowInfo {
    /// Without line ends, as git writes them.
    fn lines(&self, out: &mut Vec<u8>) {
        let shallow = self.shallow.iter().map(|oid| (&b"shallow "[..], oid));
        let unshallow = self.unshallow.iter().map(|oid| (&b"unshallow "[..], oid));
        let mut hex = Kind::hex_buf();
        for (word, oid) in shallow.chain(unshallow) {
            pkt::data(out, &[word, oid.hex_to_buf(&mut hex).as_bytes()].concat());
        }
    }
}

impl Acknowledgment {
    fn line(&self, out: &mut Vec<u8>) {
        match self {
            Self::Nak => pkt::line(out, &[b"NAK"]),
            Self::Ack(oid, kind) => {
                let kind: &[u8] = match kind {
                    AckKind::Plain => b"",
                    AckKind::Common => b" common",
                    AckKind::Continue => b" continue",
                    AckKind::Ready => b" ready",
                };
                pkt::line(out, &[b"ACK ", oid.to_string().as_bytes(), kind]);
            }
        }
    }
}
