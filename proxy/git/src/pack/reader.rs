//! Unpacks objects of a pack set, within its limits.

use gix_object::Kind;
use gix_pack::{cache, data::decode};

use super::{Error, PackSet, set::Place};

/// Reads objects of one set; one per thread, with a decode cache of its own.
pub struct Reader<'a> {
    set: &'a PackSet,
    inflate: gix_zlib::Inflate,
    cache: Box<dyn cache::DecodeEntry + Send>,
}

impl<'a> Reader<'a> {
    /// A reader that keeps up to `budget` bytes of unpacked objects; 0 keeps none.
    pub fn new(set: &'a PackSet, budget: usize) -> Self {
        let cache: Box<dyn cache::DecodeEntry + Send> = if budget == 0 {
            Box::new(cache::Never)
        } else {
            Box::new(cache::lru::MemoryCappedHashmap::new(budget))
        };
        Self { set, inflate: gix_zlib::Inflate::default(), cache }
    }

    /// The set this reads from.
    pub fn set(&self) -> &'a PackSet {
        self.set
    }

    /// Unpacks an object into `out`, replacing what was there.
    pub fn read(&mut self, number: u32, out: &mut Vec<u8>) -> Result<Kind, Error> {
        let Place { pack, offset } = self.set.place(number);
        let pack = &self.set.packs()[pack];
        let unreadable = |error| self.unreadable(number, error);
        let entry = pack.data.entry(offset).map_err(|error| unreadable(Box::new(error)))?;
        out.clear();
        let base = |id: &gix_hash::oid, _: &mut Vec<u8>| match pack.index.lookup(id) {
            Some(at) => {
                let entry = pack.data.entry(pack.index.pack_offset_at_index(at))?;
                Ok(Some(decode::entry::ResolvedBase::InPack(entry)))
            }
            None => Ok(None),
        };
        let outcome = pack.data.decode_entry(entry, out, &mut self.inflate, &base, &mut *self.cache);
        let kind = outcome.map_err(|error| self.unreadable(number, Box::new(error)))?.kind;
        let limit = match kind {
            Kind::Blob => self.set.limits().object,
            _ => self.set.limits().structure,
        };
        if out.len() as u64 > limit {
            let oid = self.set.oid(number).to_owned();
            return Err(Error::TooLarge { oid, size: out.len() as u64, limit });
        }
        Ok(kind)
    }

    /// Unpacks an object that must be of one kind.
    pub(super) fn read_as(&mut self, number: u32, kind: Kind, out: &mut Vec<u8>) -> Result<(), Error> {
        if self.read(number, out)? == kind {
            return Ok(());
        }
        let what = match kind {
            Kind::Tree => "it is referred to as a tree but isn't one",
            Kind::Commit => "it is referred to as a commit but isn't one",
            Kind::Tag => "it is referred to as a tag but isn't one",
            Kind::Blob => "it is referred to as a blob but isn't one",
        };
        Err(Error::Broken { oid: self.set.oid(number).to_owned(), what })
    }

    /// The kind of an object.
    pub fn kind(&mut self, number: u32) -> Result<Kind, Error> {
        Ok(self.header(number)?.0)
    }

    /// The unpacked size of an object.
    pub(super) fn size(&mut self, number: u32) -> Result<u64, Error> {
        Ok(self.header(number)?.1)
    }

    fn header(&mut self, number: u32) -> Result<(Kind, u64), Error> {
        let Place { pack, offset } = self.set.place(number);
        let pack = &self.set.packs()[pack];
        let entry = pack.data.entry(offset).map_err(|error| self.unreadable(number, Box::new(error)))?;
        let base = |id: &gix_hash::oid| match pack.index.lookup(id) {
            Some(at) => {
                let entry = pack.data.entry(pack.index.pack_offset_at_index(at))?;
                Ok(Some(decode::header::ResolvedBase::InPack(entry)))
            }
            None => Ok(None),
        };
        let outcome = pack.data.decode_header(entry, &mut self.inflate, &base);
        let outcome = outcome.map_err(|error| self.unreadable(number, Box::new(error)))?;
        Ok((outcome.kind, outcome.object_size))
    }

    fn unreadable(&self, number: u32, source: Box<dyn std::error::Error + Send + Sync>) -> Error {
        Error::Unreadable { oid: self.set.oid(number).to_owned(), source }
    }
}
