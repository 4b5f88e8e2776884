//! From an upstream's pack file to a verified pack with an index, in quarantine.
//!
//! A pack that stands alone is hard-linked as it came; a thin one is completed
//! into a new file by appending the bases it lacks, as `git index-pack
//! --fix-thin` does. Every object's id is computed from its bytes here (SHA-1
//! with collision detection). Connectivity is not looked at.

use std::{
    cell::RefCell,
    fs::{self, File},
    io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use gix_features::progress::Discard;
use gix_hash::{Hasher, Kind, ObjectId};
use gix_pack::{
    data::{self, EntryRange, entry::Header},
    index,
};

use super::{
    error::{BadPack, Error},
    folder::{Quarantine, pack_name, sync_file},
    generation::PackFile,
    limits::Limits,
    scan::{HEADER, Scan},
};
use crate::pack::{PackSet, Reader};

/// Inflated bases remembered while a thin pack is completed.
const BASE_CACHE: usize = 16 << 20;

/// A verified, durable pack that is not visible yet.
pub(super) struct Incoming {
    /// What its files are.
    pub(super) file: PackFile,
    /// Where the pack is; its index is beside it.
    pub(super) path: PathBuf,
}

/// One pack being taken in.
pub(super) struct Ingest<'a> {
    /// Where to work.
    pub(super) quarantine: &'a Quarantine,
    /// Where thin packs find their bases.
    pub(super) held: Option<&'a PackSet>,
    /// Names objects.
    pub(super) kind: Kind,
    pub(super) limits: &'a Limits,
    /// Ends the work early when set.
    pub(super) stop: &'a AtomicBool,
}

/// What one attempt at an index came to.
enum Attempt {
    /// An index was written.
    Indexed(PackFile),
    /// Bases by id that we hold and the pack may lack.
    Thin(Vec<ObjectId>),
    /// No objects at all.
    Empty,
}

impl Ingest<'_> {
    /// Verifies and indexes `pack`; `None` if it is a valid pack of no objects.
    pub(super) fn run(&self, pack: &Path) -> Result<Option<Incoming>, Error> {
        let index = self.quarantine.path().join("incoming.idx");
        let (file, path) = match self.index(pack, &index, true)? {
            Attempt::Empty => return Ok(None),
            Attempt::Indexed(file) => {
                let path = self.quarantine.path().join(pack_name(&file.checksum));
                // Across file systems there are no links; then it is a copy.
                if fs::hard_link(pack, &path).is_err() {
                    fs::copy(pack, &path).map_err(Error::io("write", &path))?;
                }
                (file, path)
            }
            Attempt::Thin(bases) => self.complete_and_index(pack, &index, bases)?,
        };
        let named = path.with_extension("idx");
        fs::rename(&index, &named).map_err(Error::io("rename", &index))?;
        sync_file(&path)?;
        sync_file(&named)?;
        Ok(Some(Incoming { file, path }))
    }

    fn complete_and_index(
        &self,
        pack: &Path,
        index: &Path,
        bases: Vec<ObjectId>,
    ) -> Result<(PackFile, PathBuf), Error> {
        let completed = self.quarantine.path().join("completed");
        self.complete(pack, &completed, &bases)?;
        let mut attempt = self.index(&completed, index, false)?;
        // A base may be in the pack too, under a delta that only now has an id.
        let twice = duplicates(index, self.kind)?;
        if bases.iter().any(|base| twice.contains(base)) {
            let bases: Vec<_> = bases.into_iter().filter(|base| !twice.contains(base)).collect();
            self.complete(pack, &completed, &bases)?;
            attempt = self.index(&completed, index, false)?;
        }
        let Attempt::Indexed(file) = attempt else {
            return Err(BadPack::Unresolved("it changed while it was read".into()).into());
        };
        let path = self.quarantine.path().join(pack_name(&file.checksum));
        fs::rename(&completed, &path).map_err(Error::io("rename", &completed))?;
        Ok((file, path))
    }

    /// Reads the pack from end to end and writes its index, unless it is thin.
    fn index(&self, pack: &Path, index: &Path, may_be_thin: bool) -> Result<Attempt, Error> {
        let file = File::open(pack).map_err(Error::io("open", pack))?;
        let bytes = file.metadata().map_err(Error::io("stat", pack))?.len();
        let read = BufReader::with_capacity(128 * 1024, file);
        let mut scan = Scan::begin(read, bytes, self.kind, self.limits)?;
        let Some(first) = scan.next_entry()? else {
            scan.end_of_empty()?;
            return Ok(Attempt::Empty);
        };
        let out = File::create(index).map_err(Error::io("create", index))?;
        let mut out = BufWriter::with_capacity(128 * 1024, out);
        let reading = RefCell::new(Entries { scan, first: Some(first), failed: None, thin: Vec::new() });
        let written = self.write_index(&reading, pack, may_be_thin, &mut out);
        let Entries { mut scan, failed, thin, .. } = reading.into_inner();
        if let Some(failed) = failed {
            return Err(failed.into());
        }
        if !thin.is_empty() {
            return Ok(Attempt::Thin(thin));
        }
        let outcome = written?;
        out.flush().map_err(Error::io("write", index))?;
        drop(out);
        let opened = index::File::at(index, self.kind).map_err(|error| unresolved(&error))?;
        scan.check_depths(|base| opened.lookup(base).map(|at| opened.pack_offset_at_index(at)))?;
        let index_bytes = index.metadata().map_err(Error::io("stat", index))?.len();
        Ok(Attempt::Indexed(PackFile {
            checksum: outcome.data_hash,
            bytes,
            index_checksum: outcome.index_hash,
            index_bytes,
        }))
    }

    fn write_index<R: io::BufRead>(
        &self,
        reading: &RefCell<Entries<'_, R>>,
        pack: &Path,
        may_be_thin: bool,
        out: &mut dyn Write,
    ) -> Result<index::write::Outcome, Error> {
        let mut entries = std::iter::from_fn(|| reading.borrow_mut().next().map(Ok));
        let resolver = || {
            let mut reading = reading.borrow_mut();
            if may_be_thin && let Some(held) = self.held {
                reading.thin = reading.scan.bases();
                reading.thin.retain(|base| held.contains(base));
            }
            if reading.failed.is_some() || !reading.thin.is_empty() {
                return Err(io::Error::other("the index is not wanted"));
            }
            let data =
                data::File::at(pack, self.kind).map_err(|error| io::Error::other(error.to_string()))?;
            Ok((slice as Slice, data))
        };
        let limit = usize::try_from(self.limits.object_bytes).unwrap_or(usize::MAX);
        // gix is young and the pack is a stranger's: a panic of its is a bad pack, not ours.
        let written = catch_unwind(AssertUnwindSafe(|| {
            index::write_data_iter_to_stream(
                index::Version::default(),
                resolver,
                &mut entries,
                Some(self.limits.index_threads),
                &mut Discard,
                out,
                self.stop,
                self.kind,
                Some(limit),
                data::Version::V2,
            )
        }));
        match written {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(error)) => Err(unresolved(&error)),
            Err(_) => Err(BadPack::Unresolved("the indexer gave up".into()).into()),
        }
    }

    /// Writes `pack` again with the objects of `bases` at its end.
    fn complete(&self, pack: &Path, completed: &Path, bases: &[ObjectId]) -> Result<(), Error> {
        let Some(held) = self.held else { return Ok(()) };
        let mut input = File::open(pack).map_err(Error::io("open", pack))?;
        let length = input.metadata().map_err(Error::io("stat", pack))?.len();
        let mut header = [0; HEADER];
        input.read_exact(&mut header).map_err(Error::io("read", pack))?;
        let [.., a, b, c, d] = header;
        let more = u32::try_from(bases.len()).unwrap_or(u32::MAX);
        let count = u32::from_be_bytes([a, b, c, d]).saturating_add(more);
        header[8..].copy_from_slice(&count.to_be_bytes());

        let file = File::create(completed).map_err(Error::io("create", completed))?;
        let file = BufWriter::with_capacity(128 * 1024, file);
        let mut out = Hashed { file, hash: gix_hash::hasher(self.kind), room: self.limits.pack_bytes };
        let failed = Error::io("write", completed);
        let written = out.write_all(&header).and_then(|()| {
            input.seek(SeekFrom::Start(HEADER as u64))?;
            let entries = length - (HEADER + self.kind.len_in_bytes()) as u64;
            io::copy(&mut input.take(entries), &mut out)
        });
        written.map_err(failed)?;
        let mut reader = Reader::new(held, BASE_CACHE);
        let mut object = Vec::new();
        for base in bases {
            let Some(number) = held.number(base) else { continue };
            let kind = reader.read(number, &mut object)?;
            append(&mut out, kind, &object).map_err(Error::io("write", completed))?;
        }
        out.finish().map_err(Error::io("write", completed))
    }
}

/// The entries of a pack on their way into an index.
struct Entries<'a, R> {
    scan: Scan<'a, R>,
    first: Option<data::input::Entry>,
    failed: Option<BadPack>,
    thin: Vec<ObjectId>,
}

impl<R: io::BufRead> Entries<'_, R> {
    fn next(&mut self) -> Option<data::input::Entry> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        self.scan.next_entry().unwrap_or_else(|failed| {
            self.failed = Some(failed);
            None
        })
    }
}

type Slice = fn(EntryRange, &data::File) -> Option<&[u8]>;

fn slice(range: EntryRange, pack: &data::File) -> Option<&[u8]> {
    pack.entry_slice(range)
}

/// A pack being written: hashed, and capped.
struct Hashed {
    file: BufWriter<File>,
    hash: Hasher,
    room: u64,
}

impl Hashed {
    fn finish(mut self) -> io::Result<()> {
        let checksum = self.hash.try_finalize().map_err(|error| io::Error::other(error.to_string()))?;
        self.file.write_all(checksum.as_slice())?;
        self.file.flush()
    }
}

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.room = self.room.checked_sub(written as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn append(out: &mut Hashed, kind: gix_object::Kind, object: &[u8]) -> io::Result<()> {
    let header = match kind {
        gix_object::Kind::Commit => Header::Commit,
        gix_object::Kind::Tree => Header::Tree,
        gix_object::Kind::Blob => Header::Blob,
        gix_object::Kind::Tag => Header::Tag,
    };
    header.write_to(object.len() as u64, &mut *out)?;
    let mut deflate = flate2::write::ZlibEncoder::new(out, flate2::Compression::fast());
    deflate.write_all(object)?;
    deflate.finish().map(|_| ())
}

/// The ids that an index has more than once.
fn duplicates(index: &Path, kind: Kind) -> Result<Vec<ObjectId>, Error> {
    let index = index::File::at(index, kind).map_err(|error| unresolved(&error))?;
    let at = |position| index.oid_at_index(position);
    Ok((1..index.num_objects()).filter(|&n| at(n) == at(n - 1)).map(|n| at(n).to_owned()).collect())
}

fn unresolved(error: &impl std::fmt::Display) -> Error {
    BadPack::Unresolved(error.to_string()).into()
}
