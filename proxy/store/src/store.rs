//! The store itself: what other rooms hold.

use std::{
    collections::HashMap,
    fmt,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use tidegate_name::{Algorithm, Digest};
use tokio_util::sync::CancellationToken;

use crate::{
    catalog::{Catalog, Claim, ENTRIES, Group, Pin},
    clock::lock,
    config::StoreConfig,
    entry::{Content, Entry},
    error::Error,
    evict::{self, Account},
    fill::{Fill, MOST_WITHHELD},
    growing::Growing,
    index::{Index, Rows},
    layout::Layout,
    memory::Memory,
    space::Space,
    table::Table,
    writer::Writer,
};

/// Content at rest by digest, in memory and in one folder on disk.
pub struct Store {
    pub(crate) layout: Layout,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) space: Space,
    pub(crate) memory: Memory,
    index: Arc<Index>,
    tables: Mutex<Tables>,
    /// Held while a content file appears at, or goes from, its place.
    pub(crate) turn: Mutex<()>,
    pub(crate) closing: CancellationToken,
    /// A child of `closing`.
    pub(crate) evicting: CancellationToken,
    pub(crate) evictions: AtomicU64,
}

#[derive(Default)]
struct Tables {
    open: HashMap<String, Table>,
    /// Rows found at start-up for tables that nobody asked for yet.
    found: Rows,
}

/// How a fill begins.
#[derive(Clone, Copy, Debug)]
pub struct Begin {
    /// What the content is hashed with.
    pub algorithm: Algorithm,
    /// How many bytes of the end followers don't see before the content is
    /// verified; at most 1 MiB.
    pub withhold: usize,
    /// The most bytes there may be.
    pub max: u64,
}

/// What a store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes on disk, unfinished fills and groups included.
    pub disk: u64,
    /// Bytes in memory.
    pub memory: u64,
    /// Pieces of content on disk.
    pub entries: u64,
    /// Pieces of content in memory.
    pub memory_entries: u64,
    /// Entries and groups evicted from disk since start-up.
    pub disk_evictions: u64,
    /// Entries evicted from memory since start-up.
    pub memory_evictions: u64,
}

impl Store {
    /// Opens the store in `folder`, which is made when absent. What a killed
    /// process left unfinished is removed; a missing or broken index is rebuilt
    /// in the background while everything is served already.
    pub async fn open(folder: &Path, config: &StoreConfig) -> Result<Arc<Self>, Error> {
        let (folder, config) = (folder.to_owned(), config.clone());
        let opened = tokio::task::spawn_blocking(move || Self::open_here(&folder, &config));
        let store = opened.await.unwrap_or_else(|_| Err(Error::broken_off("opening broke down")))?;
        let walker = Arc::clone(&store);
        tokio::task::spawn_blocking(move || walker.reconcile());
        tokio::spawn(evict::run(Arc::downgrade(&store)));
        Ok(store)
    }

    fn open_here(folder: &Path, config: &StoreConfig) -> Result<Arc<Self>, Error> {
        let layout = Layout::new(folder);
        // The index holds the lock on the folder: nothing is swept before it.
        layout.make()?;
        let (index, mut rows) = Index::open(&layout.index())?;
        layout.sweep()?;
        let index = Arc::new(index);
        let catalog = Catalog::new(Arc::clone(&index), rows.remove(ENTRIES).unwrap_or_default());
        let closing = CancellationToken::new();
        Ok(Arc::new(Self {
            catalog,
            space: Space::new(folder.to_owned(), config)?,
            memory: Memory::new(config),
            index,
            tables: Mutex::new(Tables { open: HashMap::new(), found: rows }),
            turn: Mutex::new(()),
            evicting: closing.child_token(),
            closing,
            evictions: AtomicU64::new(0),
            layout,
        }))
    }

    /// Begins to take in content that others may follow while it grows.
    pub fn begin(self: &Arc<Self>, options: &Begin) -> Result<(Writer, Growing), Error> {
        if options.withhold > MOST_WITHHELD {
            return Err(Error::TooLarge { limit: MOST_WITHHELD as u64 });
        }
        let fill = Fill::new(self, options);
        Ok((Writer { fill: Arc::clone(&fill), len: 0, torn: false }, Growing { fill }))
    }

    /// The content of `digest`, if it is held; a use of it.
    pub async fn get(self: &Arc<Self>, digest: &Digest) -> Option<Entry> {
        let claim = self.catalog.claim(digest);
        let (known, pin) = match claim {
            Claim::Recorded(size, pin) => (Some(size), pin),
            Claim::Unknown(pin) => (None, pin),
            // In memory it may still be, when the disk had no room.
            Claim::Absent => (None, self.memory.get(digest).map(|_| self.catalog.pin(digest))?),
        };
        if let Some(bytes) = self.memory.get(digest) {
            return Some(Entry::new(self, pin, bytes.len() as u64, Content::Memory(bytes)));
        }
        let (store, digest) = (Arc::clone(self), *digest);
        tokio::task::spawn_blocking(move || store.load(&digest, known, pin)).await.ok().flatten()
    }

    /// Stores a small whole value under its SHA-256 digest. Without room on
    /// disk it is kept in memory only.
    pub async fn put(self: &Arc<Self>, bytes: Bytes) -> Result<Entry, Error> {
        let store = Arc::clone(self);
        let stored = tokio::task::spawn_blocking(move || store.put_here(&bytes));
        stored.await.map_err(|_| Error::broken_off("storing broke down"))
    }

    /// Keeps `digest`, held now or later, from being evicted.
    pub fn pin(&self, digest: &Digest) -> Pin {
        self.catalog.pin(digest)
    }

    /// Deletes the content of `digest`, pinned or not. Answers that are being
    /// read from it go on.
    pub async fn remove(self: &Arc<Self>, digest: &Digest) {
        let (store, digest) = (Arc::clone(self), *digest);
        if tokio::task::spawn_blocking(move || store.remove_here(&digest)).await.is_err() {
            tracing::error!(%digest, "removing content broke down");
        }
    }

    /// The small persistent map called `name`, with at most `cap` rows. The
    /// same name gives the same table; the first cap counts.
    pub fn table(&self, name: &str, cap: usize) -> Table {
        let mut tables = lock(&self.tables);
        if let Some(table) = tables.open.get(name) {
            return table.clone();
        }
        let stored = format!("table.{name}");
        let found = tables.found.remove(&stored).unwrap_or_default();
        let table = Table::new(stored.into(), cap, Arc::clone(&self.index), found);
        tables.open.insert(name.to_owned(), table.clone());
        table
    }

    /// Counts files outside the content folder in the disk limit, and lets them
    /// be evicted as a whole.
    pub fn account(&self, group: Arc<dyn Group>) -> Account {
        Account::open(&self.catalog, group)
    }

    /// What is held now.
    pub fn usage(&self) -> Usage {
        Usage {
            disk: self.catalog.bytes(),
            memory: self.memory.bytes(),
            entries: self.catalog.entries() as u64,
            memory_entries: self.memory.entries(),
            disk_evictions: self.evictions.load(Ordering::Relaxed),
            memory_evictions: self.memory.evictions(),
        }
    }

    /// Whether the walk through the folder that follows start-up is over.
    pub fn is_reconciled(&self) -> bool {
        self.catalog.is_complete()
    }

    /// Writes the index out and closes it. Reads go on; tables and last uses
    /// are no longer saved.
    pub async fn shutdown(&self) {
        self.closing.cancel();
        let index = Arc::clone(&self.index);
        if tokio::task::spawn_blocking(move || index.close()).await.is_err() {
            tracing::error!("closing the index broke down");
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("folder", &self.layout.root()).finish_non_exhaustive()
    }
}
