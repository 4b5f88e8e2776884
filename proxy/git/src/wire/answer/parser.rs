//! Reads an upstream's answer to a fetch while it arrives.
//!
//! Push what comes, in any pieces; events come out in the order of the answer
//! and say the same however it was cut. The end counts only if the protocol
//! says it is one: a flush after the pack (v2, and v0 with frames), the end of
//! the negotiation when no pack follows. A pack without frames ends where the
//! answer ends; whether it is whole only its own trailer can tell.

use bytes::Bytes;
use gix_hash::{Kind, ObjectId};

use super::{AckKind, Acknowledgment, Head, ShallowInfo, WantedRef};
use crate::refs::LONGEST_NAME;
use crate::wire::{
    advertisement::is_html,
    error::AnswerError,
    fetch::{AckMode, FetchRequest, Sideband},
    object_id,
    pkt::{self, Decoder, Packet, chomp},
    protocol::Version,
    sideband::Channel,
    split_word,
};

/// The most lines before the pack; a mirror of 800,000 refs stays below it.
const MOST_LINES: usize = 2_000_000;

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// All that stands before the pack.
    Head(Head),
    /// The next bytes of the pack.
    Pack(Bytes),
    /// Text for the user.
    Progress(Bytes),
    /// The upstream gives up, in its own words. Nothing follows.
    Error(String),
    /// The answer ended as it should.
    End,
}

/// Where in the answer we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// V0: shallow lines, or the first acknowledgment.
    Start,
    /// V0: acknowledgments.
    Acks,
    /// V2: before a section's name.
    Section,
    /// V2: inside the section of acknowledgments, of the cut, of wanted refs.
    Negotiation,
    Cut,
    WantedRefs,
    /// In the pack, framed.
    Frames,
    /// In the pack, as it is.
    Raw,
    /// Nothing more may come.
    End,
    /// The upstream gave up; what follows says nothing.
    Dead,
}

/// With which line a v0 answer may stop short of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    /// The flush of the shallow lines: nothing else was asked.
    Cut,
    /// `NAK`: the round is over.
    Nak,
    /// `NAK`, or the only `ACK` that plain mode has.
    NakOrAck,
    /// None: the client was done, a pack has to come.
    Never,
}

/// Reads one answer. See the file's head.
#[derive(Debug)]
pub struct AnswerParser {
    version: Version,
    sideband: Sideband,
    hash: Kind,
    /// V0: what the last line is when no pack follows.
    last: Last,
    decoder: Decoder,
    place: Place,
    /// Until it is given out.
    head: Head,
    head_given: bool,
    lines: usize,
    error: Option<String>,
}

impl AnswerParser {
    /// Expects the answer to `request`, in the version it was sent in, with the
    /// pack framed as [`FetchRequest::upstream_sideband`] said.
    pub fn new(version: Version, request: &FetchRequest, sideband: Sideband, hash: Kind) -> Self {
        Self {
            version,
            sideband: if version == Version::V2 { Sideband::Large } else { sideband },
            hash,
            last: Last::of(request),
            decoder: Decoder::default(),
            place: if version == Version::V2 { Place::Section } else { Place::Start },
            head: Head::default(),
            head_given: false,
            lines: 0,
            error: None,
        }
    }

    /// Takes the next bytes of the answer and gives what they complete.
    ///
    /// After an error the answer is worth nothing; don't go on.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Event>, AnswerError> {
        let mut events = Vec::new();
        self.decoder.push(bytes);
        while self.step(&mut events)? {}
        Ok(events)
    }

    /// The answer has ended here: says whether it may.
    ///
    /// Ok comes with the events that only the end brings, [`Event::End`] last if
    /// it wasn't given before. After [`Event::Error`] this is an error too.
    pub fn finish(&mut self) -> Result<Vec<Event>, AnswerError> {
        let mut events = Vec::new();
        if !self.decoder.held().is_empty() {
            return Err(AnswerError::Truncated);
        }
        match self.place {
            Place::End => return Ok(events),
            Place::Dead => return Err(AnswerError::Remote(self.error.clone().unwrap_or_default())),
            Place::Raw => {}
            _ if self.lines == 0 => return Err(AnswerError::Empty),
            Place::Acks if self.last.is(self.head.acknowledgments.last()) => {
                self.give_head(false, &mut events);
            }
            _ => return Err(AnswerError::Truncated),
        }
        self.end(&mut events);
        Ok(events)
    }

    /// Whether something more can be done with what is held.
    fn step(&mut self, events: &mut Vec<Event>) -> Result<bool, AnswerError> {
        let held = self.decoder.held();
        if held.is_empty() {
            return Ok(false);
        }
        match self.place {
            Place::Dead => {
                self.decoder.take_rest();
                return Ok(false);
            }
            Place::End => return Err(AnswerError::Trailing(held.len())),
            Place::Raw => {
                events.push(Event::Pack(self.decoder.take_rest()));
                return Ok(false);
            }
            Place::Acks if self.sideband == Sideband::None => {
                // A pack starts with four letters that are no packet length.
                if held.starts_with(b"PACK") {
                    self.give_head(true, events);
                    self.place = Place::Raw;
                    return Ok(true);
                }
                if b"PACK".starts_with(held) {
                    return Ok(false);
                }
            }
            _ => {}
        }
        if self.lines == 0 && is_html(held) {
            return Err(AnswerError::Html);
        }
        let Some(packet) = self.decoder.packet()? else { return Ok(false) };
        self.packet(packet, events)?;
        Ok(true)
    }

    fn packet(&mut self, packet: Packet<Bytes>, events: &mut Vec<Event>) -> Result<(), AnswerError> {
        if self.place == Place::Frames {
            return self.frame(packet, events);
        }
        self.lines += 1;
        if self.lines > MOST_LINES {
            return Err(AnswerError::TooLong(MOST_LINES));
        }
        if let Packet::Data(payload) = &packet
            && let Some(text) = pkt::error_text(payload)
        {
            self.give_up(text, events);
            return Ok(());
        }
        match (packet, self.version) {
            (Packet::Data(payload), Version::V0 | Version::V1) => self.line_v0(payload, events),
            (Packet::Flush, Version::V0 | Version::V1) if self.place == Place::Start => {
                self.head.shallow_info.get_or_insert_default();
                self.place = Place::Acks;
                Ok(())
            }
            (Packet::Data(payload), Version::V2) => self.line_v2(chomp(&payload), events),
            (Packet::Delim, Version::V2) => self.section_ends(),
            (Packet::Flush, Version::V2) if self.place == Place::Negotiation && !self.head.ready => {
                self.give_head(false, events);
                self.end(events);
                Ok(())
            }
            _ => Err(AnswerError::Marker),
        }
    }

    fn line_v0(&mut self, payload: Bytes, events: &mut Vec<Event>) -> Result<(), AnswerError> {
        let line = chomp(&payload);
        if self.place == Place::Start && self.cut(line) {
            return Ok(());
        }
        if let Some(acknowledgment) = self.acknowledgment(line) {
            // Shallow lines end with a flush before anything else comes.
            if self.place == Place::Start && self.head.shallow_info.is_some() {
                return Err(AnswerError::Line(pkt::shown(line)));
            }
            self.place = Place::Acks;
            self.head.acknowledgments.push(acknowledgment);
            return Ok(());
        }
        let framed = self.sideband != Sideband::None;
        if framed && self.place == Place::Acks && payload.first().is_some_and(|band| *band <= 3) {
            self.give_head(true, events);
            self.place = Place::Frames;
            return self.frame(Packet::Data(payload), events);
        }
        Err(AnswerError::Line(pkt::shown(line)))
    }

    fn line_v2(&mut self, line: &[u8], events: &mut Vec<Event>) -> Result<(), AnswerError> {
        let bad = || AnswerError::Line(pkt::shown(line));
        match self.place {
            Place::Section => {
                self.place = match line {
                    b"acknowledgments" => Place::Negotiation,
                    b"shallow-info" => Place::Cut,
                    b"wanted-refs" => Place::WantedRefs,
                    b"packfile" => Place::Frames,
                    _ => return Err(bad()),
                };
                match self.place {
                    Place::Cut => _ = self.head.shallow_info.get_or_insert_default(),
                    Place::Frames => self.give_head(true, events),
                    _ => {}
                }
            }
            Place::Negotiation if line == b"ready" => self.head.ready = true,
            Place::Negotiation => {
                let found = self.acknowledgment(line).ok_or_else(bad)?;
                self.head.acknowledgments.push(found);
            }
            Place::Cut => {
                if !self.cut(line) {
                    return Err(bad());
                }
            }
            Place::WantedRefs => {
                let (hex, name) = split_word(line);
                let fits = (1..=LONGEST_NAME).contains(&name.len());
                let oid = object_id(hex, self.hash).filter(|_| fits).ok_or_else(bad)?;
                self.head.wanted_refs.push(WantedRef { oid, name: name.to_vec() });
            }
            _ => return Err(bad()),
        }
        Ok(())
    }

    fn section_ends(&mut self) -> Result<(), AnswerError> {
        match self.place {
            Place::Negotiation if !self.head.ready => return Err(AnswerError::Marker),
            Place::Negotiation | Place::Cut | Place::WantedRefs => self.place = Place::Section,
            _ => return Err(AnswerError::Marker),
        }
        Ok(())
    }

    fn frame(&mut self, packet: Packet<Bytes>, events: &mut Vec<Event>) -> Result<(), AnswerError> {
        let payload = match packet {
            Packet::Data(payload) => payload,
            Packet::Flush => {
                self.end(events);
                return Ok(());
            }
            Packet::Delim | Packet::ResponseEnd => return Err(AnswerError::Marker),
        };
        if let Some(text) = pkt::error_text(&payload) {
            self.give_up(text, events);
            return Ok(());
        }
        let band = *payload.first().ok_or(AnswerError::Channel(0))?;
        let content = payload.slice(1..);
        match Channel::from_number(band).ok_or(AnswerError::Channel(band))? {
            Channel::Error => {
                let text = String::from_utf8_lossy(&content);
                self.give_up(pkt::one_line(text.trim_end()), events);
            }
            // Empty frames only keep the connection alive.
            _ if content.is_empty() => {}
            Channel::Pack => events.push(Event::Pack(content)),
            Channel::Progress => events.push(Event::Progress(content)),
        }
        Ok(())
    }

    fn acknowledgment(&self, line: &[u8]) -> Option<Acknowledgment> {
        if line == b"NAK" {
            return Some(Acknowledgment::Nak);
        }
        let (hex, kind) = split_word(line.strip_prefix(b"ACK ")?);
        let kind = match kind {
            b"" => AckKind::Plain,
            b"common" => AckKind::Common,
            b"continue" => AckKind::Continue,
            b"ready" => AckKind::Ready,
            _ => return None,
        };
        Some(Acknowledgment::Ack(object_id(hex, self.hash)?, kind))
    }

    /// Takes a `shallow` or `unshallow` line; false if it is neither.
    fn cut(&mut self, line: &[u8]) -> bool {
        let (word, hex) = split_word(line);
        let Some(oid) = object_id(hex, self.hash) else { return false };
        let list: fn(&mut ShallowInfo) -> &mut Vec<ObjectId> = match word {
            b"shallow" => |cut| &mut cut.shallow,
            b"unshallow" => |cut| &mut cut.unshallow,
            _ => return false,
        };
        list(self.head.shallow_info.get_or_insert_default()).push(oid);
        true
    }

    /// Gives the head out, once.
    fn give_head(&mut self, pack: bool, events: &mut Vec<Event>) {
        if !std::mem::replace(&mut self.head_given, true) {
            self.head.pack = pack;
            events.push(Event::Head(std::mem::take(&mut self.head)));
        }
    }

    fn end(&mut self, events: &mut Vec<Event>) {
        self.place = Place::End;
        events.push(Event::End);
    }

    fn give_up(&mut self, text: String, events: &mut Vec<Event>) {
        self.place = Place::Dead;
        events.push(Event::Error(text.clone()));
        self.error = Some(text);
    }
}

impl Last {
    fn of(request: &FetchRequest) -> Self {
        match request.ack_mode {
            _ if request.ended_after_deepen => Self::Cut,
            _ if request.done => Self::Never,
            AckMode::Single => Self::NakOrAck,
            AckMode::Multi | AckMode::Detailed => Self::Nak,
        }
    }

    fn is(self, line: Option<&Acknowledgment>) -> bool {
        match (self, line) {
            (Self::Cut, None) | (Self::Nak | Self::NakOrAck, Some(Acknowledgment::Nak)) => true,
            (Self::NakOrAck, Some(Acknowledgment::Ack(_, kind))) => *kind == AckKind::Plain,
            _ => false,
        }
    }
}
