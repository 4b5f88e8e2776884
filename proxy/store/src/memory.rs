//! The memory tier: small content whole, weighted by its bytes.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use moka::sync::Cache;
use tidegate_name::Digest;

use crate::config::StoreConfig;

/// What an entry costs beside its bytes: key, links and counters.
const OVERHEAD: usize = 256;

/// Small content in memory, least used out first.
#[derive(Debug)]
pub(crate) struct Memory {
    cache: Cache<Digest, Bytes>,
    on: bool,
    largest: u64,
    evictions: Arc<AtomicU64>,
}

impl Memory {
    pub(crate) fn new(config: &StoreConfig) -> Self {
        let evictions = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&evictions);
        let cache = Cache::builder()
            .max_capacity(config.memory_limit.as_u64())
            .weigher(|_: &Digest, bytes: &Bytes| u32::try_from(bytes.len() + OVERHEAD).unwrap_or(u32::MAX))
            .eviction_listener(move |_, _, cause| {
                if cause.was_evicted() {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            })
            .build();
        // With no room at all nothing is small enough, not even nothing.
        let on = config.memory_limit.as_u64() > 0;
        Self { on, largest: config.memory_entry.as_u64(), cache, evictions }
    }

    /// Whether content of this size belongs here.
    pub(crate) fn takes(&self, size: u64) -> bool {
        self.on && size <= self.largest
    }

    pub(crate) fn get(&self, digest: &Digest) -> Option<Bytes> {
        self.cache.get(digest)
    }

    /// Keeps `bytes` if they are small enough, as a copy of their own when they
    /// are a small part of a larger buffer.
    pub(crate) fn insert(&self, digest: Digest, bytes: &Bytes) {
        if self.takes(bytes.len() as u64) {
            self.cache.insert(digest, Bytes::copy_from_slice(bytes));
        }
    }

    pub(crate) fn remove(&self, digest: &Digest) {
        self.cache.invalidate(digest);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.cache.weighted_size()
    }

    pub(crate) fn entries(&self) -> u64 {
        self.cache.entry_count()
    }

    pub(crate) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }
}
