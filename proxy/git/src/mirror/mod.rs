//! Our copy of one upstream repository: a folder of packs and generations.
//!
//! A [`Snapshot`] is immutable and read without a lock; [`Mirror::publish`]
//! makes the next one. A pack is taken in through quarantine, verified, made
//! durable, and only then named by a generation file, so that a crash at any
//! moment leaves the old snapshot or the new one. Everything here blocks: call
//! it from a blocking thread. No network, no protocol, no clock: time is passed
//! in.

mod audit;
mod connect;
mod error;
mod folder;
mod generation;
mod ingest;
mod limits;
mod load;
mod merge;
mod publish;
mod registry;
mod scan;
mod settle;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use arc_swap::ArcSwapOption;
use gix_hash::ObjectId;

pub use self::{
    error::{BadPack, Error},
    limits::Limits,
    publish::{Published, Unfetched, Update},
    registry::{Listed, Registry},
};
use self::{folder::Folder, generation::PackFile};
use crate::{
    pack::{Graph, PackSet},
    refs::RefTable,
};

/// How long a want that no ref reaches is kept after it was last read.
pub const ROOT_LIFETIME: Duration = Duration::from_secs(24 * 3_600);

/// An object kept although no ref leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retained {
    /// The object: a superseded tip, or a want accepted on demand.
    pub oid: ObjectId,
    /// When it may go, in seconds since 1970.
    pub until: u64,
}

/// One consistent state of a repository.
///
/// From every eager ref, every retained tip and every root, everything
/// reachable is in `packs`, down to the commits of `boundary`, whose trees and
/// blobs are. Refs that are only listed may lead to objects that aren't here.
pub struct Snapshot {
    /// Counts up with every change; never goes back, across restarts too.
    pub generation: u64,
    /// What names point at.
    pub refs: Arc<RefTable>,
    /// Where objects are.
    pub packs: Arc<PackSet>,
    /// The commits that refs, retained tips and roots reach.
    pub graph: Arc<Graph>,
    /// Commits whose parents we don't hold.
    pub boundary: HashSet<ObjectId>,
    /// Superseded tips.
    pub retained: Vec<Retained>,
    /// Wants accepted on demand.
    pub roots: Vec<Retained>,
    files: Vec<PackFile>,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot")
            .field("generation", &self.generation)
            .field("refs", &self.refs.refs().len())
            .field("packs", &self.files.len())
            .field("boundary", &self.boundary.len())
            .finish_non_exhaustive()
    }
}

/// What the one who publishes needs to know.
#[derive(Debug)]
struct Writer {
    /// The number of the next generation.
    next: u64,
    /// The generation before the current one, kept to fall back on.
    previous: Option<(u64, HashSet<ObjectId>)>,
}

/// One repository on disk.
#[derive(Debug)]
pub struct Mirror {
    folder: Folder,
    limits: Limits,
    snapshot: ArcSwapOption<Snapshot>,
    writer: Mutex<Writer>,
    /// Roots that were read since the last publish: when they may go.
    reads: Mutex<HashMap<ObjectId, u64>>,
    bytes: AtomicU64,
    removed: AtomicBool,
    damage: Vec<String>,
}

impl Mirror {
    /// Opens the mirror in `dir`, made if absent, and sweeps what a crash left.
    ///
    /// A newest generation that doesn't verify is replaced by the newest one
    /// that does, under a new number; if none does, the mirror is empty.
    pub fn open(dir: &Path, limits: Limits) -> Result<Self, Error> {
        load::open(dir, limits)
    }

    /// The current state; `None` before the first publish and after removal.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.load_full()
    }

    /// What [`Mirror::open`] found broken and did without; it is logged there.
    #[cfg(test)]
    fn damage(&self) -> &[String] {
        &self.damage
    }

    /// Bytes on disk, as of the last publish.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Notes that a root was read, so that it stays for [`ROOT_LIFETIME`] more.
    ///
    /// Kept in memory until the next publish.
    pub fn root_read(&self, oid: ObjectId, now: SystemTime) {
        let known =
            self.snapshot.load().as_ref().is_some_and(|snapshot| snapshot.roots.iter().any(|r| r.oid == oid));
        if known {
            lock(&self.reads).insert(oid, unix(now).saturating_add(ROOT_LIFETIME.as_secs()));
        }
    }

    /// Deletes everything. Readers of a snapshot finish undisturbed; a publish
    /// under way fails.
    pub fn remove(&self) -> Result<(), Error> {
        self.removed.store(true, Ordering::Release);
        let _writer = lock(&self.writer);
        self.snapshot.store(None);
        self.bytes.store(0, Ordering::Relaxed);
        remove_folder(self.folder.root())
    }

    /// Everything wrong with what is on disk, in words; empty if all is well.
    ///
    /// Reads every byte.
    pub fn fsck(&self) -> Vec<String> {
        audit::audit(self)
    }
}

/// Renames a folder away, so that it is gone at once, then deletes it.
fn remove_folder(root: &Path) -> Result<(), Error> {
    let aside = aside(root);
    match std::fs::rename(root, &aside) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(Error::io("rename", root))?,
    }
    if let Some(parent) = root.parent() {
        folder::sync_folder(parent)?;
    }
    std::fs::remove_dir_all(&aside).map_err(Error::io("remove", &aside))
}

/// The suffix of a folder being deleted; the registry sweeps those at start.
const REMOVED: &str = ".removed";

fn aside(root: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = root.file_name().unwrap_or_default().to_string_lossy();
    root.with_file_name(format!("{name}.{}-{count}{REMOVED}", std::process::id()))
}

fn unix(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Locks; a panic elsewhere leaves nothing half-done behind these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
