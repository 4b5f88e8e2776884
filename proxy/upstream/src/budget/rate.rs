//! So many in any minute: governor's GCRA on tokio's clock, which tests can
//! pause.

use std::{num::NonZeroU32, time::Duration};

use governor::{
    Quota, RateLimiter,
    clock::Clock,
    middleware::NoOpMiddleware,
    nanos::Nanos,
    state::{InMemoryState, NotKeyed},
};
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);

/// At most so many requests in any 60 s: a burst of a tenth, the rest evenly
/// spread.
#[derive(Debug)]
pub(crate) struct Rate {
    limiter: RateLimiter<NotKeyed, InMemoryState, TokioClock, NoOpMiddleware<Nanos>>,
    clock: TokioClock,
}

impl Rate {
    pub(crate) fn new(per_minute: u32) -> Self {
        let burst = (per_minute / 10).max(1);
        // Burst and refill together are what a whole minute can see. With one
        // request a minute there is no refill to spread: a full pause instead.
        let refill = per_minute.saturating_sub(burst).max(1);
        // Rounded up to the nanosecond, so that no minute sees one more.
        let nanos = MINUTE.as_nanos().div_ceil(u128::from(refill));
        let period = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let burst = NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::with_period(period)
            .unwrap_or_else(|| Quota::per_minute(NonZeroU32::MIN))
            .allow_burst(burst);
        let clock = TokioClock { start: Instant::now() };
        Self { limiter: RateLimiter::direct_with_clock(quota, clock), clock }
    }

    /// Takes one, or says how long there is none.
    pub(crate) fn take(&self) -> Result<(), Duration> {
        // Never a wait of zero: whoever is refused must come back later.
        let refused = |wait: Duration| wait.max(Duration::from_millis(1));
        self.limiter.check().map_err(|until| refused(until.wait_time_from(self.clock.now())))
    }
}

#[derive(Clone, Copy, Debug)]
struct TokioClock {
    start: Instant,
}

impl Clock for TokioClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        self.start.elapsed().into()
    }
}
