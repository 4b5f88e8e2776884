//! What to answer to a client's haves: line by line what git's own upload-pack
//! says in its stateless mode, for every protocol version.
//!
//! Pure: the caller says what we hold and when enough is in common. The cut of
//! history and the wanted refs are the caller's to fill in; so is the pack.
//! Grammar: gitprotocol-pack(5), "Packfile Negotiation"; gitprotocol-v2(5).

#[cfg(test)]
mod tests;

use gix_hash::{ObjectId, oid};

use crate::wire::{
    answer::{AckKind, Acknowledgment, Head},
    fetch::{AckMode, FetchRequest},
    protocol::Version,
};

/// How a fetch is answered, up to its pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negotiation {
    /// The answer's head, without the cut of history and wanted refs.
    pub head: Head,
    /// The haves we hold too, each once, in the client's order.
    pub common: Vec<ObjectId>,
    /// Whether the pack follows in this answer.
    pub send_pack: bool,
}

/// Answers the haves of `request`.
///
/// `has` tells whether we hold an object. `ready` tells whether every want
/// reaches one of the given common objects or their parents, tags peeled, wants
/// that are no commits not counted; it is never asked with no common objects,
/// and only again when there are more of them.
pub fn negotiate(
    request: &FetchRequest,
    version: Version,
    has: impl FnMut(&oid) -> bool,
    ready: impl FnMut(&[ObjectId]) -> bool,
) -> Negotiation {
    let mut round = Round { request, has, ready, common: Common::default(), acknowledgments: Vec::new() };
    let (send_pack, said_ready) = match version {
        Version::V0 | Version::V1 => (round.v0(), false),
        Version::V2 => round.v2(),
    };
    let head = Head {
        acknowledgments: round.acknowledgments,
        ready: said_ready,
        pack: send_pack,
        ..Head::default()
    };
    Negotiation { head, common: round.common.oids, send_pack }
}

/// What is in common so far, and what is known about it.
#[derive(Default)]
struct Common {
    oids: Vec<ObjectId>,
    seen: std::collections::HashSet<ObjectId>,
    /// How many there were when `ready` was asked last, and its answer.
    judged: (usize, bool),
}

struct Round<'a, H, R> {
    request: &'a FetchRequest,
    has: H,
    ready: R,
    common: Common,
    acknowledgments: Vec<Acknowledgment>,
}

impl<H: FnMut(&oid) -> bool, R: FnMut(&[ObjectId]) -> bool> Round<'_, H, R> {
    /// Whether the pack follows.
    fn v0(&mut self) -> bool {
        if self.request.wants_nothing() || self.request.ended_after_deepen {
            return false;
        }
        let mode = self.request.ack_mode;
        let mut last = None;
        let mut only_common = true;
        let mut said_ready = false;
        for have in &self.request.haves {
            if self.holds(have) {
                // Plain mode has one word for all of them: the first.
                match mode {
                    AckMode::Detailed => self.ack(have, AckKind::Common),
                    AckMode::Multi => self.ack(have, AckKind::Continue),
                    AckMode::Single if last.is_none() => self.ack(have, AckKind::Plain),
                    AckMode::Single => {}
                }
                last = Some(*have);
            } else {
                only_common = false;
                // Unknown to us, but we need no more: say so, to end the search.
                if mode != AckMode::Single && self.is_ready() {
                    said_ready |= mode == AckMode::Detailed;
                    let detailed = mode == AckMode::Detailed;
                    self.ack(have, if detailed { AckKind::Ready } else { AckKind::Continue });
                }
            }
        }
        if self.request.done {
            match last {
                None => self.acknowledgments.push(Acknowledgment::Nak),
                Some(last) if mode != AckMode::Single => self.ack(&last, AckKind::Plain),
                Some(_) => {}
            }
            return true;
        }
        if let Some(last) = last.filter(|_| mode == AckMode::Detailed && only_common)
            && self.is_ready()
        {
            said_ready = true;
            self.ack(&last, AckKind::Ready);
        }
        if last.is_none() || mode != AckMode::Single {
            self.acknowledgments.push(Acknowledgment::Nak);
        }
        // `ready` is only ever said when something is in common.
        match last.filter(|_| said_ready && self.request.no_done) {
            Some(last) => {
                self.ack(&last, AckKind::Plain);
                true
            }
            None => false,
        }
    }

    /// Whether the pack follows, and whether `ready` was said.
    fn v2(&mut self) -> (bool, bool) {
        let request = self.request;
        if request.wants_nothing() && !request.wait_for_done {
            return (false, false);
        }
        if request.haves.is_empty() {
            return (true, false);
        }
        for have in &request.haves {
            if self.holds(have) && !request.done {
                self.ack(have, AckKind::Plain);
            }
        }
        if request.done {
            return (true, false);
        }
        if self.acknowledgments.is_empty() {
            self.acknowledgments.push(Acknowledgment::Nak);
        }
        let ready = !request.wait_for_done && self.is_ready();
        (ready, ready)
    }

    fn ack(&mut self, have: &ObjectId, kind: AckKind) {
        self.acknowledgments.push(Acknowledgment::Ack(*have, kind));
    }

    fn holds(&mut self, have: &ObjectId) -> bool {
        let holds = self.common.seen.contains(have) || (self.has)(have);
        if holds && self.common.seen.insert(*have) {
            self.common.oids.push(*have);
        }
        holds
    }

    /// More in common never makes less ready, so an answer is asked for only
    /// when it can have changed.
    fn is_ready(&mut self) -> bool {
        let (judged, ready) = self.common.judged;
        let count = self.common.oids.len();
        if !ready && count > judged {
            self.common.judged = (count, (self.ready)(&self.common.oids));
        }
        self.common.judged.1
    }
}
