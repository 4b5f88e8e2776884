//! Mirrors in the store's bookkeeping: each counts in the disk limit and goes
//! as a whole, least recently read first, never while it is in use.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{Duration, SystemTime},
};

use tidegate_name::Repository;
use tidegate_store::{Account, Group};

use crate::git::Git;

/// A mirror read this recently is in use.
const IN_USE: Duration = Duration::from_secs(60);
/// Mirrors read within this time are kept fresh again after a restart.
const RESUME: Duration = Duration::from_secs(3600);

/// How often the age of refs is measured.
const MEASURE_EVERY: Duration = Duration::from_secs(10);

/// The accounts of all mirrors on disk.
#[derive(Default)]
pub(crate) struct Accounts(Mutex<HashMap<Repository, Account>>);

struct Held {
    git: Weak<Git>,
    repository: Repository,
}

impl Group for Held {
    fn bytes(&self) -> u64 {
        self.git.upgrade().map_or(0, |git| git.registry.bytes(&self.repository))
    }

    fn last_used(&self) -> SystemTime {
        let git = self.git.upgrade();
        git.and_then(|git| git.registry.last_used(&self.repository)).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    fn evict(&self) -> bool {
        let Some(git) = self.git.upgrade() else { return false };
        if let Some(live) = git.known(&self.repository) {
            if live.idle() < IN_USE {
                return false;
            }
            live.mirror.store(None);
            git.forget(&self.repository);
        }
        match git.registry.evict(&self.repository) {
            Ok(gone) => gone,
            Err(error) => {
                tracing::error!(repository = %self.repository, %error, "a mirror could not be evicted");
                false
            }
        }
    }
}

impl Git {
    /// Counts a mirror, or says that it has grown.
    pub(crate) fn account(self: &Arc<Self>, repository: &Repository) {
        let mut accounts = self.accounts.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(account) = accounts.get(repository) {
            account.changed();
        } else {
            let held = Held { git: Arc::downgrade(self), repository: repository.clone() };
            accounts.insert(repository.clone(), self.store.account(Arc::new(held)));
        }
    }

    pub(crate) fn close_account(&self, repository: &Repository) {
        self.accounts.0.lock().unwrap_or_else(PoisonError::into_inner).remove(repository);
    }

    /// Takes up the mirrors of earlier runs: all are counted, those in use are
    /// kept fresh. Then keeps the metric of the oldest refs in use.
    pub fn resume(self: &Arc<Self>) {
        let git = Arc::clone(self);
        tokio::task::spawn_blocking(move || git.take_up());
        let git = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(MEASURE_EVERY).await;
                let Some(git) = git.upgrade() else { return };
                git.metrics.oldest("git", git.oldest(RESUME));
            }
        });
    }

    fn take_up(self: &Arc<Self>) {
        let now = SystemTime::now();
        for listed in self.registry.list() {
            self.account(&listed.repository);
            if now.duration_since(listed.last_used).is_ok_and(|idle| idle > RESUME) {
                continue;
            }
            let Some(client) = self.upstreams.get(listed.repository.upstream()) else { continue };
            let Some(live) = self.reopen(&listed.repository, client) else { continue };
            self.keep(&live);
        }
    }
}
