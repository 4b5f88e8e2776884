//! How much is asked of one upstream: so many requests in any minute, so many at
//! a time, so many per credential, and none while it limits us.
//!
//! A fifth of both is kept for waiting clients. Who has to wait queues here,
//! clients before webhooks; the background never waits. Time is tokio's clock.

mod credentials;
mod rate;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tidegate_http::Identity;
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep_until, timeout_at},
};

use self::{credentials::Credentials, rate::Rate};
use crate::{ask::Priority, config::BudgetConfig, limits};

/// Most requests that may wait for one upstream's budget.
const QUEUE: usize = 1024;
/// What is named where nothing says when there is room again.
const SOON: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// Limits of two credentials within this time are taken for the upstream's.
const TOGETHER: Duration = Duration::from_secs(10);

/// The budget of one upstream.
#[derive(Debug)]
pub(crate) struct Budget {
    config: BudgetConfig,
    /// All requests.
    whole: Rate,
    /// Those that no client waits for: four fifths of it.
    unreserved: Rate,
    relays: Arc<Semaphore>,
    /// Keys for what is remembered of credentials; drawn anew at every start.
    hasher: RandomState,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    in_use: u32,
    /// Who waits, the next one first.
    queue: BTreeMap<(Priority, u64), Arc<Notify>>,
    tickets: u64,
    credentials: Credentials,
    blocked_until: Option<Instant>,
    last_limit: Option<(Option<u64>, Instant)>,
    /// When requests of the last minute were let through; at most `per_minute`.
    recent: VecDeque<Instant>,
}

/// Why a request is not let through, and when to come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Our own budget is spent.
    Spent(Duration),
    /// The upstream limits this credential or all of us.
    Limited(Duration),
}

/// A request that wants to be let through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) priority: Priority,
    /// Whether it goes at a client's pace, body and all.
    pub(crate) relay: bool,
    /// How long it may wait here.
    pub(crate) patience: Duration,
}

/// Room for one request, given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    budget: Arc<Budget>,
    _relay: Option<OwnedSemaphorePermit>,
}

impl Budget {
    pub(crate) fn new(config: BudgetConfig) -> Self {
        let hasher = RandomState::new();
        let unreserved = config.per_minute - reserve(config.per_minute);
        Self {
            whole: Rate::new(config.per_minute),
            unreserved: Rate::new(unreserved),
            // Relays go at their clients' pace: half of all, so that slow
            // clients never keep everyone else out.
            relays: Arc::new(Semaphore::new((config.concurrent as usize).div_ceil(2).max(1))),
            state: Mutex::new(State {
                in_use: 0,
                queue: BTreeMap::new(),
                tickets: 0,
                credentials: Credentials::new(config.per_credential),
                blocked_until: None,
                last_limit: None,
                recent: VecDeque::new(),
            }),
            hasher,
            config,
        }
    }

    /// The figures it was made from.
    pub(crate) fn config(&self) -> &BudgetConfig {
        &self.config
    }

    /// Waits for room, as long as the priority and `patience` allow.
    pub(crate) async fn acquire(self: &Arc<Self>, want: Want<'_>) -> Result<Permit, Refusal> {
        let deadline = match want.priority {
            Priority::Background => Instant::now(),
            Priority::Client | Priority::Webhook => Instant::now() + want.patience,
        };
        let key = self.key(want.identity);
        self.check_limited(key)?;
        let relay = if want.relay { Some(self.relay_slot(deadline).await?) } else { None };
        if let Some(key) = key {
            self.pay_credential(key, deadline).await?;
        }
        self.pay_whole(want.priority, deadline).await?;
        let permit = Permit { budget: Arc::clone(self), _relay: relay };
        // A limit may have been learned while this one waited.
        self.check_limited(key)?;
        Ok(permit)
    }

    /// Takes note of a limit that the upstream set for this identity.
    pub(crate) fn report_limit(&self, identity: &Identity, pause: Duration) {
        let key = self.key(identity);
        let now = Instant::now();
        let until = now + limits::bounded(pause);
        let mut state = self.lock();
        let whole = match (key, state.last_limit) {
            (None, _) => true,
            (Some(_), Some((last, at))) => last != key && now - at <= TOGETHER,
            (Some(_), None) => false,
        };
        state.last_limit = Some((key, now));
        if let Some(key) = key {
            state.credentials.block(key, until, now);
        }
        if whole {
            state.blocked_until = state.blocked_until.max(Some(until));
        }
    }

    /// How many more requests this minute would take.
    pub(crate) fn remaining(&self) -> u32 {
        let now = Instant::now();
        let mut state = self.lock();
        if state.blocked_until.is_some_and(|until| until > now) {
            return 0;
        }
        state.forget_before(now);
        self.config.per_minute.saturating_sub(u32::try_from(state.recent.len()).unwrap_or(u32::MAX))
    }

    /// What a credential is remembered by; nothing for the anonymous, who
    /// count as the upstream as a whole.
    fn key(&self, identity: &Identity) -> Option<u64> {
        (!identity.is_anonymous()).then(|| self.hasher.hash_one(identity.parts()))
    }

    fn check_limited(&self, key: Option<u64>) -> Result<(), Refusal> {
        let now = Instant::now();
        let state = self.lock();
        let own = key.and_then(|key| state.credentials.blocked_until(key));
        match own.max(state.blocked_until) {
            Some(until) if until > now => Err(Refusal::Limited(until - now)),
            _ => Ok(()),
        }
    }

    async fn relay_slot(&self, deadline: Instant) -> Result<OwnedSemaphorePermit, Refusal> {
        match timeout_at(deadline, Arc::clone(&self.relays).acquire_owned()).await {
            Ok(Ok(slot)) => Ok(slot),
            Ok(Err(_)) | Err(_) => Err(Refusal::Spent(SOON)),
        }
    }

    async fn pay_credential(&self, key: u64, deadline: Instant) -> Result<(), Refusal> {
        loop {
            let now = Instant::now();
            let rate = self.lock().credentials.rate(key, now);
            let Err(wait) = rate.take() else { return Ok(()) };
            if now + wait > deadline {
                return Err(Refusal::Spent(wait));
            }
            sleep_until(now + wait).await;
        }
    }

    /// Queues for the part of the budget that all share.
    async fn pay_whole(self: &Arc<Self>, priority: Priority, deadline: Instant) -> Result<(), Refusal> {
        let ticket = Ticket::draw(self, priority)?;
        let mut paid_unreserved = priority == Priority::Client;
        loop {
            let Err(wait) = self.take(&ticket, &mut paid_unreserved) else { return Ok(()) };
            let now = Instant::now();
            let wake = now + wait.unwrap_or(Duration::ZERO);
            if now >= deadline || wake > deadline {
                return Err(Refusal::Spent(wait.unwrap_or(SOON)));
            }
            let wake = if wait.is_some() { wake } else { deadline };
            // Woken early when room comes back or the queue moves up.
            let _ = timeout_at(wake, ticket.turn.notified()).await;
        }
    }

    /// Takes room if it is this ticket's turn. Else: how long there will be
    /// none, if that is known.
    fn take(&self, ticket: &Ticket, paid_unreserved: &mut bool) -> Result<(), Option<Duration>> {
        let mut state = self.lock();
        if state.queue.keys().next() != Some(&ticket.place) {
            return Err(None);
        }
        let concurrent = match ticket.place.0 {
            Priority::Client => self.config.concurrent,
            Priority::Webhook | Priority::Background => {
                self.config.concurrent - reserve(self.config.concurrent)
            }
        };
        if state.in_use >= concurrent {
            return Err(None);
        }
        if !*paid_unreserved {
            self.unreserved.take().map_err(Some)?;
            *paid_unreserved = true;
        }
        self.whole.take().map_err(Some)?;
        let now = Instant::now();
        state.in_use += 1;
        state.forget_before(now);
        state.recent.push_back(now);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn forget_before(&mut self, now: Instant) {
        while self.recent.front().is_some_and(|at| now - *at >= MINUTE) {
            self.recent.pop_front();
        }
    }

    fn wake_next(&self) {
        if let Some(turn) = self.queue.values().next() {
            turn.notify_one();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.budget.lock();
        state.in_use = state.in_use.saturating_sub(1);
        state.wake_next();
    }
}

/// A place in the queue, left when dropped.
struct Ticket {
    budget: Arc<Budget>,
    place: (Priority, u64),
    turn: Arc<Notify>,
}

impl Ticket {
    fn draw(budget: &Arc<Budget>, priority: Priority) -> Result<Self, Refusal> {
        let mut state = budget.lock();
        if state.queue.len() >= QUEUE {
            return Err(Refusal::Spent(SOON));
        }
        state.tickets += 1;
        let place = (priority, state.tickets);
        let turn = Arc::new(Notify::new());
        state.queue.insert(place, Arc::clone(&turn));
        Ok(Self { budget: Arc::clone(budget), place, turn })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.budget.lock();
        state.queue.remove(&self.place);
        state.wake_next();
    }
}

/// The fifth that is kept for waiting clients; of very little, nothing.
fn reserve(of: u32) -> u32 {
    of / 5
}
