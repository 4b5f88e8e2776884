//! What is remembered of single credentials: their share of the budget, and
//! until when the upstream limits them. Bounded; the least recently used go.

use std::{collections::HashMap, sync::Arc};

use tokio::time::Instant;

use super::{MINUTE, rate::Rate};

/// Most credentials remembered per upstream.
pub(crate) const LIMIT: usize = 4096;

#[derive(Debug)]
pub(crate) struct Credentials {
    per_minute: u32,
    entries: HashMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    used: Instant,
    rate: Arc<Rate>,
    blocked_until: Option<Instant>,
}

impl Credentials {
    pub(crate) fn new(per_minute: u32) -> Self {
        Self { per_minute, entries: HashMap::new() }
    }

    /// The share of one credential.
    pub(crate) fn rate(&mut self, key: u64, now: Instant) -> Arc<Rate> {
        Arc::clone(&self.entry(key, now).rate)
    }

    pub(crate) fn block(&mut self, key: u64, until: Instant, now: Instant) {
        let entry = self.entry(key, now);
        entry.blocked_until = entry.blocked_until.max(Some(until));
    }

    pub(crate) fn blocked_until(&self, key: u64) -> Option<Instant> {
        self.entries.get(&key)?.blocked_until
    }

    fn entry(&mut self, key: u64, now: Instant) -> &mut Entry {
        if self.entries.len() >= LIMIT && !self.entries.contains_key(&key) {
            self.prune(now);
        }
        let per_minute = self.per_minute;
        let entry = self.entries.entry(key).or_insert_with(|| Entry {
            used: now,
            rate: Arc::new(Rate::new(per_minute)),
            blocked_until: None,
        });
        entry.used = now;
        entry
    }

    /// Forgets what is as good as new, and if that is too little an eighth of
    /// all, the least recently used: so the search is paid once in 512 times.
    fn prune(&mut self, now: Instant) {
        self.entries.retain(|_, entry| {
            now - entry.used < MINUTE || entry.blocked_until.is_some_and(|until| until > now)
        });
        if self.entries.len() >= LIMIT {
            let mut used: Vec<Instant> = self.entries.values().map(|entry| entry.used).collect();
            let (_, &mut oldest, _) = used.select_nth_unstable(LIMIT / 8);
            let mut spare = LIMIT / 8;
            self.entries.retain(|_, entry| {
                let goes = spare > 0 && entry.used <= oldest;
                spare -= usize::from(goes);
                !goes
            });
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}
