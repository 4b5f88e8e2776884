//! Small maps that outlive a restart: verdicts, tag to digest, schedules.
//!
//! All in memory, least recently used rows out first, written behind by the
//! index thread. They may lose their last second, or all of it, so they hold
//! only what can be asked again.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
};

use bytes::Bytes;

use crate::{
    clock::{COARSE, lock, past, tick},
    error::Error,
    index::{Index, Row, Rowed},
};

/// The largest row a table takes.
const LARGEST: usize = 1 << 20;

/// A small persistent map from bytes to bytes.
#[derive(Clone)]
pub struct Table {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    name: Arc<str>,
    cap: usize,
    index: Arc<Index>,
    rows: Mutex<Rows>,
}

#[derive(Default)]
struct Rows {
    by_key: HashMap<Arc<[u8]>, Kept>,
    by_use: BTreeMap<u64, Arc<[u8]>>,
    clock: u64,
}

struct Kept {
    value: Bytes,
    used: u64,
    /// The last use that the index knows of.
    saved: u64,
}

impl Table {
    /// A table with the rows that the index held for it.
    pub(crate) fn new(name: Arc<str>, cap: usize, index: Arc<Index>, found: Vec<Row>) -> Self {
        let mut rows = Rows::default();
        let mut found: Vec<_> = found.into_iter().filter_map(decode).collect();
        found.sort_unstable_by_key(|(used, ..)| *used);
        let surplus = found.len().saturating_sub(cap.max(1));
        for (number, (used, key, value)) in found.into_iter().enumerate() {
            if number < surplus {
                index.put(&name, &key, None);
            } else {
                // Two rows may carry the same use only if a clock jumped.
                let used = used.max(rows.clock + 1);
                rows.clock = used;
                rows.by_use.insert(used, Arc::clone(&key));
                rows.by_key.insert(key, Kept { value, used, saved: used });
            }
        }
        let shared = Arc::new(Shared { name, cap: cap.max(1), index, rows: Mutex::new(rows) });
        let weak = Arc::downgrade(&shared);
        shared.index.mirror(weak);
        Self { shared }
    }

    /// The value of `key`, which counts as a use of it.
    pub fn get(&self, key: &[u8]) -> Option<Bytes> {
        let mut rows = lock(&self.shared.rows);
        let used = tick(&mut rows.clock);
        let Rows { by_key, by_use, .. } = &mut *rows;
        let kept = by_key.get_mut(key)?;
        if let Some(key) = by_use.remove(&kept.used) {
            by_use.insert(used, key);
        }
        kept.used = used;
        if used - kept.saved > COARSE {
            kept.saved = used;
            self.shared.index.put(&self.shared.name, key, Some(encode(used, &kept.value)));
        }
        Some(kept.value.clone())
    }

    /// Sets `key` to `value`. The least recently used row goes when the table
    /// is full; a row over 1 MiB is not kept at all.
    pub fn put(&self, key: &[u8], value: impl Into<Bytes>) {
        let value = value.into();
        if key.len() + value.len() > LARGEST {
            tracing::warn!(table = %self.shared.name, size = value.len(), "a row is too large to keep");
            self.delete(key);
            return;
        }
        let mut rows = lock(&self.shared.rows);
        let used = tick(&mut rows.clock);
        let encoded = encode(used, &value);
        if let Some(before) = rows.by_key.insert(key.into(), Kept { value, used, saved: used }) {
            rows.by_use.remove(&before.used);
        }
        rows.by_use.insert(used, key.into());
        self.shared.index.put(&self.shared.name, key, Some(encoded));
        while rows.by_key.len() > self.shared.cap {
            let Some((_, oldest)) = rows.by_use.pop_first() else { break };
            rows.by_key.remove(&oldest);
            self.shared.index.put(&self.shared.name, &oldest, None);
        }
    }

    /// Forgets `key`; says whether it was there.
    pub fn delete(&self, key: &[u8]) -> bool {
        let mut rows = lock(&self.shared.rows);
        let Some(kept) = rows.by_key.remove(key) else { return false };
        rows.by_use.remove(&kept.used);
        self.shared.index.put(&self.shared.name, key, None);
        true
    }

    /// All rows as they are now, least recently used first. No use of them.
    pub fn rows(&self) -> Vec<(Bytes, Bytes)> {
        let rows = lock(&self.shared.rows);
        let found = rows.by_use.values().filter_map(|key| {
            let kept = rows.by_key.get(key)?;
            Some((Bytes::copy_from_slice(key), kept.value.clone()))
        });
        found.collect()
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        lock(&self.shared.rows).by_key.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns once every change made before is on disk.
    pub async fn flush(&self) -> Result<(), Error> {
        self.shared.index.flush().await
    }
}

impl Rowed for Shared {
    fn table(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn rows(&self) -> Vec<Row> {
        let rows = lock(&self.rows);
        rows.by_key.iter().map(|(key, kept)| ((&**key).into(), encode(kept.used, &kept.value))).collect()
    }
}

fn encode(used: u64, value: &[u8]) -> Box<[u8]> {
    [&used.to_le_bytes(), value].concat().into()
}

fn decode((key, value): Row) -> Option<(u64, Arc<[u8]>, Bytes)> {
    let (used, value) = value.split_first_chunk()?;
    Some((past(u64::from_le_bytes(*used)), Arc::from(key), Bytes::copy_from_slice(value)))
}
