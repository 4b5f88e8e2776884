//! Reads a pack from its first to its last byte without trusting a number in it.
//!
//! Yields what an index needs of every entry (offset, base, CRC) and holds one
//! buffer, whatever the entries declare. gix's own reader keeps a whole
//! compressed entry in memory and inflates without an end; this one stops at
//! the declared size. Format: gitformat-pack(5).

use std::io::BufRead;

use gix_hash::{Hasher, Kind, ObjectId};
use gix_pack::data::{entry::Header, input};
use gix_zlib::{Decompress, FlushDecompress, Status};

use super::{error::BadPack, limits::Limits};

/// `PACK`, version, number of objects.
pub(super) const HEADER: usize = 12;
/// No entry is shorter: one byte of header, the shortest zlib stream.
const SHORTEST_ENTRY: u64 = 9;

/// Reads the header: how many objects the pack declares.
fn read_header(bytes: [u8; HEADER]) -> Result<u32, BadPack> {
    let [b'P', b'A', b'C', b'K', 0, 0, 0, 2 | 3, a, b, c, d] = bytes else {
        return Err(BadPack::Header);
    };
    Ok(u32::from_be_bytes([a, b, c, d]))
}

/// No base, or a depth not known yet.
const NONE: u32 = u32::MAX;

/// An entry that was read: where it is, how deep, on which other entry.
struct Passed {
    offset: u64,
    depth: u32,
    base: u32,
}

/// A pack being read; an iterator of its entries in all but name.
pub(super) struct Scan<'a, R> {
    read: R,
    limits: &'a Limits,
    kind: Kind,
    hash: Hasher,
    inflate: Decompress,
    /// Where the next byte is in the pack.
    at: u64,
    length: u64,
    left: u32,
    inflated: u64,
    /// Every entry so far, by offset.
    entries: Vec<Passed>,
    /// Deltas whose base is named by id: position in `entries`, base.
    by_id: Vec<(u32, ObjectId)>,
    /// Where entries inflate to, to be counted and forgotten.
    out: Vec<u8>,
}

impl<'a, R: BufRead> Scan<'a, R> {
    /// Begins a pack of `length` bytes.
    pub(super) fn begin(mut read: R, length: u64, kind: Kind, limits: &'a Limits) -> Result<Self, BadPack> {
        let over = |what, found, limit| Err(BadPack::Limit { what, found, limit });
        if length > limits.pack_bytes {
            return over("a pack size", length, limits.pack_bytes);
        }
        let mut header = [0; HEADER];
        read.read_exact(&mut header).map_err(|_| BadPack::Truncated { at: length })?;
        let left = read_header(header)?;
        if left > limits.pack_objects {
            return over("an object count", left.into(), limits.pack_objects.into());
        }
        let room = length.saturating_sub((HEADER + kind.len_in_bytes()) as u64);
        if u64::from(left) > room / SHORTEST_ENTRY {
            return Err(BadPack::Truncated { at: length });
        }
        let mut hash = gix_hash::hasher(kind);
        hash.update(&header);
        Ok(Self {
            read,
            limits,
            kind,
            hash,
            inflate: Decompress::new(),
            at: HEADER as u64,
            length,
            left,
            inflated: 0,
            entries: Vec::new(),
            by_id: Vec::new(),
            out: vec![0; 32 * 1024],
        })
    }

    /// The next entry; `None` once the trailer was read and is right.
    pub(super) fn next_entry(&mut self) -> Result<Option<input::Entry>, BadPack> {
        if self.left == 0 {
            return Ok(None);
        }
        let pack_offset = self.at;
        let mut crc = flate2::Crc::new();
        let (header, declared) = self.header(pack_offset, &mut crc)?;
        let header_size = self.at - pack_offset;
        self.note_depth(pack_offset, header)?;
        self.inflate_entry(pack_offset, declared, header, &mut crc)?;
        self.left -= 1;
        let trailer = if self.left == 0 { Some(self.trailer()?) } else { None };
        Ok(Some(input::Entry {
            header,
            header_size: u16::try_from(header_size).map_err(|_| BadPack::Entry { at: pack_offset })?,
            pack_offset,
            compressed: None,
            compressed_size: self.at
                - pack_offset
                - header_size
                - trailer.map_or(0, |_| self.kind.len_in_bytes() as u64),
            crc32: Some(crc.sum()),
            decompressed_size: declared,
            trailer,
        }))
    }

    /// Checks the rest of a pack without objects.
    pub(super) fn end_of_empty(&mut self) -> Result<(), BadPack> {
        self.trailer().map(|_| ())
    }

    /// Reads and checks the checksum at the end, and that it is the end.
    fn trailer(&mut self) -> Result<ObjectId, BadPack> {
        let mut bytes = [0; 64];
        let bytes = &mut bytes[..self.kind.len_in_bytes()];
        self.read.read_exact(bytes).map_err(|_| BadPack::Truncated { at: self.length })?;
        self.at += bytes.len() as u64;
        let hash = std::mem::replace(&mut self.hash, gix_hash::hasher(self.kind));
        let found = hash.try_finalize().map_err(|_| BadPack::Checksum)?;
        if found.as_slice() != bytes {
            return Err(BadPack::Checksum);
        }
        let mut extra = self.length.saturating_sub(self.at);
        if extra == 0 && !self.read.fill_buf().map_err(|_| BadPack::Truncated { at: self.at })?.is_empty() {
            extra = 1;
        }
        if extra > 0 { Err(BadPack::Trailing { extra }) } else { Ok(found) }
    }

    fn byte(&mut self, crc: &mut flate2::Crc) -> Result<u8, BadPack> {
        let mut byte = [0];
        self.bytes(&mut byte, crc)?;
        Ok(byte[0])
    }

    fn bytes(&mut self, into: &mut [u8], crc: &mut flate2::Crc) -> Result<(), BadPack> {
        self.read.read_exact(into).map_err(|_| BadPack::Truncated { at: self.at })?;
        self.hash.update(into);
        crc.update(into);
        self.at += into.len() as u64;
        Ok(())
    }

    fn header(&mut self, at: u64, crc: &mut flate2::Crc) -> Result<(Header, u64), BadPack> {
        let malformed = || BadPack::Entry { at };
        let mut byte = self.byte(crc)?;
        let kind = (byte >> 4) & 7;
        let mut size = u64::from(byte & 15);
        let mut shift = 4;
        while byte & 0x80 != 0 {
            byte = self.byte(crc)?;
            let part = u64::from(byte & 0x7f);
            if shift > 63 || (part << shift) >> shift != part {
                return Err(malformed());
            }
            size |= part << shift;
            shift += 7;
        }
        if size > self.limits.object_bytes {
            let limit = self.limits.object_bytes;
            return Err(BadPack::Limit { what: "an object size", found: size, limit });
        }
        let header = match kind {
            1 => Header::Commit,
            2 => Header::Tree,
            3 => Header::Blob,
            4 => Header::Tag,
            6 => {
                let base_distance = self.distance(at, crc)?;
                Header::OfsDelta { base_distance }
            }
            7 => {
                let mut id = ObjectId::null(self.kind);
                self.bytes(id.as_mut_slice(), crc)?;
                let position = u32::try_from(self.entries.len()).map_err(|_| malformed())?;
                self.by_id.push((position, id));
                Header::RefDelta { base_id: id }
            }
            _ => return Err(malformed()),
        };
        Ok((header, size))
    }

    fn distance(&mut self, at: u64, crc: &mut flate2::Crc) -> Result<u64, BadPack> {
        let malformed = || BadPack::Entry { at };
        let mut byte = self.byte(crc)?;
        let mut distance = u64::from(byte & 0x7f);
        while byte & 0x80 != 0 {
            byte = self.byte(crc)?;
            distance =
                distance.checked_add(1).and_then(|so_far| so_far.checked_mul(128)).ok_or_else(malformed)?
                    | u64::from(byte & 0x7f);
        }
        Ok(distance)
    }

    /// Bases by offset must be entries we passed, so such deltas cannot form a cycle.
    fn note_depth(&mut self, at: u64, header: Header) -> Result<(), BadPack> {
        let (depth, base) = match header {
            Header::OfsDelta { base_distance } => {
                let base = at.checked_sub(base_distance).ok_or(BadPack::Base { at, base: 0 })?;
                let position = self.position(base).ok_or(BadPack::Base { at, base })?;
                (self.entries[position].depth + 1, u32::try_from(position).unwrap_or(NONE))
            }
            // Its base is found when everything is indexed: see `check_depths`.
            Header::RefDelta { .. } => (1, NONE),
            _ => (0, NONE),
        };
        self.check_depth(depth)?;
        self.entries.push(Passed { offset: at, depth, base });
        Ok(())
    }

    fn check_depth(&self, depth: u32) -> Result<(), BadPack> {
        let limit = self.limits.delta_depth;
        if depth > limit {
            return Err(BadPack::Limit { what: "a delta depth", found: depth.into(), limit: limit.into() });
        }
        Ok(())
    }

    fn position(&self, offset: u64) -> Option<usize> {
        self.entries.binary_search_by_key(&offset, |entry| entry.offset).ok()
    }

    /// The bases that deltas name by id, each once.
    pub(super) fn bases(&self) -> Vec<ObjectId> {
        let mut bases: Vec<_> = self.by_id.iter().map(|(_, base)| *base).collect();
        bases.sort_unstable();
        bases.dedup();
        bases
    }

    /// Checks the depth of deltas by id, once `offset_of` knows where each base is.
    pub(super) fn check_depths(
        &mut self,
        offset_of: impl Fn(&ObjectId) -> Option<u64>,
    ) -> Result<(), BadPack> {
        if self.by_id.is_empty() {
            return Ok(());
        }
        for (position, base) in std::mem::take(&mut self.by_id) {
            let base = offset_of(&base).and_then(|offset| self.position(offset));
            let base = base.ok_or_else(|| BadPack::Unresolved("a base is missing".into()))?;
            self.entries[position as usize].base = u32::try_from(base).unwrap_or(NONE);
        }
        for entry in &mut self.entries {
            entry.depth = if entry.base == NONE { 0 } else { NONE };
        }
        let mut path = Vec::new();
        for start in 0..self.entries.len() {
            let mut at = start;
            while self.entries[at].depth == NONE {
                path.push(at);
                self.check_depth(u32::try_from(path.len()).unwrap_or(NONE))?;
                at = self.entries[at].base as usize;
            }
            let mut depth = self.entries[at].depth;
            while let Some(child) = path.pop() {
                depth += 1;
                self.check_depth(depth)?;
                self.entries[child].depth = depth;
            }
        }
        Ok(())
    }

    fn inflate_entry(
        &mut self,
        at: u64,
        declared: u64,
        header: Header,
        crc: &mut flate2::Crc,
    ) -> Result<(), BadPack> {
        self.inflate.reset();
        // The start of a delta says how big its result is.
        let mut front = Front::default();
        loop {
            let input = self.read.fill_buf().map_err(|_| BadPack::Truncated { at: self.at })?;
            let (taken, made) = (self.inflate.total_in(), self.inflate.total_out());
            let ended = input.is_empty();
            let status = self
                .inflate
                .decompress(input, self.out.as_mut_slice(), FlushDecompress::None)
                .map_err(|_| BadPack::Entry { at })?;
            let consumed = usize::try_from(self.inflate.total_in() - taken).unwrap_or(input.len());
            let produced = usize::try_from(self.inflate.total_out() - made).unwrap_or(self.out.len());
            self.hash.update(&input[..consumed]);
            crc.update(&input[..consumed]);
            self.read.consume(consumed);
            self.at += consumed as u64;
            front.keep(&self.out[..produced]);
            if self.inflate.total_out() > declared {
                return Err(BadPack::SizeLie { at });
            }
            match status {
                Status::StreamEnd => break,
                _ if ended => return Err(BadPack::Truncated { at: self.at }),
                _ if consumed == 0 && produced == 0 => return Err(BadPack::Entry { at }),
                Status::Ok | Status::BufError => {}
            }
        }
        if self.inflate.total_out() != declared {
            return Err(BadPack::SizeLie { at });
        }
        let size =
            if header.is_delta() { front.result_size().ok_or(BadPack::Entry { at })? } else { declared };
        self.account(size)
    }

    /// Small deltas can stand for endless work; the sum of all objects is capped.
    fn account(&mut self, size: u64) -> Result<(), BadPack> {
        let over = |what, found, limit| Err(BadPack::Limit { what, found, limit });
        if size > self.limits.object_bytes {
            return over("an object size", size, self.limits.object_bytes);
        }
        self.inflated = self.inflated.saturating_add(size);
        if self.inflated > self.limits.inflated_bytes {
            return over("an unpacked size", self.inflated, self.limits.inflated_bytes);
        }
        Ok(())
    }
}

/// The first bytes of a delta: the size of its base, the size of its result.
#[derive(Default)]
struct Front {
    bytes: [u8; 20],
    filled: usize,
}

impl Front {
    fn keep(&mut self, bytes: &[u8]) {
        let take = bytes.len().min(self.bytes.len() - self.filled);
        self.bytes[self.filled..self.filled + take].copy_from_slice(&bytes[..take]);
        self.filled += take;
    }

    fn result_size(&self) -> Option<u64> {
        let mut at = 0;
        let mut size = 0;
        for _ in 0..2 {
            size = 0;
            for shift in (0..63).step_by(7) {
                let byte = *self.bytes[..self.filled].get(at)?;
                at += 1;
                size |= u64::from(byte & 0x7f) << shift;
                if byte & 0x80 == 0 {
                    break;
                }
            }
        }
        Some(size)
    }
}
