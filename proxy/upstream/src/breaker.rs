//! Leaves a sick upstream alone: after five sick answers in a row it is asked
//! again by one probe, after 1 s and then twice as long each time, up to 30 s.
//!
//! Only sickness counts (no connection, no answer, 5xx). A refusal is an answer.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

const SICK_IN_A_ROW: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The breaker of one upstream.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Sick answers since the last good one.
    sick: u32,
    /// While open: when it may be probed, and after which pause.
    open: Option<Open>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    until: Instant,
    pause: Duration,
    probing: bool,
}

impl Breaker {
    /// Whether a request would be let through now, or how long not.
    pub(crate) fn check(&self, now: Instant) -> Result<(), Duration> {
        match self.lock().open {
            Some(open) if open.probing => Err(open.pause),
            Some(open) if now < open.until => Err(open.until - now),
            None | Some(_) => Ok(()),
        }
    }

    /// Lets a request through. While open this makes it the one probe.
    pub(crate) fn admit(self: &Arc<Self>, now: Instant) -> Result<Pass, Duration> {
        self.check(now)?;
        let mut state = self.lock();
        let mut probe = false;
        if let Some(open) = &mut state.open {
            // Another may have become the probe since the check.
            if open.probing {
                return Err(open.pause);
            }
            open.probing = true;
            probe = true;
        }
        Ok(Pass { breaker: Arc::clone(self), probe })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that was let through; it must say how it ended. One that is
/// dropped says nothing, and a probe that is dropped makes room for the next.
#[derive(Debug)]
pub(crate) struct Pass {
    breaker: Arc<Breaker>,
    probe: bool,
}

impl Pass {
    /// The upstream answered, whatever it said.
    pub(crate) fn well(mut self) {
        self.probe = false;
        *self.breaker.lock() = State::default();
    }

    /// It did not, or said that it is broken.
    pub(crate) fn sick(mut self, now: Instant) {
        let probe = std::mem::take(&mut self.probe);
        let mut state = self.breaker.lock();
        state.sick = state.sick.saturating_add(1);
        let too_many = state.sick >= SICK_IN_A_ROW;
        match &mut state.open {
            Some(open) if probe => {
                let pause = (open.pause * 2).min(LONGEST_PAUSE);
                *open = Open { until: now + pause, pause, probing: false };
            }
            None if too_many => {
                state.open = Some(Open { until: now + FIRST_PAUSE, pause: FIRST_PAUSE, probing: false });
            }
            // Requests that were under way when it opened change nothing.
            Some(_) | None => {}
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.probe
            && let Some(open) = &mut self.breaker.lock().open
        {
            open.probing = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(now: Instant) -> Arc<Breaker> {
        let breaker = Arc::new(Breaker::default());
        for _ in 0..SICK_IN_A_ROW {
            breaker.admit(now).unwrap().sick(now);
        }
        breaker
    }

    #[test]
    fn five_sick_answers_in_a_row_open_it_and_a_good_one_starts_over() {
        let now = Instant::now();
        let breaker = Arc::new(Breaker::default());
        for _ in 0..4 {
            breaker.admit(now).unwrap().sick(now);
        }
        breaker.admit(now).unwrap().well();
        for _ in 0..4 {
            breaker.admit(now).unwrap().sick(now);
        }
        assert!(breaker.check(now).is_ok());
        breaker.admit(now).unwrap().sick(now);
        assert_eq!(breaker.check(now), Err(FIRST_PAUSE));
    }

    #[test]
    fn one_probe_at_a_time_and_the_pause_doubles_to_its_limit() {
        let mut now = Instant::now();
        let breaker = broken(now);
        for pause in [1, 2, 4, 8, 16, 30, 30].map(Duration::from_secs) {
            assert_eq!(breaker.check(now), Err(pause));
            now += pause;
            let probe = breaker.admit(now).unwrap();
            assert!(breaker.admit(now).is_err());
            probe.sick(now);
        }
        now += LONGEST_PAUSE;
        breaker.admit(now).unwrap().well();
        assert!(breaker.admit(now).is_ok() && breaker.admit(now).is_ok());
    }

    #[test]
    fn a_cancelled_probe_makes_room_for_the_next() {
        let now = Instant::now();
        let breaker = broken(now);
        let later = now + FIRST_PAUSE;
        drop(breaker.admit(later).unwrap());
        assert!(breaker.admit(later).is_ok());
    }

    #[test]
    fn answers_from_before_it_opened_change_nothing() {
        let now = Instant::now();
        let breaker = Arc::new(Breaker::default());
        let late = breaker.admit(now).unwrap();
        for _ in 0..SICK_IN_A_ROW {
            breaker.admit(now).unwrap().sick(now);
        }
        late.sick(now);
        assert_eq!(breaker.check(now), Err(FIRST_PAUSE));
    }
}
