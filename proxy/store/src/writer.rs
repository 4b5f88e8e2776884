//! The writing end of a fill, for async code and for blocking threads.

use std::{io, path::Path, sync::Arc};

use bytes::Bytes;
use tidegate_name::Digest;

use crate::{
    error::Error,
    fill::{Fill, Finished, State},
};

/// Takes in the content of one fill. Dropped without finishing, it tells its
/// followers that the fill broke off and leaves nothing behind.
pub struct Writer {
    pub(crate) fill: Arc<Fill>,
    pub(crate) len: u64,
    /// A write was begun and not waited for: some of its bytes may be missing.
    pub(crate) torn: bool,
}

impl Writer {
    /// Takes the next bytes. Waits while the disk is behind, and, when it is
    /// full, while the slowest follower is. Must be waited for: a write that is
    /// dropped halfway spoils the fill.
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), Error> {
        self.torn = true;
        self.fill.write(&bytes).await?;
        self.torn = false;
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Returns once everything written is hashed, in the file, and visible to
    /// followers but for the withheld end.
    pub async fn flush(&mut self) -> Result<(), Error> {
        self.fill.flush().await
    }

    /// How many bytes were written.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The file, whole up to the last flush; `None` if the disk has no room.
    pub fn path(&self) -> Option<&Path> {
        let there = self.fill.file.get().is_some() && !self.fill.is_through();
        there.then_some(self.fill.temp.as_path())
    }

    /// Checks the content against `expected`, makes it durable and publishes
    /// it; followers see the withheld end only then. Once begun it runs to its
    /// end, even if the caller stops waiting.
    pub async fn finish(self, expected: Option<Digest>) -> Result<Finished, Error> {
        let broke_down = |_| Error::broken_off("its writer broke down");
        let finished = tokio::spawn(async move {
            // Not waited for on a blocking thread: what writes needs one as well.
            self.fill.flush().await?;
            let finished = tokio::task::spawn_blocking(move || self.finish_blocking(expected));
            finished.await.map_err(broke_down)?
        });
        finished.await.map_err(broke_down)?
    }

    /// Like [`Writer::finish`], for threads that may block.
    pub fn finish_blocking(self, expected: Option<Digest>) -> Result<Finished, Error> {
        if self.torn {
            let error = Error::broken_off("a write was dropped halfway");
            self.fill.fail(error.clone());
            return Err(error);
        }
        self.fill.finish(expected)
    }

    /// Gives up: followers fail with `reason`, nothing is kept.
    pub fn fail(self, reason: impl Into<Arc<str>>) {
        self.fill.fail(Error::broken_off(reason));
    }
}

/// For pack builders and other blocking code: gathers small writes, and never
/// to be called on an async thread.
impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.fill.write_here(bytes).map_err(io::Error::other)?;
        self.len += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.fill.flush_here().map_err(io::Error::other)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if matches!(self.fill.progress.borrow().state, State::Growing) {
            self.fill.fail(Error::broken_off("its writer gave up"));
        }
    }
}
