//! The name under which a pack may be kept and given to others.
//!
//! A digest over everything that decides which objects are in the pack and
//! which a delta may lean on, and over nothing else: not the haves, not the
//! depth that was asked for, not the generation. Every part has a tag and a
//! length, so that no two requests write the same bytes.

use gix_hash::ObjectId;
use sha2::{Digest, Sha256};

use super::Plan;

/// Changes whenever the writer would write other objects or other deltas for the same plan.
const WRITER_FORMAT: u32 = 1;

impl Plan {
    /// The key of this plan's pack in `repository`, whose name must be its identity.
    pub fn key(&self, repository: &str) -> [u8; 32] {
        let mut key = Encoder(Sha256::new());
        key.part(b"tidegate pack", &WRITER_FORMAT.to_be_bytes());
        key.part(b"repository", repository.as_bytes());
        key.part(b"hash", self.names.hash.to_string().as_bytes());
        key.ids(b"tips", &self.names.tips);
        key.ids(b"objects", &self.names.objects);
        key.ids(b"bases", &self.names.bases);
        key.ids(b"ends", &self.names.ends);
        key.ids(b"shallow", &self.shallow);
        key.ids(b"unshallow", &self.unshallow);
        for (tag, peeled) in &self.include {
            key.ids(b"include", &[*tag, *peeled]);
        }
        let filter = self.filter.as_ref().map(super::Filter::encode);
        key.part(b"filter", filter.as_deref().unwrap_or_default().as_bytes());
        key.part(b"thin", &[u8::from(self.thin)]);
        key.part(b"ofs-delta", &[u8::from(self.ofs_delta)]);
        key.0.finalize().into()
    }
}

struct Encoder(Sha256);

impl Encoder {
    fn part(&mut self, name: &[u8], bytes: &[u8]) {
        for field in [name, bytes] {
            self.0.update((field.len() as u64).to_be_bytes());
            self.0.update(field);
        }
    }

    fn ids(&mut self, name: &[u8], ids: &[ObjectId]) {
        self.part(name, &(ids.len() as u64).to_be_bytes());
        for id in ids {
            self.part(b"id", id.as_slice());
        }
    }
}
