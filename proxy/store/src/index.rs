//! The one thread that writes `index.redb`, behind everybody's back.
//!
//! All state is in memory; changes come here as rows and reach the disk in
//! batches within a second. The file is never the only place of anything: when
//! it can't be read it is set aside, when it can't be written it is deleted
//! (a stale row could bring back what was ended) and written anew from memory
//! once there is room.

use std::{
    collections::HashMap,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, PoisonError, Weak},
    thread,
    time::Duration,
};

use redb::{
    Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, TableDefinition, TableHandle as _,
};
use tokio::sync::oneshot;

use crate::{clock::lock, error::Error};

/// How long changes gather before they are written.
const GATHER: Duration = Duration::from_millis(500);
/// How long to wait before an unwritable index is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// What redb may keep of the file in memory.
const CACHE: usize = 8 << 20;

/// A key and its value.
pub(crate) type Row = (Box<[u8]>, Box<[u8]>);
/// Rows by table, as read at start-up.
pub(crate) type Rows = HashMap<String, Vec<Row>>;

/// Something whose rows live in memory and are mirrored here.
pub(crate) trait Rowed: Send + Sync {
    /// The table its rows are in.
    fn table(&self) -> Arc<str>;
    /// All of them, as they are now.
    fn rows(&self) -> Vec<Row>;
}

/// The way to the writing thread.
pub(crate) struct Index {
    shared: Arc<Shared>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
    path: PathBuf,
}

#[derive(Default)]
struct Shared {
    pending: Mutex<Pending>,
    ring: Condvar,
    sources: Mutex<Vec<Weak<dyn Rowed>>>,
}

/// The newest value of each changed row by table; `None` where it was deleted.
type Changes = HashMap<Arc<str>, HashMap<Box<[u8]>, Option<Box<[u8]>>>>;

#[derive(Default)]
struct Pending {
    rows: Changes,
    flush: Vec<oneshot::Sender<bool>>,
    stop: bool,
}

impl Index {
    /// Opens the file, or begins a new one if it is unreadable, and hands over
    /// what it held. Blocks.
    pub(crate) fn open(path: &Path) -> Result<(Self, Rows), Error> {
        let (database, rows) = match read(path) {
            Ok((database, rows)) => (Some(database), rows),
            Err(Unreadable::InUse) => {
                return Err(Error::InUse { path: path.parent().unwrap_or(path).to_owned() });
            }
            Err(Unreadable::Broken(reason)) => {
                tracing::warn!(path = %path.display(), reason, "the index is unreadable; starting a new one");
                // Kept for whoever looks into it; the next broken one replaces it.
                drop(fs::rename(path, path.with_extension("broken")));
                (read(path).ok().map(|(database, _)| database), Rows::new())
            }
        };
        let shared = Arc::new(Shared::default());
        let writer = Writer { shared: Arc::clone(&shared), path: path.to_owned(), database };
        let thread = thread::Builder::new()
            .name("tidegate-index".into())
            .spawn(move || writer.run())
            .map_err(Error::io("start the thread that writes", path))?;
        Ok((Self { shared, thread: Mutex::new(Some(thread)), path: path.to_owned() }, rows))
    }

    /// Makes `source` part of an index that has to be written anew.
    pub(crate) fn mirror(&self, source: Weak<dyn Rowed>) {
        lock(&self.shared.sources).push(source);
    }

    /// Remembers to write one row. The caller holds the lock that orders its
    /// own changes, so that the last one queued is the last one made.
    pub(crate) fn put(&self, table: &Arc<str>, key: &[u8], value: Option<Box<[u8]>>) {
        let mut pending = lock(&self.shared.pending);
        if pending.stop {
            return;
        }
        match pending.rows.get_mut(table) {
            Some(rows) => {
                rows.insert(key.into(), value);
            }
            None => {
                pending.rows.insert(Arc::clone(table), HashMap::from([(key.into(), value)]));
            }
        }
        drop(pending);
        self.shared.ring.notify_one();
    }

    /// Returns once everything queued before is on disk.
    pub(crate) async fn flush(&self) -> Result<(), Error> {
        let (done, written) = oneshot::channel();
        let away = || Error::IndexAway { path: self.path.clone() };
        {
            let mut pending = lock(&self.shared.pending);
            if pending.stop {
                return Err(away());
            }
            pending.flush.push(done);
        }
        self.shared.ring.notify_one();
        if written.await == Ok(true) { Ok(()) } else { Err(away()) }
    }

    /// Writes what is queued and closes the file. Blocks.
    pub(crate) fn close(&self) {
        self.stop();
        if let Some(thread) = lock(&self.thread).take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes the index broke down");
        }
    }

    fn stop(&self) {
        lock(&self.shared.pending).stop = true;
        self.shared.ring.notify_one();
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        // Not joined: that would block whoever drops the last handle.
        self.stop();
    }
}

struct Writer {
    shared: Arc<Shared>,
    path: PathBuf,
    database: Option<Database>,
}

impl Writer {
    fn run(mut self) {
        loop {
            let batch = self.gather();
            // redb may panic on a file that was changed under its feet.
            let written = catch_unwind(AssertUnwindSafe(|| self.apply(batch.rows))).unwrap_or(false);
            if !written {
                self.give_up();
            }
            for done in batch.flush {
                // Nobody may wait any more.
                let _ = done.send(written);
            }
            if batch.stop {
                return;
            }
        }
    }

    /// Waits for work, then a little longer for more of it.
    fn gather(&self) -> Pending {
        let mut pending = lock(&self.shared.pending);
        while pending.rows.is_empty() && pending.flush.is_empty() && !pending.stop {
            if self.database.is_some() {
                pending = self.shared.ring.wait(pending).unwrap_or_else(PoisonError::into_inner);
            } else {
                let (guard, waited) =
                    self.shared.ring.wait_timeout(pending, RETRY).unwrap_or_else(PoisonError::into_inner);
                pending = guard;
                if waited.timed_out() {
                    break;
                }
            }
        }
        let hurry = |pending: &mut Pending| pending.flush.is_empty() && !pending.stop;
        let pause = if self.database.is_some() { GATHER } else { RETRY };
        let (mut pending, _) = self
            .shared
            .ring
            .wait_timeout_while(pending, pause, hurry)
            .unwrap_or_else(PoisonError::into_inner);
        let stop = pending.stop;
        Pending { rows: std::mem::take(&mut pending.rows), flush: std::mem::take(&mut pending.flush), stop }
    }

    fn apply(&mut self, rows: Changes) -> bool {
        let result = match &self.database {
            Some(database) => write(database, rows),
            // The queued rows are in memory already: what memory holds now is newer.
            None => self.write_anew(),
        };
        if let Err(error) = &result {
            tracing::warn!(path = %self.path.display(), %error, "the index cannot be written");
        }
        result.is_ok()
    }

    fn write_anew(&mut self) -> Result<(), redb::Error> {
        let database = builder().create(&self.path)?;
        let sources: Vec<_> = lock(&self.shared.sources).iter().filter_map(Weak::upgrade).collect();
        let rows = sources.iter().map(|source| {
            let rows = source.rows().into_iter().map(|(key, value)| (key, Some(value)));
            (source.table(), rows.collect::<HashMap<_, _>>())
        });
        write(&database, rows.collect())?;
        self.database = Some(database);
        Ok(())
    }

    fn give_up(&mut self) {
        let database = self.database.take();
        drop(catch_unwind(AssertUnwindSafe(|| drop(database))));
        drop(fs::remove_file(&self.path));
    }
}

enum Unreadable {
    InUse,
    Broken(String),
}

impl<E: Into<redb::Error>> From<E> for Unreadable {
    fn from(error: E) -> Self {
        Self::Broken(error.into().to_string())
    }
}

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    // A damaged file is then an error instead of a panic later.
    builder.set_cache_size(CACHE).set_check_integrity_on_open(true);
    builder
}

fn read(path: &Path) -> Result<(Database, Rows), Unreadable> {
    catch_unwind(|| {
        let database = match builder().create(path) {
            Err(DatabaseError::DatabaseAlreadyOpen) => return Err(Unreadable::InUse),
            other => other?,
        };
        let mut rows = Rows::new();
        let transaction = database.begin_read()?;
        for table in transaction.list_tables()? {
            let definition = TableDefinition::<&[u8], &[u8]>::new(table.name());
            let mut found = Vec::new();
            for row in transaction.open_table(definition)?.iter()? {
                let (key, value) = row?;
                found.push((key.value().into(), value.value().into()));
            }
            rows.insert(table.name().to_owned(), found);
        }
        drop(transaction);
        Ok((database, rows))
    })
    .unwrap_or_else(|_| Err(Unreadable::Broken("reading it panicked".into())))
}

fn write(database: &Database, tables: Changes) -> Result<(), redb::Error> {
    if tables.is_empty() {
        return Ok(());
    }
    let transaction = database.begin_write()?;
    for (name, rows) in tables {
        let mut table = transaction.open_table(TableDefinition::<&[u8], &[u8]>::new(&name))?;
        for (key, value) in rows {
            match value {
                Some(value) => table.insert(&*key, &*value)?,
                None => table.remove(&*key)?,
            };
        }
    }
    transaction.commit()?;
    Ok(())
}
