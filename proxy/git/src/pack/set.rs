//! A set of packs that never changes: every object has a dense number.
//!
//! Packs are ordered biggest first. An object that is in several packs goes by
//! its place in the first of them, so whatever is written in (pack, offset)
//! order meets a delta's base before the delta.

use std::path::{Path, PathBuf};

use gix_hash::{Kind, oid};
use gix_pack::{data, index};

use super::Error;

/// Sizes above which an object is refused rather than unpacked.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Any object, with the work space its deltas need.
    pub object: u64,
    /// A tree, commit or tag: what a walk must hold in memory.
    pub structure: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { object: 2 << 30, structure: 256 << 20 }
    }
}

/// One pack with its index, both mapped.
pub(super) struct Pack {
    pub(super) index: index::File,
    pub(super) data: data::File,
    /// Where entries start, ascending, then where the last one ends.
    starts: Vec<u64>,
    /// The index position of the entry at each of `starts`.
    positions: Vec<u32>,
    /// The number of this pack's first object.
    first: u32,
}

/// An immutable, ordered set of packs.
pub struct PackSet {
    packs: Vec<Pack>,
    names: Vec<PathBuf>,
    total: u32,
    hash: Kind,
    limits: Limits,
}

/// Where an object's entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// Which pack, in order.
    pub(super) pack: usize,
    /// Where its entry starts.
    pub(super) offset: u64,
}

impl PackSet {
    /// Opens every index of `paths` with the `.pack` beside it.
    ///
    /// The order of `paths` doesn't matter; the same packs give the same numbers.
    pub fn open(paths: &[PathBuf], hash: Kind) -> Result<Self, Error> {
        Self::open_limited(paths, hash, Limits::default())
    }

    /// [`open`](Self::open), with limits of one's own.
    pub fn open_limited(paths: &[PathBuf], hash: Kind, limits: Limits) -> Result<Self, Error> {
        let mut files =
            paths.iter().map(|path| open_pack(path, hash, limits)).collect::<Result<Vec<_>, _>>()?;
        files.sort_by(|(a, a_path), (b, b_path)| {
            b.data.data_len().cmp(&a.data.data_len()).then_with(|| a_path.cmp(b_path))
        });
        files.dedup_by(|(_, a), (_, b)| a == b);
        let mut set =
            Self { packs: Vec::with_capacity(files.len()), names: Vec::new(), total: 0, hash, limits };
        for (mut pack, path) in files {
            pack.first = set.total;
            // The decode cache tells packs apart by this number.
            pack.data.id = u32::try_from(set.packs.len()).map_err(|_| Error::TooMany)?;
            set.total = set.total.checked_add(pack.index.num_objects()).ok_or(Error::TooMany)?;
            set.packs.push(pack);
            set.names.push(path);
        }
        // The last number stays free, as a mark for "none".
        if set.total == u32::MAX { Err(Error::TooMany) } else { Ok(set) }
    }

    /// The number of the object `id`, if it is here.
    pub fn number(&self, id: &oid) -> Option<u32> {
        if id.kind() != self.hash {
            return None;
        }
        self.packs.iter().find_map(|pack| Some(pack.first + pack.index.lookup(id)?))
    }

    /// The number of the object `id`, or an error that names it.
    pub(super) fn require(&self, id: &oid) -> Result<u32, Error> {
        self.number(id).ok_or_else(|| Error::Missing { oid: id.to_owned() })
    }

    /// Whether the object `id` is here.
    pub fn contains(&self, id: &oid) -> bool {
        self.number(id).is_some()
    }

    /// The name of an object.
    ///
    /// # Panics
    /// If `number` isn't below [`total`](Self::total).
    pub fn oid(&self, number: u32) -> &oid {
        let (pack, position) = self.split(number);
        pack.index.oid_at_index(position)
    }

    /// One past the highest object number; duplicates count.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// The index files, in this set's order.
    pub fn names(&self) -> &[PathBuf] {
        &self.names
    }

    /// The hash function of the repository.
    pub fn hash(&self) -> Kind {
        self.hash
    }

    /// The caps this set was opened with.
    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    /// The packs, in order.
    pub(super) fn packs(&self) -> &[Pack] {
        &self.packs
    }

    /// Where an object's entry is.
    pub(super) fn place(&self, number: u32) -> Place {
        let pack = self.pack_of(number);
        let position = number - self.packs[pack].first;
        Place { pack, offset: self.packs[pack].index.pack_offset_at_index(position) }
    }

    fn pack_of(&self, number: u32) -> usize {
        assert!(number < self.total, "object numbers come from this set");
        self.packs.partition_point(|pack| pack.first <= number) - 1
    }

    fn split(&self, number: u32) -> (&Pack, u32) {
        let pack = &self.packs[self.pack_of(number)];
        (pack, number - pack.first)
    }
}

impl std::fmt::Debug for PackSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PackSet")
            .field("names", &self.names)
            .field("total", &self.total)
            .finish_non_exhaustive()
    }
}

/// An entry as it lies in its pack.
pub(super) struct RawEntry<'a> {
    /// Header and compressed bytes.
    pub(super) bytes: &'a [u8],
    /// Its place in the index.
    pub(super) position: u32,
}

impl Pack {
    /// The index position of the entry that starts at `offset`.
    pub(super) fn position_at(&self, offset: u64) -> Option<u32> {
        let slot = self.starts.binary_search(&offset).ok()?;
        self.positions.get(slot).copied()
    }

    /// The whole entry that starts at `offset`.
    pub(super) fn entry_bytes(&self, offset: u64) -> Option<RawEntry<'_>> {
        let slot = self.starts.binary_search(&offset).ok()?;
        let end = *self.starts.get(slot + 1)?;
        Some(RawEntry { bytes: self.data.entry_slice(offset..end)?, position: *self.positions.get(slot)? })
    }
}

fn open_pack(path: &Path, hash: Kind, limits: Limits) -> Result<(Pack, PathBuf), Error> {
    let broken = |what| Error::Pack { path: path.to_owned(), what, source: None };
    let index = index::File::at(path, hash).map_err(|error| Error::Pack {
        path: path.to_owned(),
        what: "its index can't be opened",
        source: Some(Box::new(error)),
    })?;
    let data = data::File::at(path.with_extension("pack"), hash).map_err(|error| Error::Pack {
        path: path.to_owned(),
        what: "its data can't be opened",
        source: Some(Box::new(error)),
    })?;
    let data = data.with_alloc_limit_bytes(Some(usize::try_from(limits.object).unwrap_or(usize::MAX)));
    if index.num_objects() != data.num_objects() || index.pack_checksum() != data.checksum() {
        return Err(broken("index and data don't belong together"));
    }
    let mut entries: Vec<(u64, u32)> =
        (0..index.num_objects()).map(|at| (index.pack_offset_at_index(at), at)).collect();
    entries.sort_unstable();
    let end = data.pack_end() as u64;
    let outside = |&(offset, _): &(u64, u32)| offset < data::header::SIZE as u64 || offset >= end;
    if entries.iter().any(outside) || entries.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return Err(broken("its index points outside of its data"));
    }
    let starts = entries.iter().map(|entry| entry.0).chain([end]).collect();
    let positions = entries.iter().map(|entry| entry.1).collect();
    Ok((Pack { index, data, starts, positions, first: 0 }, path.to_owned()))
}
