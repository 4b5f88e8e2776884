//! Keeps repositories in use fresh behind their clients' backs.
//!
//! One task per repository, asleep between looks. A reader's own look counts:
//! the task then sleeps on. With nothing to look with (a private repository
//! whose readers are gone), it waits for the next reader.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tidegate_cache::{Asked, Pace};
use tidegate_http::Identity;
use tidegate_upstream::Priority;
use tokio::time::{Instant, sleep_until};

use crate::{
    git::Git,
    live::Live,
    refresh::{Looked, Who},
};

impl Git {
    /// Starts the background refresh of a repository unless it runs.
    pub(crate) fn keep(self: &Arc<Self>, live: &Arc<Live>) {
        if live.start_keeping() {
            tokio::spawn(keep_fresh(Arc::downgrade(self), Arc::downgrade(live)));
        }
    }

    /// What a refresh may be made with: the configured credential, else
    /// nothing if the repository is public, else a reader's own.
    fn refresher(&self, live: &Live) -> Option<Who> {
        let spelled = live.spelled();
        let with = |identity: Identity, proves| Who {
            asked: Asked {
                spelled: spelled.clone(),
                content: live.repository.clone(),
                caller: self.access.caller(&identity),
            },
            identity,
            by_owner: false,
            priority: Priority::Background,
            from: None,
            proves,
        };
        if let Some(configured) = live.client.credential() {
            return Some(with(configured, false));
        }
        if self.access.is_public(&spelled, &live.repository) {
            return Some(with(Identity::anonymous(), true));
        }
        let loan = self.access.borrow(&live.repository)?;
        Some(Who {
            asked: loan.asked,
            identity: loan.identity,
            by_owner: false,
            priority: Priority::Background,
            from: None,
            proves: true,
        })
    }
}

async fn keep_fresh(git: Weak<Git>, live: Weak<Live>) {
    let Some(every) = git.upgrade().map(|git| git.config.refresh_every) else { return };
    let mut pace = Pace::new(every);
    let mut not_before = Instant::now();
    loop {
        let Some(strong) = live.upgrade() else { return };
        let looked_at = strong.last_look();
        let Some(pause) = pace.next(strong.idle()) else {
            strong.stop_keeping();
            if let Some(git) = git.upgrade() {
                git.forget(&strong.repository);
            }
            return;
        };
        let due = (looked_at.unwrap_or_else(Instant::now) + pause).max(not_before);
        drop(strong);
        sleep_until(due).await;
        let (Some(git), Some(live)) = (git.upgrade(), live.upgrade()) else { return };
        if live.last_look() != looked_at {
            continue;
        }
        if live.foreign().is_some() {
            // Nothing to keep fresh; asleep until it is forgotten.
            live.looking(Instant::now());
            continue;
        }
        match git.refresher(&live) {
            Some(who) => {
                let scope = live.due_scope(every);
                match git.look(&live, who.clone(), scope).await {
                    Looked::Sick(sick) => not_before = Instant::now() + sick.wait.unwrap_or(Duration::ZERO),
                    // A completion that the budget put off.
                    Looked::Accepted(_) if live.lacks_mirror() => git.update_behind(&live, &who.behalf()),
                    _ => {}
                }
            }
            // Nobody to ask for: the next reader asks with its own credential.
            None => live.looking(Instant::now()),
        }
    }
}
