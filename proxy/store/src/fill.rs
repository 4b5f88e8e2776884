//! One piece of content while it grows: a temporary file, its hash, and how far
//! others may read it.
//!
//! Bytes gather in a queue that one blocking task at a time writes out, so a
//! slow drip is visible at once and a flood goes to disk in large pieces.
//! When the disk takes no more, the rest passes through a [`Window`].

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use tidegate_name::{Digest, Hasher};
use tokio::{
    runtime::Handle,
    sync::{Notify, watch},
    time::{Instant, timeout_at},
};

use crate::{
    clock::lock,
    entry::{Content, Entry},
    error::Error,
    layout,
    store::{Begin, Store},
    window::Window,
};

/// What the queue holds before its writer waits.
const QUEUE: usize = 1 << 20;
/// The largest piece that goes into the queue or the window at once.
pub(crate) const PIECE: usize = 256 << 10;
/// What a blocking writer gathers before it goes to the file.
const GATHER: usize = 64 << 10;
/// The most that may be withheld: less than the window, which must always have
/// something to hand out.
pub(crate) const MOST_WITHHELD: usize = 1 << 20;

/// How a fill ended well: the content is whole and hashes to its name.
#[derive(Clone, Debug)]
pub enum Finished {
    /// It is kept from now on.
    Kept(Entry),
    /// The disk had no room for it: its followers got it, nobody else will.
    Unkept {
        /// What it hashes to.
        digest: Digest,
        /// How many bytes it had.
        size: u64,
    },
}

impl Finished {
    /// What the content hashes to.
    pub fn digest(&self) -> &Digest {
        match self {
            Self::Kept(entry) => entry.digest(),
            Self::Unkept { digest, .. } => digest,
        }
    }

    /// How many bytes it has.
    pub fn size(&self) -> u64 {
        match self {
            Self::Kept(entry) => entry.size(),
            Self::Unkept { size, .. } => *size,
        }
    }

    /// The kept content, if it was kept.
    pub fn entry(&self) -> Option<&Entry> {
        match self {
            Self::Kept(entry) => Some(entry),
            Self::Unkept { .. } => None,
        }
    }
}

/// What writer and followers share.
pub(crate) struct Fill {
    pub(crate) store: Arc<Store>,
    pub(crate) temp: PathBuf,
    withhold: u64,
    max: u64,
    /// Made with the first byte, on a blocking thread.
    pub(crate) file: OnceLock<Arc<File>>,
    queue: Mutex<Queue>,
    idle: Condvar,
    drained: Notify,
    pen: Mutex<Pen>,
    pub(crate) window: Mutex<Window>,
    taken: Notify,
    taken_here: Condvar,
    pub(crate) progress: watch::Sender<Progress>,
    /// The disk takes no more: the rest is only passed on.
    through: AtomicBool,
    /// Bytes on disk that are counted as growing.
    counted: AtomicU64,
}

#[derive(Default)]
struct Queue {
    buffer: Vec<u8>,
    running: bool,
}

struct Pen {
    hasher: Hasher,
    len: u64,
    closed: bool,
}

/// The one thing followers watch.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    /// How far they may read.
    pub(crate) visible: u64,
    /// Where the file ends and the window begins; `None` while all is on disk.
    pub(crate) disk: Option<u64>,
    pub(crate) state: State,
}

#[derive(Clone, Debug)]
pub(crate) enum State {
    Growing,
    Done(Finished),
    Failed(Error),
}

impl Fill {
    pub(crate) fn new(store: &Arc<Store>, options: &Begin) -> Arc<Self> {
        let progress = Progress { visible: 0, disk: None, state: State::Growing };
        Arc::new(Self {
            store: Arc::clone(store),
            temp: store.layout.temp("fill"),
            withhold: options.withhold as u64,
            max: options.max,
            file: OnceLock::new(),
            queue: Mutex::default(),
            idle: Condvar::new(),
            drained: Notify::new(),
            pen: Mutex::new(Pen { hasher: Hasher::new(options.algorithm), len: 0, closed: false }),
            window: Mutex::default(),
            taken: Notify::new(),
            taken_here: Condvar::new(),
            progress: watch::Sender::new(progress),
            through: AtomicBool::new(false),
            counted: AtomicU64::new(0),
        })
    }

    /// Takes bytes in; waits while followers of an unkept fill, or the disk,
    /// are behind.
    pub(crate) async fn write(self: &Arc<Self>, bytes: &[u8]) -> Result<(), Error> {
        for piece in bytes.chunks(PIECE) {
            if self.is_through() {
                self.room(piece.len()).await;
            }
            while !self.enqueue(piece)? {
                self.drained.notified().await;
            }
        }
        Ok(())
    }

    fn enqueue(self: &Arc<Self>, piece: &[u8]) -> Result<bool, Error> {
        self.failure()?;
        let mut queue = lock(&self.queue);
        let fits = queue.buffer.len() < QUEUE;
        if fits {
            queue.buffer.extend_from_slice(piece);
        }
        self.start(&mut queue);
        Ok(fits)
    }

    fn start(self: &Arc<Self>, queue: &mut Queue) {
        if !queue.running {
            queue.running = true;
            let fill = Arc::clone(self);
            tokio::task::spawn_blocking(move || fill.drain());
        }
    }

    /// Writes out what is queued, until nothing is. Blocks.
    fn drain(self: &Arc<Self>) {
        loop {
            let batch = {
                let mut queue = lock(&self.queue);
                if queue.buffer.is_empty() {
                    queue.running = false;
                    break;
                }
                std::mem::take(&mut queue.buffer)
            };
            self.drained.notify_one();
            if let Err(error) = self.take_in(batch) {
                self.fail(error);
                lock(&self.queue).running = false;
                break;
            }
        }
        self.idle.notify_all();
        self.drained.notify_one();
    }

    /// Returns once everything written before is hashed, and visible but for
    /// the withheld part.
    pub(crate) async fn flush(self: &Arc<Self>) -> Result<(), Error> {
        loop {
            self.failure()?;
            {
                let mut queue = lock(&self.queue);
                if !queue.running && queue.buffer.is_empty() {
                    return Ok(());
                }
                self.start(&mut queue);
            }
            self.drained.notified().await;
        }
    }

    /// Like [`Fill::write`], for threads that may block.
    pub(crate) fn write_here(self: &Arc<Self>, bytes: &[u8]) -> Result<(), Error> {
        for piece in bytes.chunks(PIECE) {
            let full = {
                let mut queue = lock(&self.queue);
                queue.buffer.extend_from_slice(piece);
                queue.buffer.len() >= GATHER
            };
            if full {
                if self.is_through() {
                    self.room_here(piece.len());
                }
                self.flush_here()?;
            }
        }
        Ok(())
    }

    /// Like [`Fill::flush`], for threads that may block.
    pub(crate) fn flush_here(self: &Arc<Self>) -> Result<(), Error> {
        let mut queue = lock(&self.queue);
        while queue.running {
            queue = self.idle.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        let batch = std::mem::take(&mut queue.buffer);
        drop(queue);
        self.failure()?;
        if batch.is_empty() {
            return Ok(());
        }
        self.take_in(batch).inspect_err(|error| self.fail(error.clone()))
    }

    /// Hashes a batch and puts it where followers find it. Blocks.
    fn take_in(&self, batch: Vec<u8>) -> Result<(), Error> {
        let mut pen = lock(&self.pen);
        if pen.closed {
            return Err(Error::broken_off("it was closed"));
        }
        let start = pen.len;
        let end = start.saturating_add(batch.len() as u64);
        if end > self.max {
            return Err(Error::TooLarge { limit: self.max });
        }
        pen.hasher.update(&batch);
        let was_through = self.is_through();
        let written = if was_through { 0 } else { self.to_disk(start, &batch) };
        let mut turned = None;
        if written < batch.len() {
            let mut window = lock(&self.window);
            if !was_through {
                let disk = start + written as u64;
                window.open(disk);
                turned = Some(disk);
                self.through.store(true, Ordering::Release);
            }
            push(&mut window, start, &Bytes::from(batch), written);
        }
        pen.len = end;
        self.progress.send_modify(|progress| {
            progress.disk = progress.disk.or(turned);
            progress.visible = end.saturating_sub(self.withhold);
        });
        Ok(())
    }

    /// Writes as much of `batch` as the disk takes and says how much that is.
    fn to_disk(&self, start: u64, batch: &[u8]) -> usize {
        if !self.store.space.permit(&self.store.catalog, batch.len() as u64) {
            return 0;
        }
        let mut written = 0;
        let result = self.open().and_then(|file| {
            while written < batch.len() {
                match file.write_at(&batch[written..], start + written as u64) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(count) => written += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        });
        if let Err(error) = result {
            // A full, read-only or broken disk ends keeping, never an answer.
            tracing::warn!(path = %self.temp.display(), %error, "content is passed on without keeping it");
            self.store.catalog.wake.notify_one();
        }
        self.counted.fetch_add(written as u64, Ordering::Relaxed);
        self.store.catalog.grow(written as u64);
        written
    }

    /// The temporary file; made when there is none yet.
    fn open(&self) -> io::Result<Arc<File>> {
        if let Some(file) = self.file.get() {
            return Ok(Arc::clone(file));
        }
        let made = Arc::new(layout::create(&self.temp)?);
        Ok(Arc::clone(self.file.get_or_init(|| made)))
    }

    /// Checks, makes durable, publishes, and only then shows the withheld end.
    /// Blocks.
    pub(crate) fn finish(self: &Arc<Self>, expected: Option<Digest>) -> Result<Finished, Error> {
        self.flush_here()?;
        self.settle(expected).inspect_err(|error| self.fail(error.clone()))
    }

    fn settle(self: &Arc<Self>, expected: Option<Digest>) -> Result<Finished, Error> {
        let (digest, size) = {
            let mut pen = lock(&self.pen);
            if std::mem::replace(&mut pen.closed, true) {
                return Err(Error::broken_off("it was closed"));
            }
            (pen.hasher.clone().finish(), pen.len)
        };
        if let Some(expected) = expected.filter(|expected| *expected != digest) {
            return Err(Error::Mismatch { expected: expected.into(), found: digest.into() });
        }
        let kept = if self.is_through() { None } else { self.keep(&digest, size)? };
        if kept.is_none() {
            drop(fs::remove_file(&self.temp));
        }
        let finished = kept.map_or(Finished::Unkept { digest, size }, Finished::Kept);
        self.progress.send_modify(|progress| {
            progress.visible = size;
            progress.state = State::Done(finished.clone());
        });
        Ok(finished)
    }

    fn keep(&self, digest: &Digest, size: u64) -> Result<Option<Entry>, Error> {
        let Ok(file) = self.open() else { return Ok(None) };
        // Not "unkept": after a failed sync the page cache may not be read again.
        file.sync_data().map_err(Error::io("make durable", &self.temp))?;
        match self.store.publish(&self.temp, digest, size) {
            Ok(published) => {
                self.store.catalog.shrink(self.counted.swap(0, Ordering::Relaxed));
                let file = published.held.unwrap_or(file);
                Ok(Some(Entry::new(&self.store, published.pin, size, Content::File(file))))
            }
            Err(error) => {
                tracing::warn!(%digest, error = &error as &dyn std::error::Error, "content is not kept");
                Ok(None)
            }
        }
    }

    /// Ends the fill badly; the first reason counts. Never blocks.
    pub(crate) fn fail(self: &Arc<Self>, error: Error) {
        let failed = self.progress.send_if_modified(|progress| {
            let growing = matches!(progress.state, State::Growing);
            if growing {
                progress.state = State::Failed(error);
            }
            growing
        });
        if !failed {
            return;
        }
        self.drained.notify_one();
        let fill = Arc::clone(self);
        let remove = move || {
            lock(&fill.pen).closed = true;
            if fill.file.get().is_some() {
                drop(fs::remove_file(&fill.temp));
            }
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }

    fn failure(&self) -> Result<(), Error> {
        match &self.progress.borrow().state {
            State::Failed(error) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Whether the disk takes no more of it.
    pub(crate) fn is_through(&self) -> bool {
        self.through.load(Ordering::Acquire)
    }

    /// Tells a waiting writer that a follower moved on.
    pub(crate) fn moved(&self) {
        self.taken.notify_one();
        self.taken_here.notify_all();
    }

    async fn room(&self, need: usize) {
        let since = Instant::now();
        loop {
            let full = lock(&self.window).make_room(need, since);
            let Err(deadline) = full else { return };
            // Whether by a move or by the deadline: look again.
            drop(timeout_at(deadline, self.taken.notified()).await);
        }
    }

    fn room_here(&self, need: usize) {
        let since = Instant::now();
        let mut window = lock(&self.window);
        while let Err(deadline) = window.make_room(need, since) {
            let pause = deadline.saturating_duration_since(Instant::now());
            let waited = self.taken_here.wait_timeout(window, pause);
            (window, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        self.store.catalog.shrink(*self.counted.get_mut());
    }
}

/// Puts what the disk did not take into the window, in pieces. Small ones are
/// copied, so that they don't keep a large buffer alive.
fn push(window: &mut Window, start: u64, batch: &Bytes, written: usize) {
    let mut from = written;
    while from < batch.len() {
        let to = batch.len().min(from + PIECE);
        let piece = batch.slice(from..to);
        window.push(start + from as u64, if from > 0 { Bytes::copy_from_slice(&piece) } else { piece });
        from = to;
    }
}
