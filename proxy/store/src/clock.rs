//! The order of use, in microseconds of wall-clock time, and the one way this
//! room takes a lock.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// How much later a use must be before it is worth a write to the index.
pub(crate) const COARSE: u64 = 60_000_000;

/// Microseconds since 1970 for `time`; 0 for anything before.
pub(crate) fn micros(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The next moment after `last`: wall-clock time, but never twice the same and
/// never backwards, so that the order of use survives a clock that is set back.
pub(crate) fn tick(last: &mut u64) -> u64 {
    *last = micros(SystemTime::now()).max(last.saturating_add(1));
    *last
}

/// Locks `mutex`. Every critical section here leaves its state whole at each
/// step, so a poisoned lock is taken as it is.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A moment of use as the index had it; never later than now.
pub(crate) fn past(used: u64) -> u64 {
    used.min(micros(SystemTime::now()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_use_never_goes_back() {
        let mut last = micros(SystemTime::now()) + 3_600_000_000;
        let first = tick(&mut last);
        assert!(tick(&mut last) > first);
    }
}
