//! Reading content that is still growing: any number of followers, early and
//! late, each at its own pace, all through one watch on its length.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use futures_util::stream;
use tidegate_http::Body;
use tokio::sync::watch;

use crate::{
    clock::lock,
    error::Error,
    fill::{Fill, Finished, Progress, State},
    read,
    window::STALL,
};

/// Content that is being filled. Clones see the same fill.
#[derive(Clone)]
pub struct Growing {
    pub(crate) fill: Arc<Fill>,
}

impl Growing {
    /// The bytes from `from` on, as they come. The body ends only after the
    /// whole content was verified; if it never is, the body fails, and with it
    /// the connection. From beyond the end it is empty.
    ///
    /// Call it before the first byte is written, or ask [`Growing::holds`]:
    /// when the disk is full, early bytes do not stay for late joiners.
    pub fn reader(&self, from: u64) -> Body {
        let mut window = lock(&self.fill.window);
        let progress = self.fill.progress.subscribe();
        let disk = progress.borrow().disk;
        if disk.is_some_and(|disk| !window.holds(from.max(disk))) {
            return tidegate_http::stream(stream::iter([Err(Error::Passed { at: from }.into())]));
        }
        let follower = Follower { seat: window.sit(from), fill: Arc::clone(&self.fill), at: from, progress };
        drop(window);
        tidegate_http::stream(stream::unfold(Some(follower), |follower| async {
            let mut follower = follower?;
            match follower.next().await {
                Ok(None) => None,
                Ok(Some(bytes)) => Some((Ok(bytes), Some(follower))),
                Err(error) => Some((Err(error.into()), None)),
            }
        }))
    }

    /// Whether a reader that starts at byte `from` now would get all of it.
    pub fn holds(&self, from: u64) -> bool {
        let window = lock(&self.fill.window);
        let progress = self.fill.progress.borrow();
        match progress.state {
            State::Failed(_) => false,
            _ => progress.disk.is_none_or(|disk| window.holds(from.max(disk))),
        }
    }

    /// How many bytes followers may read by now.
    pub fn len(&self) -> u64 {
        self.fill.progress.borrow().visible
    }

    /// Whether that is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the fill ended badly: who joins it now gets nothing whole.
    pub fn has_failed(&self) -> bool {
        matches!(self.fill.progress.borrow().state, State::Failed(_))
    }

    /// How the fill ended, once it has.
    pub async fn outcome(&self) -> Result<Finished, Error> {
        let mut progress = self.fill.progress.subscribe();
        let ended = progress.wait_for(|progress| !matches!(progress.state, State::Growing)).await;
        match ended.map(|progress| progress.state.clone()) {
            Ok(State::Done(finished)) => Ok(finished),
            Ok(State::Failed(error)) => Err(error),
            Ok(State::Growing) | Err(_) => Err(Error::broken_off("its writer is gone")),
        }
    }
}

impl fmt::Debug for Growing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Growing").field("progress", &*self.fill.progress.borrow()).finish_non_exhaustive()
    }
}

/// One reader of a growing file.
struct Follower {
    fill: Arc<Fill>,
    seat: u64,
    at: u64,
    progress: watch::Receiver<Progress>,
}

impl Follower {
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let now = self.progress.borrow_and_update().clone();
            if let State::Failed(error) = now.state {
                return Err(error);
            }
            if now.disk.is_some() {
                self.tell()?;
            }
            if self.at < now.visible {
                let bytes = self.read(now.visible, now.disk).await?;
                self.at += bytes.len() as u64;
                return Ok(Some(bytes));
            }
            if let State::Done(_) = now.state {
                return Ok(None);
            }
            let gone = |_| Error::broken_off("its writer is gone");
            self.progress.changed().await.map_err(gone)?;
        }
    }

    /// Tells a writer that waits for us how far we are.
    fn tell(&self) -> Result<(), Error> {
        if !lock(&self.fill.window).advance(self.seat, self.at) {
            return Err(Error::Stalled { seconds: STALL.as_secs() });
        }
        self.fill.moved();
        Ok(())
    }

    async fn read(&self, visible: u64, disk: Option<u64>) -> Result<Bytes, Error> {
        let on_disk = disk.unwrap_or(visible).min(visible);
        if self.at >= on_disk {
            let held = lock(&self.fill.window).get(self.at, visible - self.at);
            return held.ok_or(Error::Passed { at: self.at });
        }
        let file = self.fill.file.get().ok_or_else(|| Error::broken_off("its file is gone"))?;
        read::chunk(file, self.at, on_disk - self.at).await.map_err(Error::io("read", &self.fill.temp))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        lock(&self.fill.window).leave(self.seat);
        self.fill.moved();
    }
}
