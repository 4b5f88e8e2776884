//! How many credentials that nobody knows may be tried at an upstream: what is
//! under way counts as if it were refused, so that many at once get no more
//! refusals than one after the other.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use moka::sync::Cache;
use tidegate_name::Upstream;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use crate::{
    access::{Asked, Caller},
    meter::Meter,
};

/// Refusals per client address and minute.
const PER_ADDRESS: u32 = 10;
/// Refusals per upstream and minute.
const PER_UPSTREAM: u32 = 100;
/// A trial waits this long for those before it.
const PATIENCE: Duration = Duration::from_secs(60);

/// The trials under way and the refusals of the last minute.
pub(crate) struct Trials {
    meters: Mutex<Meters>,
    ended: Notify,
    /// Callers whom the upstream knows from some repository: they are no
    /// guesses, and don't wait for each other.
    known: Cache<(Upstream, Caller), ()>,
}

struct Meters {
    addresses: Meter<IpAddr>,
    upstreams: Meter<Upstream>,
}

impl Default for Trials {
    fn default() -> Self {
        let meters = Meters { addresses: Meter::new(PER_ADDRESS), upstreams: Meter::new(PER_UPSTREAM) };
        Self { meters: Mutex::new(meters), ended: Notify::new(), known: Cache::new(50_000) }
    }
}

/// A credential being tried, until dropped.
pub struct Trial {
    trials: Arc<Trials>,
    from: Option<IpAddr>,
    upstream: Upstream,
}

impl Trials {
    /// Waits for room; fails with the time to wait once there were too many
    /// refusals.
    pub(crate) async fn begin(
        this: &Arc<Self>,
        asked: &Asked,
        from: Option<IpAddr>,
    ) -> Result<Option<Trial>, Duration> {
        let upstream = asked.spelled.upstream();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut ended = std::pin::pin!(this.ended.notified());
            // From here on no end is missed.
            ended.as_mut().enable();
            let now = Instant::now();
            if let Some(wait) = this.wait(from, upstream, now) {
                return Err(wait);
            }
            if this.knows(asked) {
                return Ok(None);
            }
            if this.try_begin(from, upstream, now) {
                return Ok(Some(Trial { trials: Arc::clone(this), from, upstream: upstream.clone() }));
            }
            if timeout_at(deadline, ended).await.is_err() {
                return Err(Duration::from_secs(1));
            }
        }
    }

    fn try_begin(&self, from: Option<IpAddr>, upstream: &Upstream, now: Instant) -> bool {
        let mut meters = self.meters();
        let has_room = meters.upstreams.has_room(upstream, now)
            && from.is_none_or(|from| meters.addresses.has_room(&from, now));
        if has_room {
            meters.upstreams.begin(upstream.clone());
            if let Some(from) = from {
                meters.addresses.begin(from);
            }
        }
        has_room
    }

    /// How long an unproven credential must wait, if it must.
    pub(crate) fn wait(&self, from: Option<IpAddr>, upstream: &Upstream, now: Instant) -> Option<Duration> {
        let meters = self.meters();
        from.and_then(|from| meters.addresses.wait(&from, now)).or(meters.upstreams.wait(upstream, now))
    }

    /// Whether the upstream accepted this credential for something lately.
    pub(crate) fn knows(&self, asked: &Asked) -> bool {
        self.known.contains_key(&(asked.spelled.upstream().clone(), asked.caller))
    }

    /// A credential was accepted.
    pub(crate) fn accepted(&self, asked: &Asked) {
        self.known.insert((asked.spelled.upstream().clone(), asked.caller), ());
    }

    /// A credential was refused.
    pub(crate) fn refused(&self, from: Option<IpAddr>, upstream: &Upstream, now: Instant) {
        let mut meters = self.meters();
        if let Some(from) = from {
            meters.addresses.count(from, now);
        }
        meters.upstreams.count(upstream.clone(), now);
    }

    fn meters(&self) -> MutexGuard<'_, Meters> {
        self.meters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let mut meters = self.trials.meters();
        meters.upstreams.end(&self.upstream);
        if let Some(from) = &self.from {
            meters.addresses.end(from);
        }
        drop(meters);
        self.trials.ended.notify_waiters();
    }
}
