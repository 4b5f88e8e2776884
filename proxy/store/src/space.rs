//! Whether there is room on the disk for some more bytes.
//!
//! The answer is cheap nearly always: one look at the file system pays for
//! many megabytes. Near the reserve every write looks again.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{catalog::Catalog, config::StoreConfig, error::Error};

/// The most that is written between two looks at the file system.
const STRIDE: u64 = 64 << 20;

/// The limits on what may be written.
pub(crate) struct Space {
    root: PathBuf,
    limit: u64,
    reserve: u64,
    /// What may be written before the next look.
    allowance: AtomicU64,
    /// What a test lets the disk take.
    write_limit: AtomicU64,
}

impl Space {
    /// Blocks for one look at the file system.
    pub(crate) fn new(root: PathBuf, config: &StoreConfig) -> Result<Self, Error> {
        let status = rustix::fs::statvfs(&root)
            .map_err(|errno| Error::io("ask for the free space of", &root)(errno.into()))?;
        let total = status.f_blocks.saturating_mul(status.f_frsize);
        Ok(Self {
            root,
            limit: config.disk_limit.as_u64(),
            reserve: config.reserve_of(total),
            allowance: AtomicU64::new(0),
            write_limit: AtomicU64::new(config.write_limit.unwrap_or(u64::MAX)),
        })
    }

    /// Whether `bytes` more may be written; wakes the eviction when it is time.
    ///
    /// Over a limit the answer stays yes as long as eviction can still help: a
    /// writer never waits for it. Blocks now and then.
    pub(crate) fn permit(&self, catalog: &Catalog, bytes: u64) -> bool {
        if take(&self.write_limit, bytes).is_none() {
            return false;
        }
        let over = catalog.bytes().saturating_add(bytes) > self.limit;
        if over {
            catalog.wake.notify_one();
            if catalog.is_exhausted() {
                return false;
            }
        }
        if take(&self.allowance, bytes).is_some() {
            return true;
        }
        let free = self.free();
        if free >= self.reserve.saturating_add(bytes) {
            self.allowance.store(((free - self.reserve) / 4).min(STRIDE), Ordering::Relaxed);
            return true;
        }
        catalog.wake.notify_one();
        // The reserve is there to be used while eviction runs, but not all of it.
        free >= (self.reserve / 4).saturating_add(bytes) && !catalog.is_exhausted()
    }

    /// How many bytes eviction should free now, 0 when nothing is over.
    ///
    /// High water is the limit, low water 90 % of it.
    pub(crate) fn excess(&self, catalog: &Catalog) -> u64 {
        let held = catalog.bytes();
        let over_limit = if held > self.limit { held - self.limit / 10 * 9 } else { 0 };
        let free = self.free();
        let short = if free < self.reserve { self.reserve + self.reserve / 10 - free } else { 0 };
        over_limit.max(short)
    }

    /// Whether a limit is passed at this moment.
    pub(crate) fn is_over(&self, catalog: &Catalog) -> bool {
        catalog.bytes() > self.limit || self.free() < self.reserve
    }

    /// Free bytes on the file system; "plenty" where it won't say, since a full
    /// disk is noticed by the write as well.
    fn free(&self) -> u64 {
        rustix::fs::statvfs(&self.root)
            .map_or(u64::MAX, |status| status.f_bavail.saturating_mul(status.f_frsize))
    }
}

/// Takes `bytes` from what is left, if that is enough.
fn take(left: &AtomicU64, bytes: u64) -> Option<u64> {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| match left {
        u64::MAX => Some(left),
        _ => left.checked_sub(bytes),
    })
    .ok()
}
