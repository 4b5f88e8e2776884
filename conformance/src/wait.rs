//! Waiting for something to become true, with a deadline and never by a fixed
//! sleep.

use std::thread;
use std::time::Duration;

use tokio::time::Instant;

const PAUSE: Duration = Duration::from_millis(25);

/// Looks until `probe` finds something; fails with `what` after `limit`.
pub fn eventually<T>(limit: Duration, what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        thread::sleep(PAUSE);
    }
}

/// Watches that `probe` stays true for the whole of `span`.
pub fn holds_for(span: Duration, what: &str, mut probe: impl FnMut() -> bool) {
    let end = Instant::now() + span;
    while Instant::now() < end {
        assert!(probe(), "did not hold for {span:?}: {what}");
        thread::sleep(PAUSE);
    }
}

/// Calls `each` at a steady beat for the whole of `span`: a client that polls.
pub fn at_a_beat(span: Duration, beat: Duration, mut each: impl FnMut(usize)) {
    let end = Instant::now() + span;
    let mut turn = 0;
    while Instant::now() < end {
        let next = Instant::now() + beat;
        each(turn);
        turn += 1;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}
