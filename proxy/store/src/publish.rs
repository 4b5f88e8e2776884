//! The step that makes content visible, and its opposites: eviction, purge,
//! quarantine. One lock keeps them from crossing; no slow call is made under it.

use std::{
    fs::{self, File},
    io,
    ops::ControlFlow,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use tidegate_name::Digest;

use crate::{
    catalog::{Claim, Pin},
    clock::lock,
    entry::{Content, Entry},
    error::Error,
    layout::{self, Found},
    read,
    store::Store,
};

/// Content that lies in its place.
pub(crate) struct Published {
    pub(crate) pin: Pin,
    /// The file that was there before, if one was.
    pub(crate) held: Option<Arc<File>>,
}

impl Store {
    /// Moves a verified, durable file to its place and records it. Blocks.
    pub(crate) fn publish(&self, temp: &Path, digest: &Digest, size: u64) -> Result<Published, Error> {
        let place = self.layout.content(digest);
        self.layout.make_parents(&place).map_err(Error::io("make the folders of", &place))?;
        let pin = self.catalog.pin(digest);
        let held = {
            let _turn = lock(&self.turn);
            let held = held_already(&place, size);
            if held.is_none() {
                fs::rename(temp, &place).map_err(Error::io("publish", &place))?;
            }
            held
        };
        if held.is_some() {
            drop(fs::remove_file(temp));
        } else if let Some(folder) = place.parent() {
            layout::sync_folder(folder).map_err(Error::io("make durable", folder))?;
        }
        // A mirror may have linked the file while it grew.
        let linked = fs::metadata(&place).is_ok_and(|metadata| metadata.nlink() > 1);
        self.catalog.record(digest, size, linked, None);
        Ok(Published { pin, held: held.map(Arc::new) })
    }

    /// Stores a small whole value; in memory only if the disk has no room. Blocks.
    pub(crate) fn put_here(self: &Arc<Self>, bytes: &Bytes) -> Entry {
        let digest = Digest::of(bytes);
        let size = bytes.len() as u64;
        let entry = |pin| Entry::new(self, pin, size, Content::Memory(bytes.clone()));
        let pin = match self.catalog.claim(&digest) {
            // Looked at, not only remembered: what was lost on disk is healed here.
            Claim::Recorded(known, pin) if known == size && self.layout.content(&digest).exists() => {
                self.memory.insert(digest, bytes);
                return entry(pin);
            }
            _ => self.catalog.pin(&digest),
        };
        let temp = self.layout.temp("put");
        let stored = if self.space.permit(&self.catalog, size) {
            self.put_file(&temp, &digest, bytes)
        } else {
            Ok(())
        };
        if let Err(error) = stored {
            tracing::warn!(%digest, error = &error as &dyn std::error::Error, "content is kept in memory only");
            drop(fs::remove_file(&temp));
            self.catalog.wake.notify_one();
        }
        self.memory.insert(digest, bytes);
        entry(pin)
    }

    fn put_file(&self, temp: &Path, digest: &Digest, bytes: &[u8]) -> Result<(), Error> {
        use io::Write as _;
        let mut file = layout::create(temp).map_err(Error::io("make", temp))?;
        file.write_all(bytes).map_err(Error::io("write", temp))?;
        file.sync_data().map_err(Error::io("make durable", temp))?;
        self.publish(temp, digest, bytes.len() as u64).map(drop)
    }

    /// Opens content for a reader, and brings it into memory if it is small.
    /// Blocks.
    pub(crate) fn load(self: &Arc<Self>, digest: &Digest, known: Option<u64>, pin: Pin) -> Option<Entry> {
        let (file, size) = match known {
            Some(size) => (self.open_recorded(digest, size)?, size),
            None => self.adopt(digest)?,
        };
        if !self.memory.takes(size) {
            return Some(Entry::new(self, pin, size, Content::File(Arc::new(file))));
        }
        let bytes = read::whole(&file, size).ok();
        // Small content is checked whenever it comes into memory: it costs little.
        let Some(bytes) = bytes.filter(|bytes| digest_of(digest, bytes) == *digest) else {
            self.set_aside(digest, "its bytes don't hash to its name");
            return None;
        };
        self.memory.insert(*digest, &bytes);
        Some(Entry::new(self, pin, size, Content::Memory(bytes)))
    }

    fn open_recorded(&self, digest: &Digest, size: u64) -> Option<File> {
        let place = self.layout.content(digest);
        match File::open(&place).and_then(|file| Ok((file.metadata()?.len(), file))) {
            Ok((found, file)) if found == size => Some(file),
            Ok(_) => {
                self.set_aside(digest, "its length changed");
                None
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.catalog.forget(digest);
                None
            }
            Err(error) => {
                tracing::warn!(path = %place.display(), %error, "content cannot be opened");
                None
            }
        }
    }

    /// Takes in content that the index doesn't know (it was lost).
    fn adopt(&self, digest: &Digest) -> Option<(File, u64)> {
        let _turn = lock(&self.turn);
        let file = File::open(self.layout.content(digest)).ok()?;
        let metadata = file.metadata().ok().filter(fs::Metadata::is_file)?;
        self.catalog.record(digest, metadata.len(), metadata.nlink() > 1, None);
        Some((file, metadata.len()))
    }

    /// Compares the records with what lies on disk, once after start-up. Blocks.
    pub(crate) fn reconcile(&self) {
        let walked = self.layout.walk(&mut |found| {
            if self.closing.is_cancelled() {
                return ControlFlow::Break(());
            }
            let Found::Content(digest, place, metadata) = found else { return ControlFlow::Continue(()) };
            let linked = metadata.nlink() > 1;
            match self.catalog.confirm(&digest, metadata.len(), linked) {
                Some(true) => {}
                Some(false) => self.set_aside(&digest, "its length changed"),
                None => {
                    let _turn = lock(&self.turn);
                    if place.exists() && self.catalog.confirm(&digest, metadata.len(), linked).is_none() {
                        let used = metadata.modified().ok().map(crate::clock::micros);
                        self.catalog.record(&digest, metadata.len(), linked, used);
                    }
                }
            }
            ControlFlow::Continue(())
        });
        match walked {
            Ok(()) if self.closing.is_cancelled() => {}
            Ok(()) => self.catalog.complete(),
            // Incomplete, every unknown digest is looked up on disk: slower, not wrong.
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the content folder cannot be walked"
                );
            }
        }
        self.catalog.wake.notify_one();
    }

    /// Deletes one entry to make room, unless somebody reads it or a link holds
    /// its bytes anyway; returns the bytes that count no longer. Blocks.
    pub(crate) fn evict_entry(&self, digest: &Digest) -> u64 {
        let place = self.layout.content(digest);
        let gone = self.layout.temp("evicted");
        let freed = {
            let _turn = lock(&self.turn);
            if fs::metadata(&place).is_ok_and(|metadata| metadata.nlink() > 1) {
                return self.catalog.set_linked(digest, true);
            }
            let Some(freed) = self.catalog.take_unpinned(digest) else { return 0 };
            if let Err(error) = fs::rename(&place, &gone)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(path = %place.display(), %error, "content cannot be evicted");
            }
            freed
        };
        self.evictions.fetch_add(1, Ordering::Relaxed);
        self.memory.remove(digest);
        // Deleting a large file takes a while, so not under the lock.
        drop(fs::remove_file(&gone));
        freed
    }

    /// Deletes an entry whoever reads it. Blocks.
    pub(crate) fn remove_here(&self, digest: &Digest) {
        let place = self.layout.content(digest);
        let gone = self.layout.temp("removed");
        {
            let _turn = lock(&self.turn);
            self.catalog.forget(digest);
            drop(fs::rename(&place, &gone));
        }
        self.memory.remove(digest);
        drop(fs::remove_file(&gone));
        // The purge must not be undone by a power cut.
        if let Some(folder) = place.parent() {
            drop(layout::sync_folder(folder));
        }
    }

    /// Moves damaged content out of the way. Blocks.
    pub(crate) fn set_aside(&self, digest: &Digest, why: &str) {
        tracing::error!(%digest, why, "content is damaged; setting it aside");
        let _turn = lock(&self.turn);
        self.catalog.forget(digest);
        self.memory.remove(digest);
        if let Err(error) = self.layout.quarantine(digest) {
            tracing::error!(error = &error as &dyn std::error::Error, "damaged content stays in place");
        }
    }
}

/// The file at `place`, if it is as long as it should be.
fn held_already(place: &Path, size: u64) -> Option<File> {
    let file = File::open(place).ok()?;
    let metadata = file.metadata().ok()?;
    (metadata.is_file() && metadata.len() == size).then_some(file)
}

/// What `bytes` hash to, by the algorithm of `like`.
fn digest_of(like: &Digest, bytes: &[u8]) -> Digest {
    let mut hasher = tidegate_name::Hasher::new(like.algorithm());
    hasher.update(bytes);
    hasher.finish()
}
