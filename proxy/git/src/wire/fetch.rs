//! What a client wants, has and accepts: one typed request for every protocol
//! version. Reading is here, writing (for upstreams) in `encode`.
//!
//! V0 and v1 (gitprotocol-pack(5)):
//! ```text
//! want <oid> multi_ack_detailed side-band-64k ofs-delta agent=git/2.39.5
//! deepen 1
//! 0000
//! have <oid>
//! done
//! ```
//! V2 has the same words as arguments of a command (gitprotocol-v2(5)).

mod encode;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use gix_hash::{Kind, ObjectId};

use super::{
    decimal,
    error::RequestError,
    filter::Filter,
    object_id,
    pkt::{self, Packet, Reader, chomp},
    protocol::Version,
    request::check_format,
    split_word,
};
use crate::refs::LONGEST_NAME;

/// The depth that means all of history.
pub const INFINITE_DEPTH: u32 = 0x7fff_ffff;
/// The most haves of one request. Wants, want-refs and shallow lines are not
/// counted: a mirror clone wants every ref, and the body is bounded already.
pub const MOST_HAVES: usize = 65_536;
/// The most refs that `deepen-not` may name in one request.
pub const MOST_DEEPEN_NOT: usize = 1_000;

/// How the pack travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sideband {
    /// As it is, up to the end of the answer.
    #[default]
    None,
    /// In frames of at most 999 bytes, with progress and errors beside it.
    Small,
    /// The same in frames of at most 65,519 bytes.
    Large,
}

/// How v0 and v1 clients want their haves acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AckMode {
    /// The first common one, once.
    #[default]
    Single,
    /// Each, with `continue`.
    Multi,
    /// Each, with `common` or `ready`.
    Detailed,
}

/// Where history is cut.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Deepen {
    /// So many commits deep.
    Depth {
        /// At least 1; [`INFINITE_DEPTH`] for all.
        n: u32,
        /// Counted from the client's boundary, not from the wants.
        relative: bool,
    },
    /// At a time, at refs, or both. One of the two is there.
    Cutoff {
        /// Commits of this time (Unix seconds) and later.
        since: Option<u64>,
        /// Not what these refs reach; full or short names, as the client wrote them.
        not: Vec<Vec<u8>>,
    },
}

/// One fetch, as the client asked for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one word of the protocol")]
pub struct FetchRequest {
    /// The wanted objects, each once, in the client's order.
    pub wants: Vec<ObjectId>,
    /// V2: refs wanted by name, `HEAD` among them.
    pub want_refs: Vec<Vec<u8>>,
    /// What the client has, in its order, doubles included.
    pub haves: Vec<ObjectId>,
    /// The client won't ask again: the pack has to come now.
    pub done: bool,
    /// Where history is to be cut.
    pub deepen: Option<Deepen>,
    /// Where the client's history is cut already, each once.
    pub shallows: Vec<ObjectId>,
    /// Which objects the client does without.
    pub filter: Option<Filter>,
    /// Deltas may be against objects the client has.
    pub thin_pack: bool,
    /// Deltas may name their base by offset.
    pub ofs_delta: bool,
    /// Tags should come with what they point at.
    pub include_tag: bool,
    /// No progress texts.
    pub no_progress: bool,
    /// V2: never `ready` before `done`.
    pub wait_for_done: bool,
    /// V0, v1: the pack may follow `ready` without `done`. V2 always works so.
    pub no_done: bool,
    /// How the pack travels. V2 always has large frames.
    pub sideband: Sideband,
    /// V0, v1: how haves are acknowledged. A v2 request counts as detailed.
    pub ack_mode: AckMode,
    /// What the client calls itself.
    pub agent: Option<Vec<u8>>,
    /// V0, v1: the request stops after the wants: only the shallow lines are
    /// asked for (libgit2 does this before its real request).
    pub ended_after_deepen: bool,
}

impl FetchRequest {
    /// Whether an answer of this version has a place for shallow lines, even if
    /// there are none to tell.
    ///
    /// V2 answers any client that has shallow commits we know of, v0 only one
    /// that asks to cut history.
    pub fn has_shallow_section(&self, version: Version) -> bool {
        self.deepen.is_some() || (version == Version::V2 && !self.shallows.is_empty())
    }

    /// Whether nothing is wanted.
    pub fn wants_nothing(&self) -> bool {
        self.wants.is_empty() && self.want_refs.is_empty()
    }
}

/// Reads the whole body of a v0 or v1 request; `None` asks for nothing, like
/// the lone flush with which git's client tries out its credentials.
pub fn parse_v0(body: &[u8], hash: Kind) -> Result<Option<FetchRequest>, RequestError> {
    let mut reader = Reader::new(body);
    let mut parser = Parser::new(hash);
    let mut lines = 0_usize;
    loop {
        match reader.packet()? {
            None if lines == 0 => return Ok(None),
            None => return Err(RequestError::Truncated),
            Some(Packet::Flush) => break,
            Some(Packet::Delim | Packet::ResponseEnd) => return Err(RequestError::Marker),
            Some(Packet::Data(line)) => parser.want_section(chomp(line))?,
        }
        lines += 1;
    }
    let mut request = parser.finish()?;
    if request.wants_nothing() {
        return Ok(None);
    }
    request.ended_after_deepen = reader.rest().is_empty();
    // Like git, stop at the first flush or `done` and look at nothing behind.
    while !request.ended_after_deepen {
        match reader.packet()? {
            None => return Err(RequestError::Truncated),
            Some(Packet::Flush) => break,
            Some(Packet::Delim | Packet::ResponseEnd) => return Err(RequestError::Marker),
            Some(Packet::Data(line)) => match chomp(line) {
                b"done" => {
                    request.done = true;
                    break;
                }
                line => match line.strip_prefix(b"have ") {
                    Some(hex) => add_have(&mut request, hex, hash)?,
                    None => return Err(RequestError::Line(pkt::shown(line))),
                },
            },
        }
    }
    Ok(Some(request))
}

/// Reads the arguments of v2's `fetch`, up to their flush.
pub fn parse_v2(
    args: &mut Reader<'_>,
    agent: Option<&[u8]>,
    hash: Kind,
) -> Result<FetchRequest, RequestError> {
    let mut parser = Parser::new(hash);
    loop {
        match args.packet()? {
            None => return Err(RequestError::Truncated),
            Some(Packet::Flush) => break,
            Some(Packet::Delim | Packet::ResponseEnd) => return Err(RequestError::Marker),
            Some(Packet::Data(line)) => parser.argument(chomp(line))?,
        }
    }
    let mut request = parser.finish()?;
    request.sideband = Sideband::Large;
    request.ack_mode = AckMode::Detailed;
    request.no_done = true;
    request.agent = agent.map(short);
    Ok(request)
}

/// A request on its way, and what is known only when all of it was read.
struct Parser {
    request: FetchRequest,
    hash: Kind,
    depth: u32,
    relative: bool,
    since: Option<u64>,
    not: Vec<Vec<u8>>,
    filter_negotiated: bool,
    wants: HashSet<ObjectId>,
    shallows: HashSet<ObjectId>,
}

impl Parser {
    fn new(hash: Kind) -> Self {
        Self {
            request: FetchRequest::default(),
            hash,
            depth: 0,
            relative: false,
            since: None,
            not: Vec::new(),
            filter_negotiated: false,
            wants: HashSet::new(),
            shallows: HashSet::new(),
        }
    }

    /// A line before the first flush of a v0 request.
    fn want_section(&mut self, line: &[u8]) -> Result<(), RequestError> {
        let (word, value) = split_word(line);
        if word == b"filter" && !self.filter_negotiated {
            return Err(RequestError::Filter { filter: pkt::shown(value), why: "it was not negotiated" });
        }
        if self.cut_or_filter(word, value, line)? {
            return Ok(());
        }
        if word != b"want" {
            return Err(RequestError::Line(pkt::shown(line)));
        }
        let (hex, words) = split_word(value);
        self.want(hex)?;
        words.split(|byte| *byte == b' ').try_for_each(|word| self.capability(word))
    }

    /// A word behind the first want of a v0 request.
    fn capability(&mut self, word: &[u8]) -> Result<(), RequestError> {
        let request = &mut self.request;
        match word {
            b"multi_ack_detailed" => request.ack_mode = AckMode::Detailed,
            b"multi_ack" if request.ack_mode == AckMode::Single => request.ack_mode = AckMode::Multi,
            b"no-done" => request.no_done = true,
            b"side-band-64k" => request.sideband = Sideband::Large,
            b"side-band" if request.sideband == Sideband::None => request.sideband = Sideband::Small,
            b"thin-pack" => request.thin_pack = true,
            b"ofs-delta" => request.ofs_delta = true,
            b"include-tag" => request.include_tag = true,
            b"no-progress" => request.no_progress = true,
            b"deepen-relative" => self.relative = true,
            b"filter" => self.filter_negotiated = true,
            _ => {
                if let Some(agent) = word.strip_prefix(b"agent=") {
                    request.agent = Some(short(agent));
                } else if let Some(format) = word.strip_prefix(b"object-format=") {
                    check_format(format, self.hash)?;
                }
            }
        }
        Ok(())
    }

    /// An argument of v2's fetch.
    fn argument(&mut self, line: &[u8]) -> Result<(), RequestError> {
        let (word, value) = split_word(line);
        if self.cut_or_filter(word, value, line)? {
            return Ok(());
        }
        let request = &mut self.request;
        match (word, line.len() == word.len()) {
            (b"want", false) => self.want(value)?,
            (b"have", false) => add_have(request, value, self.hash)?,
            (b"want-ref", false) if (1..=LONGEST_NAME).contains(&value.len()) => {
                request.want_refs.push(value.to_vec());
            }
            (b"done", true) => request.done = true,
            (b"thin-pack", true) => request.thin_pack = true,
            (b"ofs-delta", true) => request.ofs_delta = true,
            (b"include-tag", true) => request.include_tag = true,
            (b"no-progress", true) => request.no_progress = true,
            (b"wait-for-done", true) => request.wait_for_done = true,
            (b"deepen-relative", true) => self.relative = true,
            // Offered by nobody here; git, too, passes over it then.
            (b"packfile-uris", false) => {}
            _ => return Err(RequestError::Line(pkt::shown(line))),
        }
        Ok(())
    }

    /// The lines that v0 and v2 share; false if this is none of them.
    fn cut_or_filter(&mut self, word: &[u8], value: &[u8], line: &[u8]) -> Result<bool, RequestError> {
        let bad = || RequestError::Value(pkt::shown(line));
        match word {
            b"shallow" => {
                let oid = object_id(value, self.hash).ok_or_else(bad)?;
                if self.shallows.insert(oid) {
                    self.request.shallows.push(oid);
                }
            }
            b"deepen" => {
                let depth = decimal(value).ok_or_else(bad)?;
                self.depth = u32::try_from(depth).unwrap_or(u32::MAX).min(INFINITE_DEPTH);
            }
            b"deepen-since" => self.since = Some(decimal(value).ok_or_else(bad)?),
            b"deepen-not" => {
                if self.not.len() == MOST_DEEPEN_NOT {
                    return Err(RequestError::TooMany { what: "deepen-not lines", most: MOST_DEEPEN_NOT });
                }
                if value.is_empty() || value.len() > LONGEST_NAME {
                    return Err(bad());
                }
                self.not.push(value.to_vec());
            }
            b"filter" => {
                let filter = Filter::parse(value)?;
                if self.request.filter.replace(filter).is_some() {
                    let why = "another one was given; use one combine: filter";
                    return Err(RequestError::Filter { filter: pkt::shown(value), why });
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn want(&mut self, hex: &[u8]) -> Result<(), RequestError> {
        let oid = object_id(hex, self.hash).ok_or_else(|| RequestError::Value(want_line(hex)))?;
        if self.wants.insert(oid) {
            self.request.wants.push(oid);
        }
        Ok(())
    }

    fn finish(self) -> Result<FetchRequest, RequestError> {
        let mut request = self.request;
        let cutoff = self.since.is_some() || !self.not.is_empty();
        request.deepen = match (self.depth, cutoff) {
            (0, false) => None,
            (0, true) => Some(Deepen::Cutoff { since: self.since, not: self.not }),
            (n, false) => Some(Deepen::Depth { n, relative: self.relative }),
            (_, true) => return Err(RequestError::TwoDepths),
        };
        Ok(request)
    }
}

fn add_have(request: &mut FetchRequest, hex: &[u8], hash: Kind) -> Result<(), RequestError> {
    if request.haves.len() == MOST_HAVES {
        return Err(RequestError::TooMany { what: "have lines", most: MOST_HAVES });
    }
    let oid = object_id(hex, hash).ok_or_else(|| RequestError::Value(format!("have {}", pkt::shown(hex))))?;
    request.haves.push(oid);
    Ok(())
}

fn want_line(hex: &[u8]) -> String {
    format!("want {}", pkt::shown(hex))
}

/// An agent, cut to what is worth keeping.
fn short(agent: &[u8]) -> Vec<u8> {
    agent[..agent.len().min(256)].to_vec()
}
