//! What is held: every entry's size and last use, who pins it, and which
//! groups of files are accounted for beside them. Memory only; the index
//! mirrors it.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::SystemTime,
};

use tidegate_name::{Algorithm, Digest};
use tokio::sync::Notify;

use crate::{
    clock::{COARSE, lock, past, tick},
    index::{Index, Row, Rowed},
};

/// What a file takes at least, and in multiples of which it grows.
const BLOCK: u64 = 4096;
/// No file is larger than this (1 PiB).
const LARGEST: u64 = 1 << 50;
/// The table of entries in the index.
pub(crate) const ENTRIES: &str = "entries";

/// Files outside the content folder that count in the disk limit and go as a
/// whole: a mirror.
pub trait Group: Send + Sync {
    /// What its files take on disk, hard-linked ones included. Cheap.
    fn bytes(&self) -> u64;
    /// When it was last read.
    fn last_used(&self) -> SystemTime;
    /// Deletes its files, and says whether it did; `false` while it is open.
    /// Runs on a blocking thread.
    fn evict(&self) -> bool;
}

/// Keeps one digest from being evicted for as long as it lives.
pub struct Pin {
    digest: Digest,
    catalog: Arc<Catalog>,
}

/// The list of everything held.
pub(crate) struct Catalog {
    state: Mutex<State>,
    index: Arc<Index>,
    table: Arc<str>,
    /// Bytes in unfinished fills.
    growing: AtomicU64,
    /// What groups took when they were last asked.
    grouped: AtomicU64,
    /// The last look for something to evict found too little.
    exhausted: AtomicBool,
    /// Rung when there may be something to evict.
    pub(crate) wake: Notify,
}

#[derive(Default)]
struct State {
    records: HashMap<Digest, Record>,
    pins: HashMap<Digest, u32>,
    groups: HashMap<u64, Arc<dyn Group>>,
    next_group: u64,
    bytes: u64,
    clock: u64,
    /// The folder was walked: what isn't recorded isn't there.
    complete: bool,
}

#[derive(Clone, Copy)]
struct Record {
    size: u64,
    used: u64,
    /// The last use that the index knows of.
    saved: u64,
    /// A hard link elsewhere holds the bytes, so they count there.
    linked: bool,
    /// Its file was seen since start-up.
    seen: bool,
}

/// What is known of a digest that somebody wants to read.
pub(crate) enum Claim {
    /// Recorded with this size; pinned for the reader.
    Recorded(u64, Pin),
    /// Perhaps there: the folder isn't walked to its end yet.
    Unknown(Pin),
    /// Not there.
    Absent,
}

impl Catalog {
    pub(crate) fn new(index: Arc<Index>, rows: Vec<Row>) -> Arc<Self> {
        let mut state = State::default();
        for (digest, size, used) in rows.into_iter().filter_map(decode) {
            state.clock = state.clock.max(used);
            state.bytes += cost(size);
            state.records.insert(digest, Record { size, used, saved: used, linked: false, seen: false });
        }
        let catalog = Arc::new(Self {
            state: Mutex::new(state),
            index,
            table: ENTRIES.into(),
            growing: AtomicU64::new(0),
            grouped: AtomicU64::new(0),
            exhausted: AtomicBool::new(false),
            wake: Notify::new(),
        });
        let weak = Arc::downgrade(&catalog);
        catalog.index.mirror(weak);
        catalog
    }

    /// Pins `digest` for a reader and counts the use, in one step with the
    /// look: eviction sees either the pin or no record.
    pub(crate) fn claim(self: &Arc<Self>, digest: &Digest) -> Claim {
        let mut state = lock(&self.state);
        let now = tick(&mut state.clock);
        if let Some(record) = state.records.get_mut(digest) {
            record.used = now;
            let size = record.size;
            if now - record.saved > COARSE {
                record.saved = now;
                self.index.put(&self.table, &key(digest), Some(value(size, now)));
            }
            Claim::Recorded(size, self.pin_in(&mut state, digest))
        } else if state.complete {
            Claim::Absent
        } else {
            Claim::Unknown(self.pin_in(&mut state, digest))
        }
    }

    /// Pins `digest`, held or not.
    pub(crate) fn pin(self: &Arc<Self>, digest: &Digest) -> Pin {
        self.pin_in(&mut lock(&self.state), digest)
    }

    fn pin_in(self: &Arc<Self>, state: &mut State, digest: &Digest) -> Pin {
        *state.pins.entry(*digest).or_insert(0) += 1;
        Pin { digest: *digest, catalog: Arc::clone(self) }
    }

    /// Records content that lies in its place, durably. `used` is given for
    /// what was found on disk; else it is used now.
    pub(crate) fn record(&self, digest: &Digest, size: u64, linked: bool, used: Option<u64>) {
        let mut state = lock(&self.state);
        let now = tick(&mut state.clock);
        let used = used.map_or(now, |used| used.min(now));
        let record = Record { size, used, saved: used, linked, seen: true };
        if let Some(before) = state.records.insert(*digest, record) {
            state.bytes -= before.cost();
        }
        state.bytes += record.cost();
        self.index.put(&self.table, &key(digest), Some(value(size, used)));
    }

    /// Notes that the file of a record exists, with this size and links; says
    /// whether the record agrees. `None` where there is no record.
    pub(crate) fn confirm(&self, digest: &Digest, size: u64, linked: bool) -> Option<bool> {
        let mut state = lock(&self.state);
        let record = state.records.get_mut(digest)?;
        record.seen = true;
        let agrees = record.size == size;
        state.set_linked(digest, linked);
        Some(agrees)
    }

    /// Forgets a record.
    pub(crate) fn forget(&self, digest: &Digest) {
        let mut state = lock(&self.state);
        self.forget_in(&mut state, digest);
        drop(state);
        self.ease();
    }

    fn forget_in(&self, state: &mut State, digest: &Digest) -> Option<Record> {
        let record = state.records.remove(digest)?;
        state.bytes -= record.cost();
        self.index.put(&self.table, &key(digest), None);
        Some(record)
    }

    /// Forgets a record for eviction, unless somebody holds a pin on it.
    /// Returns the bytes that deleting the file frees.
    pub(crate) fn take_unpinned(&self, digest: &Digest) -> Option<u64> {
        let mut state = lock(&self.state);
        if state.pins.contains_key(digest) {
            return None;
        }
        self.forget_in(&mut state, digest).map(Record::cost)
    }

    /// Notes whether the bytes of `digest` are held by a link elsewhere too.
    /// Returns how many bytes no longer count here because of it.
    pub(crate) fn set_linked(&self, digest: &Digest, linked: bool) -> u64 {
        lock(&self.state).set_linked(digest, linked)
    }

    /// Ends the start-up walk: records whose file wasn't met are dropped.
    pub(crate) fn complete(&self) {
        let mut state = lock(&self.state);
        let lost: Vec<_> =
            state.records.iter().filter(|(_, record)| !record.seen).map(|(digest, _)| *digest).collect();
        for digest in &lost {
            self.forget_in(&mut state, digest);
        }
        state.complete = true;
    }

    /// Whether the start-up walk is over.
    pub(crate) fn is_complete(&self) -> bool {
        lock(&self.state).complete
    }

    /// What may be evicted now, with its last use.
    pub(crate) fn candidates(&self) -> Vec<(u64, Digest)> {
        let state = lock(&self.state);
        let free = state
            .records
            .iter()
            .filter(|(digest, record)| !record.linked && !state.pins.contains_key(*digest));
        free.map(|(digest, record)| (record.used, *digest)).collect()
    }

    /// Records whose bytes are held by a link elsewhere.
    pub(crate) fn linked(&self) -> Vec<Digest> {
        let state = lock(&self.state);
        state.records.iter().filter(|(_, record)| record.linked).map(|(digest, _)| *digest).collect()
    }

    /// Counts a group of files from now on.
    pub(crate) fn join(&self, group: Arc<dyn Group>) -> u64 {
        let mut state = lock(&self.state);
        state.next_group += 1;
        let number = state.next_group;
        state.groups.insert(number, group);
        number
    }

    /// Stops counting it.
    pub(crate) fn leave(&self, number: u64) {
        lock(&self.state).groups.remove(&number);
        self.ease();
    }

    /// Every group that is counted.
    pub(crate) fn groups(&self) -> Vec<Arc<dyn Group>> {
        lock(&self.state).groups.values().cloned().collect()
    }

    /// Asks every group for its size, outside of our lock: theirs may be busy.
    pub(crate) fn measure_groups(&self) {
        let bytes = self.groups().iter().map(|group| group.bytes()).fold(0_u64, u64::saturating_add);
        self.grouped.store(bytes, Ordering::Relaxed);
    }

    /// Everything that counts in the disk limit.
    pub(crate) fn bytes(&self) -> u64 {
        let held = lock(&self.state).bytes;
        held.saturating_add(self.growing.load(Ordering::Relaxed))
            .saturating_add(self.grouped.load(Ordering::Relaxed))
    }

    /// How many entries are recorded.
    pub(crate) fn entries(&self) -> usize {
        lock(&self.state).records.len()
    }

    /// Counts bytes of an unfinished fill.
    pub(crate) fn grow(&self, bytes: u64) {
        self.growing.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts them no longer.
    pub(crate) fn shrink(&self, bytes: u64) {
        self.growing.fetch_sub(bytes, Ordering::Relaxed);
        self.ease();
    }

    /// Where there was too little to evict, there may be enough now: look again.
    fn ease(&self) {
        if self.is_exhausted() {
            self.wake.notify_one();
        }
    }

    /// Whether the last look found too little to evict.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.exhausted.load(Ordering::Relaxed)
    }

    /// Notes how the last look for something to evict ended.
    pub(crate) fn set_exhausted(&self, exhausted: bool) {
        self.exhausted.store(exhausted, Ordering::Relaxed);
    }
}

impl State {
    fn set_linked(&mut self, digest: &Digest, linked: bool) -> u64 {
        let Some(record) = self.records.get_mut(digest) else { return 0 };
        let before = record.cost();
        record.linked = linked;
        let after = record.cost();
        self.bytes = self.bytes - before + after;
        before.saturating_sub(after)
    }
}

impl Record {
    fn cost(self) -> u64 {
        if self.linked { 0 } else { cost(self.size) }
    }
}

impl Pin {
    /// What is pinned.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }
}

impl Clone for Pin {
    fn clone(&self) -> Self {
        self.catalog.pin(&self.digest)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut state = lock(&self.catalog.state);
        if let Some(count) = state.pins.get_mut(&self.digest) {
            *count -= 1;
            if *count == 0 {
                state.pins.remove(&self.digest);
            }
        }
        drop(state);
        self.catalog.ease();
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pin({})", self.digest)
    }
}

impl Rowed for Catalog {
    fn table(&self) -> Arc<str> {
        Arc::clone(&self.table)
    }

    fn rows(&self) -> Vec<Row> {
        let state = lock(&self.state);
        state.records.iter().map(|(digest, record)| (key(digest), value(record.size, record.used))).collect()
    }
}

/// What a file of `size` bytes takes on disk.
fn cost(size: u64) -> u64 {
    size.max(1).checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX)
}

fn key(digest: &Digest) -> Box<[u8]> {
    let algorithm = match digest.algorithm() {
        Algorithm::Sha256 => 0,
        Algorithm::Sha512 => 1,
    };
    [&[algorithm], digest.as_bytes()].concat().into()
}

fn value(size: u64, used: u64) -> Box<[u8]> {
    [size.to_le_bytes(), used.to_le_bytes()].concat().into()
}

fn decode((key, value): Row) -> Option<(Digest, u64, u64)> {
    let (algorithm, raw) = key.split_first()?;
    let algorithm = match algorithm {
        0 => Algorithm::Sha256,
        1 => Algorithm::Sha512,
        _ => return None,
    };
    let (size, used) = value.split_first_chunk()?;
    let size = u64::from_le_bytes(*size);
    let used = past(u64::from_le_bytes(used.try_into().ok()?));
    // Nothing real is larger, and sums of sizes must not overflow.
    if size > LARGEST {
        return None;
    }
    Some((Digest::from_bytes(algorithm, raw).ok()?, size, used))
}
