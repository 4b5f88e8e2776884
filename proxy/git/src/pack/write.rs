//! Writes a pack: entries copied as they lie, in the order they lie in.
//!
//! Sorted by (pack, offset), each object by its first pack, so a delta's base
//! comes before the delta and there are no cycles. A delta whose base isn't
//! sent keeps it only if the pack may be thin and the base is proven at the
//! client; else the object is sent whole. Same set, same plan, same bytes.

use std::io::{self, Write};

use flate2::{Compression, write::ZlibEncoder};
use gix_hash::ObjectId;
use gix_object::Kind;
use gix_pack::data::{self, Entry, entry::Header};

use super::{
    Error, PackSet, Plan, Reader, View,
    select::{self, Selection},
    set::{Pack, Place},
};

/// Bytes gathered before the receiver is called.
const CHUNK: usize = 128 << 10;
/// Memory for unpacked bases while objects are sent whole.
const CACHE: usize = 32 << 20;
/// What git packs with by default.
const LEVEL: u32 = 6;

/// What a pack came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Objects, as its header says.
    pub objects: u32,
    /// Bytes, trailer included.
    pub bytes: u64,
    /// Entries that are deltas.
    pub deltas: u32,
    /// Deltas against objects that only the client has.
    pub thin: u32,
    /// Entries that were packed anew because their base isn't sent.
    pub repacked: u32,
    /// The trailer.
    pub checksum: ObjectId,
}

/// Selects the objects of `plan`, made on the same `view`, and streams their pack to `out`.
///
/// After an error what `out` got is cut short and has no trailer: throw it away.
pub fn write(view: &View<'_>, plan: &Plan, out: &mut dyn Write) -> Result<Stats, Error> {
    let selection = select::select(view, plan)?;
    let mut order: Vec<(Place, u32)> =
        selection.objects.iter().map(|&number| (view.set.place(number), number)).collect();
    order.sort_unstable();
    let objects = u32::try_from(order.len()).map_err(|_| Error::TooMany)?;
    let mut writer = Writer {
        set: view.set,
        plan,
        selection: &selection,
        offsets: Vec::with_capacity(order.len()),
        reader: Reader::new(view.set, CACHE),
        sink: Sink::new(out, view.set.hash()),
        stats: Stats { objects, bytes: 0, deltas: 0, thin: 0, repacked: 0, checksum: view.set.hash().null() },
        order: &order,
    };
    writer.sink.write_all(&data::header::encode(data::Version::V2, objects))?;
    for &(place, number) in &order {
        writer.entry(place, number)?;
    }
    let Writer { sink, mut stats, .. } = writer;
    (stats.checksum, stats.bytes) = sink.finish()?;
    Ok(stats)
}

struct Writer<'a> {
    set: &'a PackSet,
    plan: &'a Plan,
    selection: &'a Selection,
    order: &'a [(Place, u32)],
    /// Where each entry of `order` written so far starts in the new pack.
    offsets: Vec<u64>,
    reader: Reader<'a>,
    sink: Sink<'a>,
    stats: Stats,
}

impl Writer<'_> {
    fn entry(&mut self, place: Place, number: u32) -> Result<(), Error> {
        let start = self.sink.written;
        let pack = &self.set.packs()[place.pack];
        let raw =
            pack.entry_bytes(place.offset).ok_or_else(|| self.broken(number, "its entry is out of place"))?;
        if pack.index.crc32_at_index(raw.position).is_some_and(|crc| crc != checksum(raw.bytes)) {
            return Err(self.broken(number, "its entry changed on disk"));
        }
        let entry = Entry::from_bytes(raw.bytes, place.offset, self.set.hash()).map_err(|error| {
            Error::Unreadable { oid: self.set.oid(number).to_owned(), source: Box::new(error) }
        })?;
        match self.base(pack, place, &entry.header, number)? {
            None => self.sink.write_all(raw.bytes)?,
            Some(base) => match self.header_for(base, start) {
                Some(header) => {
                    header.write_to(entry.decompressed_size, &mut self.sink)?;
                    let body = usize::try_from(entry.data_offset - place.offset).unwrap_or(usize::MAX);
                    let body = raw.bytes.get(body..);
                    self.sink.write_all(body.ok_or_else(|| self.set_broken(number))?)?;
                    self.stats.deltas += 1;
                }
                None => self.whole(number)?,
            },
        }
        self.offsets.push(start);
        Ok(())
    }

    /// The object that an entry is a delta against, by the number its name has in the set.
    fn base(&self, pack: &Pack, place: Place, header: &Header, number: u32) -> Result<Option<u32>, Error> {
        match header {
            Header::OfsDelta { base_distance } => {
                let position = Header::verified_base_pack_offset(place.offset, *base_distance)
                    .and_then(|offset| pack.position_at(offset))
                    .ok_or_else(|| self.broken(number, "its delta base is out of place"))?;
                self.set.require(pack.index.oid_at_index(position)).map(Some)
            }
            Header::RefDelta { base_id } => self.set.require(base_id).map(Some),
            _ => Ok(None),
        }
    }

    /// How the entry now starting at `start` may name its base; None if it may not.
    fn header_for(&mut self, base: u32, start: u64) -> Option<Header> {
        let by_name = Header::RefDelta { base_id: self.set.oid(base).to_owned() };
        if self.selection.chosen.holds(base) {
            let before = &self.order[..self.offsets.len()];
            let at = before.binary_search(&(self.set.place(base), base)).ok().filter(|_| self.plan.ofs_delta);
            return Some(
                at.map_or(by_name, |at| Header::OfsDelta { base_distance: start - self.offsets[at] }),
            );
        }
        if self.plan.thin && self.selection.theirs.holds(base) {
            self.stats.thin += 1;
            return Some(by_name);
        }
        None
    }

    fn whole(&mut self, number: u32) -> Result<(), Error> {
        let mut object = Vec::new();
        let header = match self.reader.read(number, &mut object)? {
            Kind::Commit => Header::Commit,
            Kind::Tree => Header::Tree,
            Kind::Blob => Header::Blob,
            Kind::Tag => Header::Tag,
        };
        header.write_to(object.len() as u64, &mut self.sink)?;
        let mut deflate = ZlibEncoder::new(&mut self.sink, Compression::new(LEVEL));
        deflate.write_all(&object)?;
        deflate.finish()?;
        self.stats.repacked += 1;
        Ok(())
    }

    fn broken(&self, number: u32, what: &'static str) -> Error {
        Error::Broken { oid: self.set.oid(number).to_owned(), what }
    }

    fn set_broken(&self, number: u32) -> Error {
        self.broken(number, "its entry is shorter than its header")
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// Gathers, hashes and counts what goes out.
struct Sink<'a> {
    out: &'a mut dyn Write,
    hasher: gix_hash::Hasher,
    gathered: Vec<u8>,
    written: u64,
}

impl<'a> Sink<'a> {
    fn new(out: &'a mut dyn Write, hash: gix_hash::Kind) -> Self {
        Self { out, hasher: gix_hash::hasher(hash), gathered: Vec::with_capacity(CHUNK), written: 0 }
    }

    /// Sends the trailer; gives it and the length of everything.
    fn finish(mut self) -> Result<(ObjectId, u64), Error> {
        let checksum = self.hasher.try_finalize().map_err(io::Error::other)?;
        self.gathered.extend_from_slice(checksum.as_slice());
        self.out.write_all(&self.gathered)?;
        self.out.flush()?;
        Ok((checksum, self.written + checksum.as_slice().len() as u64))
    }
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.hasher.update(bytes);
        self.written += bytes.len() as u64;
        if bytes.len() >= CHUNK {
            self.flush()?;
            self.out.write_all(bytes)?;
        } else {
            self.gathered.extend_from_slice(bytes);
            if self.gathered.len() >= CHUNK {
                self.flush()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.gathered)?;
        self.gathered.clear();
        Ok(())
    }
}
