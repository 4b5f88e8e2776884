//! Credentials lent for background refreshes: in memory only, for the very
//! repository they were accepted for, and not long after their owner left.

use std::time::Duration;

use moka::sync::Cache;
use tidegate_http::Identity;
use tidegate_name::Repository;
use tokio::time::Instant;

use crate::access::{Asked, Caller};

/// Credentials remembered per repository; the most recently accepted first.
const PER_REPOSITORY: usize = 4;

/// A credential that may be used for one refresh, and whose it is.
#[derive(Clone, Debug)]
pub struct Loan {
    /// Whose verdict the refresh renews, and by which spelling to ask.
    pub asked: Asked,
    /// The credential.
    pub identity: Identity,
}

impl Loan {
    pub(crate) fn new(asked: Asked, identity: Identity) -> Self {
        Self { asked, identity }
    }
}

#[derive(Clone)]
struct Lent {
    loan: Loan,
    used: Instant,
}

/// Who lends what.
pub(crate) struct Lending {
    within: Duration,
    lent: Cache<Repository, Vec<Lent>>,
}

impl Lending {
    pub(crate) fn new(within: Duration) -> Self {
        Self { within, lent: Cache::new(50_000) }
    }

    /// The upstream accepted the credential just now.
    pub(crate) fn accepted(&self, content: &Repository, loan: Loan, by_owner: bool, now: Instant) {
        if self.within.is_zero() {
            return;
        }
        self.change(content, |lent| {
            let before = lent.iter().position(|entry| entry.loan.asked.caller == loan.asked.caller);
            let used = match before.map(|at| lent.remove(at)) {
                Some(entry) if !by_owner => entry.used,
                None if !by_owner => return,
                _ => now,
            };
            lent.insert(0, Lent { loan, used });
            lent.truncate(PER_REPOSITORY);
        });
    }

    /// The owner used the credential just now.
    pub(crate) fn used(&self, content: &Repository, caller: &Caller, now: Instant) {
        let stale = self.lent.get(content).is_some_and(|lent| {
            // To the second is good enough, and spares the hot path a copy.
            lent.iter().any(|entry| {
                entry.loan.asked.caller == *caller
                    && now.saturating_duration_since(entry.used) > Duration::from_secs(1)
            })
        });
        if stale {
            self.change(content, |lent| {
                for entry in lent.iter_mut().filter(|entry| entry.loan.asked.caller == *caller) {
                    entry.used = now;
                }
            });
        }
    }

    /// The upstream refused the credential.
    pub(crate) fn refused(&self, content: &Repository, caller: &Caller) {
        if self.lent.contains_key(content) {
            self.change(content, |lent| lent.retain(|entry| entry.loan.asked.caller != *caller));
        }
    }

    /// The credential most recently accepted whose owner is still about.
    pub(crate) fn lend(&self, content: &Repository, now: Instant) -> Option<Loan> {
        let lent = self.lent.get(content)?;
        lent.iter()
            .find(|entry| now.saturating_duration_since(entry.used) <= self.within)
            .map(|entry| entry.loan.clone())
    }

    /// Drops all of a repository's.
    pub(crate) fn forget(&self, content: &Repository) {
        self.lent.invalidate(content);
    }

    fn change(&self, content: &Repository, edit: impl FnOnce(&mut Vec<Lent>)) {
        self.lent.entry(content.clone()).and_upsert_with(|before| {
            let mut lent = before.map(moka::Entry::into_value).unwrap_or_default();
            edit(&mut lent);
            lent
        });
    }
}
