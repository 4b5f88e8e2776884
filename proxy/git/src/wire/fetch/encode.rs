//! Asks an upstream for what a [`FetchRequest`] says, in the upstream's version
//! and with the capabilities it has.
//!
//! Haves and `done` go in the same body, so that the pack comes in the first
//! answer, whatever the version.

use gix_hash::{Kind, ObjectId};

use super::{AckMode, Deepen, FetchRequest, Sideband};
use crate::wire::{
    capabilities::{Capabilities, Feature, UPSTREAM_AGENT},
    error::Unsupported,
    pkt,
    protocol::Version,
    request,
};

impl FetchRequest {
    /// Writes the request in the upstream's version.
    pub fn encode(&self, upstream: &Capabilities) -> Result<Vec<u8>, Unsupported> {
        match upstream.version() {
            Version::V0 | Version::V1 => self.encode_v0(upstream),
            Version::V2 => self.encode_v2(upstream),
        }
    }

    /// How the pack will travel in the upstream's answer.
    pub fn upstream_sideband(&self, upstream: &Capabilities) -> Sideband {
        if upstream.version() == Version::V2 || upstream.has(Feature::SideBand64k) {
            Sideband::Large
        } else if upstream.has(Feature::SideBand) {
            Sideband::Small
        } else {
            Sideband::None
        }
    }

    /// Writes the whole body of a v2 `fetch`.
    pub fn encode_v2(&self, upstream: &Capabilities) -> Result<Vec<u8>, Unsupported> {
        self.check(upstream)?;
        if !self.want_refs.is_empty() && !upstream.has(Feature::RefInWant) {
            return Err(Unsupported::WantRef);
        }
        let mut out = request::start("fetch", upstream);
        let flags: [(bool, &[u8]); 5] = [
            (self.thin_pack, b"thin-pack"),
            (self.no_progress, b"no-progress"),
            (self.include_tag, b"include-tag"),
            (self.ofs_delta, b"ofs-delta"),
            (self.wait_for_done && upstream.has(Feature::WaitForDone), b"wait-for-done"),
        ];
        for (_, word) in flags.iter().filter(|(on, _)| *on) {
            pkt::line(&mut out, &[word]);
        }
        self.cuts(&mut out);
        if let Some(Deepen::Depth { relative: true, .. }) = self.deepen {
            pkt::line(&mut out, &[b"deepen-relative"]);
        }
        if let Some(filter) = &self.filter {
            pkt::line(&mut out, &[b"filter ", filter.encode().as_bytes()]);
        }
        for want in &self.wants {
            object_line(&mut out, b"want ", want);
        }
        for name in &self.want_refs {
            pkt::line(&mut out, &[b"want-ref ", name]);
        }
        for have in &self.haves {
            object_line(&mut out, b"have ", have);
        }
        if self.done {
            pkt::line(&mut out, &[b"done"]);
        }
        pkt::flush(&mut out);
        Ok(out)
    }

    /// Writes the whole body of a v0 or v1 request.
    pub fn encode_v0(&self, upstream: &Capabilities) -> Result<Vec<u8>, Unsupported> {
        self.check(upstream)?;
        if !self.want_refs.is_empty() {
            return Err(Unsupported::WantRef);
        }
        let mut out = Vec::new();
        let mut words = Some(self.words(upstream));
        for want in &self.wants {
            match words.take() {
                Some(words) => {
                    pkt::line(&mut out, &[b"want ", want.to_string().as_bytes(), words.as_bytes()]);
                }
                None => object_line(&mut out, b"want ", want),
            }
        }
        self.cuts(&mut out);
        if let Some(filter) = &self.filter {
            pkt::line(&mut out, &[b"filter ", filter.encode().as_bytes()]);
        }
        pkt::flush(&mut out);
        if self.ended_after_deepen {
            return Ok(out);
        }
        for have in &self.haves {
            object_line(&mut out, b"have ", have);
        }
        if self.done {
            pkt::line(&mut out, &[b"done"]);
        } else {
            pkt::flush(&mut out);
        }
        Ok(out)
    }

    /// The words behind the first want, a space before each: what we want of
    /// what there is.
    fn words(&self, upstream: &Capabilities) -> String {
        let has = |feature| upstream.has(feature);
        let detailed = self.ack_mode == AckMode::Detailed && has(Feature::MultiAckDetailed);
        let multi = self.ack_mode != AckMode::Single && !detailed && has(Feature::MultiAck);
        let sideband = self.upstream_sideband(upstream);
        let depth = matches!(self.deepen, Some(Deepen::Depth { relative: true, .. }));
        let (since, not) = self.cutoff();
        let words = [
            (multi, "multi_ack"),
            (detailed, "multi_ack_detailed"),
            (self.no_done && detailed && has(Feature::NoDone), "no-done"),
            (sideband == Sideband::Large, "side-band-64k"),
            (sideband == Sideband::Small, "side-band"),
            (self.thin_pack && has(Feature::ThinPack), "thin-pack"),
            (self.no_progress && has(Feature::NoProgress), "no-progress"),
            (self.include_tag && has(Feature::IncludeTag), "include-tag"),
            (self.ofs_delta && has(Feature::OfsDelta), "ofs-delta"),
            (since, "deepen-since"),
            (not, "deepen-not"),
            (depth, "deepen-relative"),
            (self.filter.is_some(), "filter"),
        ];
        let mut line = String::new();
        for (_, word) in words.iter().filter(|(on, _)| *on) {
            line.push(' ');
            line.push_str(word);
        }
        if has(Feature::Agent) {
            line.push_str(" agent=");
            line.push_str(UPSTREAM_AGENT);
        }
        line
    }

    /// Whether history is cut at a time, and at refs.
    fn cutoff(&self) -> (bool, bool) {
        match &self.deepen {
            Some(Deepen::Cutoff { since, not }) => (since.is_some(), !not.is_empty()),
            _ => (false, false),
        }
    }

    fn check(&self, upstream: &Capabilities) -> Result<(), Unsupported> {
        let (since, not) = self.cutoff();
        let relative = matches!(self.deepen, Some(Deepen::Depth { relative: true, .. }));
        let shallow = self.deepen.is_some() || !self.shallows.is_empty();
        for (needed, feature, lacking) in [
            (self.filter.is_some(), Feature::Filter, Unsupported::Filter),
            (shallow, Feature::Shallow, Unsupported::Shallow),
            (since, Feature::DeepenSince, Unsupported::DeepenSince),
            (not, Feature::DeepenNot, Unsupported::DeepenNot),
            (relative, Feature::DeepenRelative, Unsupported::DeepenRelative),
        ] {
            if needed && !upstream.has(feature) {
                return Err(lacking);
            }
        }
        Ok(())
    }

    fn cuts(&self, out: &mut Vec<u8>) {
        for shallow in &self.shallows {
            object_line(out, b"shallow ", shallow);
        }
        match &self.deepen {
            None => {}
            Some(Deepen::Depth { n, .. }) => pkt::line(out, &[b"deepen ", n.to_string().as_bytes()]),
            Some(Deepen::Cutoff { since, not }) => {
                if let Some(since) = since {
                    pkt::line(out, &[b"deepen-since ", since.to_string().as_bytes()]);
                }
                for name in not {
                    pkt::line(out, &[b"deepen-not ", name]);
                }
            }
        }
    }
}

fn object_line(out: &mut Vec<u8>, word: &[u8], oid: &ObjectId) {
    let mut hex = Kind::hex_buf();
    pkt::line(out, &[word, oid.hex_to_buf(&mut hex).as_bytes()]);
}
