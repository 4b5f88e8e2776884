//! All mirrors under one folder: which there are, which are open.
//!
//! A mirror's folder is named by a digest of its repository, and says in a
//! file `repository` whose it is: paths come from outside and are never used
//! as paths here. The time of last use is the time of a file `used`, good to
//! an hour. Blocks, like everything below it.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, TryLockError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sha2::{Digest, Sha256};
use tidegate_name::{Folding, Repository};

use super::{
    Error, Limits, Mirror, REMOVED,
    folder::{self, read_at_most, sync_folder},
    lock, remove_folder, unix,
};

/// How coarse the time of last use is on disk.
const USED_EVERY: u64 = 3_600;
/// No `repository` file is longer.
const LONGEST_NAME: u64 = 16 << 10;
/// Digits in a folder's name.
const DIGITS: usize = 32;

/// A mirror on disk, open or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Whose it is.
    pub repository: Repository,
    /// Bytes on disk.
    pub bytes: u64,
    /// When it was last read.
    pub last_used: SystemTime,
}

/// Every mirror of this node.
///
/// A slot's lock may be held while a mirror opens or is deleted, so it is never
/// waited for under the lock of `slots`.
#[derive(Debug)]
pub struct Registry {
    root: PathBuf,
    limits: Limits,
    most_open: usize,
    open: AtomicUsize,
    slots: Mutex<HashMap<Repository, Arc<Slot>>>,
    /// Counts uses, to tell which open mirror is the least recently used.
    uses: AtomicU64,
}

#[derive(Debug)]
enum State {
    /// There is no folder.
    Absent,
    /// There is a folder, of about this size.
    Closed(u64),
    Open(Arc<Mirror>),
}

/// The place of one mirror.
#[derive(Debug)]
struct Slot {
    folder: PathBuf,
    state: Mutex<State>,
    /// The value of `uses` when it was last asked for.
    turn: AtomicU64,
    /// Seconds since 1970, here and on disk; 0 if never.
    used: AtomicU64,
    noted: AtomicU64,
}

impl Registry {
    /// Looks at what is in `root`, made if absent, and sweeps what crashes and
    /// removals left. At most `most_open` mirrors stay open when nobody uses them.
    pub fn new(root: &Path, limits: Limits, most_open: usize) -> Result<Self, Error> {
        fs::create_dir_all(root).map_err(Error::io("create", root))?;
        let mut slots = HashMap::new();
        for entry in fs::read_dir(root).map_err(Error::io("list", root))? {
            let folder = entry.map_err(Error::io("list", root))?.path();
            let Some(name) = folder.file_name().and_then(|name| name.to_str()) else { continue };
            let removed = name.ends_with(REMOVED);
            if !removed && !is_folder_name(name) {
                continue;
            }
            match read_repository(&folder) {
                Some(repository) if !removed && folder_of(root, &repository) == folder => {
                    folder::Folder::at(&folder).sweep()?;
                    slots.insert(repository, Arc::new(Slot::found(folder)));
                }
                // Half made or half deleted: nobody can find it again.
                _ => fs::remove_dir_all(&folder).map_err(Error::io("remove", &folder))?,
            }
        }
        Ok(Self {
            root: root.to_owned(),
            limits,
            most_open,
            open: AtomicUsize::new(0),
            slots: Mutex::new(slots),
            uses: AtomicU64::new(0),
        })
    }

    /// The mirror of a repository, opened or made as needed, and marked as used.
    pub fn open(&self, repository: &Repository, now: SystemTime) -> Result<Arc<Mirror>, Error> {
        self.get(repository, now, true)?.ok_or(Error::Removed)
    }

    /// The same, but a mirror that isn't on disk is `None` and isn't made. Cheap
    /// when it is open: whoever holds on to a mirror calls this to mark each use.
    pub fn find(&self, repository: &Repository, now: SystemTime) -> Result<Option<Arc<Mirror>>, Error> {
        self.get(repository, now, false)
    }

    fn get(
        &self,
        repository: &Repository,
        now: SystemTime,
        make: bool,
    ) -> Result<Option<Arc<Mirror>>, Error> {
        let slot = if make {
            let absent = || Arc::new(Slot::absent(folder_of(&self.root, repository)));
            Arc::clone(lock(&self.slots).entry(repository.clone()).or_insert_with(absent))
        } else {
            let Some(slot) = self.slot(repository) else { return Ok(None) };
            slot
        };
        slot.turn.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let mut state = lock(&slot.state);
        let mirror = match &*state {
            State::Open(mirror) => Arc::clone(mirror),
            State::Absent if !make => return Ok(None),
            State::Absent | State::Closed(_) => {
                make_folder(&self.root, &slot.folder, repository)?;
                let mirror = Arc::new(Mirror::open(&slot.folder, self.limits.clone())?);
                *state = State::Open(Arc::clone(&mirror));
                drop(state);
                self.open.fetch_add(1, Ordering::Relaxed);
                self.close_idle();
                mirror
            }
        };
        slot.note_use(unix(now));
        Ok(Some(mirror))
    }

    /// Every mirror on disk.
    pub fn list(&self) -> Vec<Listed> {
        let slots: Vec<_> =
            lock(&self.slots).iter().map(|(name, slot)| (name.clone(), Arc::clone(slot))).collect();
        let listed = slots.into_iter().filter_map(|(repository, slot)| {
            Some(Listed { repository, bytes: slot.bytes()?, last_used: slot.last_used() })
        });
        listed.collect()
    }

    /// Bytes of one mirror on disk; 0 if there is none.
    pub fn bytes(&self, repository: &Repository) -> u64 {
        self.slot(repository).and_then(|slot| slot.bytes()).unwrap_or(0)
    }

    /// When a mirror was last read; after a restart good to an hour.
    pub fn last_used(&self, repository: &Repository) -> Option<SystemTime> {
        self.slot(repository).map(|slot| slot.last_used())
    }

    /// Deletes a mirror, in use or not. Readers finish what they read.
    pub fn remove(&self, repository: &Repository) -> Result<(), Error> {
        let Some(slot) = self.slot(repository) else { return Ok(()) };
        self.delete(&slot, &mut lock(&slot.state))
    }

    /// Deletes a mirror unless somebody uses it; says whether it is gone.
    pub fn evict(&self, repository: &Repository) -> Result<bool, Error> {
        let Some(slot) = self.slot(repository) else { return Ok(true) };
        let Some(mut state) = slot.try_state() else { return Ok(false) };
        if let State::Open(mirror) = &*state
            && is_used(mirror)
        {
            return Ok(false);
        }
        self.delete(&slot, &mut state).map(|()| true)
    }

    fn delete(&self, slot: &Slot, state: &mut State) -> Result<(), Error> {
        match std::mem::replace(state, State::Absent) {
            State::Absent => Ok(()),
            State::Closed(_) => remove_folder(&slot.folder),
            State::Open(mirror) => {
                self.open.fetch_sub(1, Ordering::Relaxed);
                mirror.remove()
            }
        }
    }

    fn slot(&self, repository: &Repository) -> Option<Arc<Slot>> {
        lock(&self.slots).get(repository).cloned()
    }

    /// Closes the least recently used mirrors nobody holds, while too many are
    /// open, and forgets the places of deleted ones.
    fn close_idle(&self) {
        if self.open.load(Ordering::Relaxed) <= self.most_open {
            return;
        }
        let mut open = Vec::new();
        lock(&self.slots).retain(|_, slot| {
            let Some(state) = slot.try_state() else { return true };
            if matches!(*state, State::Open(_)) {
                open.push(Arc::clone(slot));
            }
            Arc::strong_count(slot) > 1 || !matches!(*state, State::Absent)
        });
        open.sort_unstable_by_key(|slot| slot.turn.load(Ordering::Relaxed));
        for slot in open {
            if self.open.load(Ordering::Relaxed) <= self.most_open {
                return;
            }
            let Some(mut state) = slot.try_state() else { continue };
            if let State::Open(mirror) = &*state
                && Arc::strong_count(mirror) == 1
            {
                *state = State::Closed(mirror.bytes());
                self.open.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

impl Slot {
    fn absent(folder: PathBuf) -> Self {
        Self {
            folder,
            state: Mutex::new(State::Absent),
            turn: AtomicU64::new(0),
            used: AtomicU64::new(0),
            noted: AtomicU64::new(0),
        }
    }

    fn found(folder: PathBuf) -> Self {
        let used = fs::metadata(folder.join("used")).and_then(|file| file.modified()).map_or(0, unix);
        let bytes = folder::Folder::at(&folder).bytes();
        Self {
            state: Mutex::new(State::Closed(bytes)),
            used: AtomicU64::new(used),
            noted: AtomicU64::new(used),
            ..Self::absent(folder)
        }
    }

    /// The state, unless a mirror is being opened or deleted right now.
    fn try_state(&self) -> Option<std::sync::MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Bytes on disk; `None` if there is nothing.
    fn bytes(&self) -> Option<u64> {
        match &*lock(&self.state) {
            State::Absent => None,
            State::Closed(bytes) => Some(*bytes),
            State::Open(mirror) => Some(mirror.bytes()),
        }
    }

    fn last_used(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.used.load(Ordering::Relaxed))
    }

    /// A hint for eviction; that it could not be written is no reason to fail a reader.
    fn note_use(&self, now: u64) {
        self.used.fetch_max(now, Ordering::Relaxed);
        let noted = self.noted.load(Ordering::Relaxed);
        if now < noted.saturating_add(USED_EVERY) || self.noted.swap(now, Ordering::Relaxed) != noted {
            return;
        }
        let time = UNIX_EPOCH + Duration::from_secs(now);
        drop(File::create(self.folder.join("used")).and_then(|file| file.set_modified(time)));
    }
}

/// Whether anyone but the registry holds the mirror or reads a snapshot of it.
fn is_used(mirror: &Arc<Mirror>) -> bool {
    // The mirror's own and the one just taken make two.
    Arc::strong_count(mirror) > 1
        || mirror.snapshot().is_some_and(|snapshot| Arc::strong_count(&snapshot) > 2)
}

fn folder_of(root: &Path, repository: &Repository) -> PathBuf {
    let digest = hex::encode(Sha256::digest(repository.to_string()));
    root.join(&digest[..DIGITS])
}

fn is_folder_name(name: &str) -> bool {
    name.len() == DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Makes the folder and says in it whose it is, unless it is there.
fn make_folder(root: &Path, folder: &Path, repository: &Repository) -> Result<(), Error> {
    let name = folder.join("repository");
    if name.exists() {
        return Ok(());
    }
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    let aside = folder.join("repository.new");
    let written = File::create(&aside).and_then(|mut file| {
        file.write_all(format!("{}\n{}\n", repository.upstream(), repository.path()).as_bytes())?;
        file.sync_all()
    });
    written.map_err(Error::io("write", &aside))?;
    fs::rename(&aside, &name).map_err(Error::io("rename", &aside))?;
    sync_folder(folder)?;
    sync_folder(root)
}

/// Whose folder it is.
fn read_repository(folder: &Path) -> Option<Repository> {
    let text = String::from_utf8(read_at_most(&folder.join("repository"), LONGEST_NAME).ok()?).ok()?;
    let (upstream, path) = text.strip_suffix('\n')?.split_once('\n')?;
    // The path was folded when the name was made; it is not folded again.
    Some(Repository::new(upstream.parse().ok()?, path, Folding::default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(path: &str) -> Repository {
        Repository::new("git.example:8443".parse().unwrap(), path, Folding::default())
    }

    fn registry(root: &Path, most_open: usize) -> Registry {
        Registry::new(root, Limits::default(), most_open).unwrap()
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn mirrors_are_found_again_with_their_names_and_times() {
        let dir = tempfile::tempdir().unwrap();
        let odd = repository("org/../a b/ü.git");
        let first = registry(dir.path(), 4);
        first.open(&odd, at(1_000_000)).unwrap();
        first.open(&odd, at(1_000_100)).unwrap();
        assert_eq!(first.last_used(&odd), Some(at(1_000_100)));
        drop(first);
        let again = registry(dir.path(), 4);
        let listed = again.list();
        assert_eq!((listed.len(), &listed[0].repository), (1, &odd));
        assert_eq!(
            listed[0].last_used,
            at(1_000_000),
            "the first use was written, the second is within the hour"
        );
        assert_eq!(again.find(&repository("other"), at(0)).unwrap().map(|_| ()), None);
    }

    #[test]
    fn idle_mirrors_are_closed_and_held_ones_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let registry = registry(dir.path(), 1);
        let held = registry.open(&repository("held"), at(1)).unwrap();
        for n in 0..5 {
            registry.open(&repository(&format!("idle/{n}")), at(1)).unwrap();
        }
        let again = registry.open(&repository("held"), at(2)).unwrap();
        assert!(Arc::ptr_eq(&held, &again), "one repository is never open twice");
        assert!(registry.open.load(Ordering::Relaxed) <= 2);
        assert_eq!(registry.list().len(), 6);
    }

    #[test]
    fn a_mirror_in_use_is_not_evicted_but_can_be_removed() {
        let dir = tempfile::tempdir().unwrap();
        let registry = registry(dir.path(), 4);
        let name = repository("a");
        let held = registry.open(&name, at(1)).unwrap();
        assert!(!registry.evict(&name).unwrap());
        drop(held);
        assert!(registry.evict(&name).unwrap());
        assert_eq!((registry.list().len(), registry.bytes(&name)), (0, 0));
        let held = registry.open(&name, at(2)).unwrap();
        registry.remove(&name).unwrap();
        assert!(held.snapshot().is_none());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(!Arc::ptr_eq(&held, &registry.open(&name, at(3)).unwrap()));
    }

    #[test]
    fn half_made_and_half_deleted_folders_are_swept_and_strangers_are_left() {
        let dir = tempfile::tempdir().unwrap();
        let name = repository("a");
        registry(dir.path(), 4).open(&name, at(1)).unwrap();
        let ours = folder_of(dir.path(), &name);
        let half = dir.path().join("0123456789abcdef0123456789abcdef");
        let deleted = dir.path().join("0123456789abcdef0123456789abcdef.1-0.removed");
        let stranger = dir.path().join("lost+found");
        for folder in [&half, &deleted, &stranger] {
            fs::create_dir(folder).unwrap();
        }
        fs::create_dir_all(ours.join("quarantine/pack")).unwrap();
        let again = registry(dir.path(), 4);
        assert_eq!(again.list().len(), 1);
        assert!(!half.exists() && !deleted.exists() && stranger.exists());
        assert!(!ours.join("quarantine/pack").exists());
    }
}
