//! Making room: one background task, woken by growth, takes the least recently
//! used entries and groups away until the low-water mark.

#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use tidegate_name::Digest;

use crate::{
    catalog::{Catalog, Group},
    clock::micros,
    store::Store,
};

/// Groups grow and free space shrinks without telling us: look this often.
const LOOK: Duration = Duration::from_secs(10);
/// Evicting a group unpins its packs, which become evictable only then, and
/// what turns out to be linked relieves the limit, not the disk: look again.
const ROUNDS: usize = 8;

/// A group of files that is accounted for, until this is dropped.
pub struct Account {
    number: u64,
    catalog: Arc<Catalog>,
}

impl Account {
    pub(crate) fn open(catalog: &Arc<Catalog>, group: Arc<dyn Group>) -> Self {
        let number = catalog.join(group);
        catalog.wake.notify_one();
        Self { number, catalog: Arc::clone(catalog) }
    }

    /// Says that the group's files have grown.
    pub fn changed(&self) {
        self.catalog.wake.notify_one();
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.catalog.leave(self.number);
    }
}

/// What can be taken away.
enum Victim {
    Entry(Digest),
    Group(Arc<dyn Group>),
}

/// Makes room whenever it is needed, for as long as the store lives.
pub(crate) async fn run(store: Weak<Store>) {
    let Some((catalog, evicting)) =
        store.upgrade().map(|store| (Arc::clone(&store.catalog), store.evicting.clone()))
    else {
        return;
    };
    loop {
        tokio::select! {
            () = catalog.wake.notified() => {}
            () = tokio::time::sleep(LOOK) => {}
            () = evicting.cancelled() => return,
        }
        let Some(store) = store.upgrade() else { return };
        let looked = tokio::task::spawn_blocking(move || store.make_room()).await;
        if let Err(error) = looked {
            tracing::error!(%error, "the eviction broke down");
        }
    }
}

impl Store {
    /// Ends the background task, for tests that evict by hand.
    #[cfg(test)]
    fn stop_evicting(&self) {
        self.evicting.cancel();
    }

    /// Evicts until everything is below its mark, or nothing is left. Blocks.
    pub(crate) fn make_room(&self) {
        self.catalog.measure_groups();
        for _ in 0..ROUNDS {
            let excess = self.space.excess(&self.catalog);
            if excess == 0 || self.free(excess) == 0 {
                break;
            }
            self.catalog.measure_groups();
        }
        let over = self.space.is_over(&self.catalog);
        if over && !self.catalog.is_exhausted() {
            tracing::warn!("the disk is full of what is in use; new content is passed on without keeping it");
        }
        self.catalog.set_exhausted(over);
    }

    /// Takes away about `excess` bytes and says how many it was.
    fn free(&self, excess: u64) -> u64 {
        self.look_at_links();
        let entries = self.catalog.candidates();
        let mut victims: Vec<_> =
            entries.into_iter().map(|(used, digest)| (used, Victim::Entry(digest))).collect();
        let groups = self.catalog.groups();
        victims.extend(groups.into_iter().map(|group| (micros(group.last_used()), Victim::Group(group))));
        victims.sort_unstable_by_key(|(used, _)| *used);
        let mut freed: u64 = 0;
        for (_, victim) in victims {
            if freed >= excess || self.closing.is_cancelled() {
                break;
            }
            let bytes = match victim {
                Victim::Entry(digest) => self.evict_entry(&digest),
                Victim::Group(group) => self.evict_group(&*group),
            };
            freed = freed.saturating_add(bytes);
        }
        freed
    }

    /// Notices links that were made or dropped behind our back.
    fn look_at_links(&self) {
        use std::os::unix::fs::MetadataExt as _;
        for digest in self.catalog.linked() {
            let linked = std::fs::metadata(self.layout.content(&digest));
            self.catalog.set_linked(&digest, linked.is_ok_and(|metadata| metadata.nlink() > 1));
        }
    }

    fn evict_group(&self, group: &dyn Group) -> u64 {
        let before = group.bytes();
        if before == 0 || !group.evict() {
            return 0;
        }
        self.evictions.fetch_add(1, Ordering::Relaxed);
        before.saturating_sub(group.bytes()).max(1)
    }
}
