//! Leaves alone what is sick: after five sick answers in a row it is asked
//! again by one probe, after 1 s and then twice as long each time, up to 30 s.
//!
//! Each part of an upstream (a repository) has a breaker of its own, so that one
//! that is broken for good takes nothing from its neighbours. The upstream as a
//! whole opens when nobody answers there, or when several parts are sick in a row.
//! Only sickness counts (no connection, no answer, 5xx). A refusal is an answer.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

const SICK_IN_A_ROW: u32 = 5;
/// So many different parts that are sick in a row are the upstream itself.
const SICK_PARTS: usize = 3;
/// Sick parts remembered at once; one more than that is asked like a well one.
const MOST_PARTS: usize = 4_096;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A part of an upstream, such as a repository: a hash of its name.
pub(crate) type Part = u64;

/// How much is sick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sick {
    /// The part that was asked; perhaps more.
    Part,
    /// All of it: it can't be reached.
    Whole,
}

/// The breaker of one upstream.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    whole: Health,
    /// Only parts that were sick the last time.
    parts: HashMap<Part, Health>,
    /// The parts of the sick answers in a row; no more than matter.
    sick_parts: Vec<Part>,
    unreachable: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Health {
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
    pub(crate) fn check(&self, part: Part, now: Instant) -> Result<(), Duration> {
        self.lock().check(part, now)
    }

    /// Lets a request through. While open this makes it the one probe.
    pub(crate) fn admit(self: &Arc<Self>, part: Part, now: Instant) -> Result<Pass, Duration> {
        let mut state = self.lock();
        // Another may have become the probe since the last check.
        state.check(part, now)?;
        let whole = state.whole.probe();
        let own = state.parts.get_mut(&part).is_some_and(Health::probe);
        Ok(Pass { breaker: Arc::clone(self), part, probes: Probes { whole, own } })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn check(&self, part: Part, now: Instant) -> Result<(), Duration> {
        self.whole.check(now)?;
        self.parts.get(&part).map_or(Ok(()), |health| health.check(now))
    }

    fn note(&mut self, part: Part, sick: Sick, probes: Probes, now: Instant) {
        if self.sick_parts.len() < SICK_PARTS && !self.sick_parts.contains(&part) {
            self.sick_parts.push(part);
        }
        self.unreachable |= sick == Sick::Whole;
        let many = self.unreachable || self.sick_parts.len() >= SICK_PARTS;
        self.whole.note(probes.whole, many, now);
        if self.parts.len() >= MOST_PARTS && !self.parts.contains_key(&part) {
            self.parts.retain(|_, health| health.open.is_some_and(|open| open.until > now));
        }
        if self.parts.len() < MOST_PARTS || self.parts.contains_key(&part) {
            self.parts.entry(part).or_default().note(probes.own, true, now);
        }
    }
}

impl Health {
    fn check(&self, now: Instant) -> Result<(), Duration> {
        match self.open {
            Some(open) if open.probing => Err(open.pause),
            Some(open) if now < open.until => Err(open.until - now),
            None | Some(_) => Ok(()),
        }
    }

    /// Makes the request that was let through the probe, if it is open.
    fn probe(&mut self) -> bool {
        self.open.as_mut().map(|open| open.probing = true).is_some()
    }

    fn note(&mut self, probe: bool, may_open: bool, now: Instant) {
        self.sick = self.sick.saturating_add(1);
        match &mut self.open {
            Some(open) if probe => {
                let pause = (open.pause * 2).min(LONGEST_PAUSE);
                *open = Open { until: now + pause, pause, probing: false };
            }
            None if may_open && self.sick >= SICK_IN_A_ROW => {
                self.open = Some(Open { until: now + FIRST_PAUSE, pause: FIRST_PAUSE, probing: false });
            }
            // Requests that were under way when it opened change nothing.
            Some(_) | None => {}
        }
    }

    fn end_probe(&mut self) {
        if let Some(open) = &mut self.open {
            open.probing = false;
        }
    }
}

/// What a request probes.
#[derive(Clone, Copy, Debug, Default)]
struct Probes {
    whole: bool,
    own: bool,
}

/// A request that was let through; it must say how it ended. One that is
/// dropped says nothing, and a probe that is dropped makes room for the next.
#[derive(Debug)]
pub(crate) struct Pass {
    breaker: Arc<Breaker>,
    part: Part,
    probes: Probes,
}

impl Pass {
    /// The upstream answered, whatever it said.
    pub(crate) fn well(mut self) {
        self.probes = Probes::default();
        let mut state = self.breaker.lock();
        state.parts.remove(&self.part);
        *state = State { parts: std::mem::take(&mut state.parts), ..State::default() };
    }

    /// It did not, or said that it is broken.
    pub(crate) fn sick(mut self, sick: Sick, now: Instant) {
        let probes = std::mem::take(&mut self.probes);
        self.breaker.lock().note(self.part, sick, probes, now);
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let Probes { whole, own } = self.probes;
        if whole || own {
            let mut state = self.breaker.lock();
            if whole {
                state.whole.end_probe();
            }
            if own && let Some(health) = state.parts.get_mut(&self.part) {
                health.end_probe();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Part = 1;

    fn broken(now: Instant) -> Arc<Breaker> {
        let breaker = Arc::new(Breaker::default());
        for _ in 0..SICK_IN_A_ROW {
            breaker.admit(HERE, now).unwrap().sick(Sick::Whole, now);
        }
        breaker
    }

    #[test]
    fn five_sick_answers_in_a_row_open_it_and_a_good_one_starts_over() {
        let now = Instant::now();
        let breaker = Arc::new(Breaker::default());
        for _ in 0..4 {
            breaker.admit(HERE, now).unwrap().sick(Sick::Part, now);
        }
        breaker.admit(HERE, now).unwrap().well();
        for _ in 0..4 {
            breaker.admit(HERE, now).unwrap().sick(Sick::Part, now);
        }
        assert!(breaker.check(HERE, now).is_ok());
        breaker.admit(HERE, now).unwrap().sick(Sick::Part, now);
        assert_eq!(breaker.check(HERE, now), Err(FIRST_PAUSE));
    }

    #[test]
    fn one_sick_repository_closes_the_way_to_no_other() {
        let now = Instant::now();
        let breaker = Arc::new(Breaker::default());
        for part in [HERE, 2] {
            for _ in 0..20 {
                if let Ok(pass) = breaker.admit(part, now) {
                    pass.sick(Sick::Part, now);
                }
            }
            assert_eq!(breaker.check(part, now), Err(FIRST_PAUSE));
        }
        assert!(breaker.check(7, now).is_ok());
        breaker.admit(7, now).unwrap().well();
        assert_eq!(breaker.check(HERE, now), Err(FIRST_PAUSE), "its neighbour's health is not its own");
    }

    #[test]
    fn many_sick_repositories_in_a_row_are_a_sick_upstream() {
        let now = Instant::now();
        let breaker = Arc::new(Breaker::default());
        for part in [1, 2, 3, 1, 2] {
            assert!(breaker.check(7, now).is_ok());
            breaker.admit(part, now).unwrap().sick(Sick::Part, now);
        }
        assert_eq!(breaker.check(7, now), Err(FIRST_PAUSE));
    }

    #[test]
    fn sick_parts_are_remembered_up_to_a_limit() {
        let now = Instant::now();
        let breaker = Arc::new(Breaker::default());
        for part in 0..3 * MOST_PARTS as u64 {
            breaker.admit(part, now).unwrap().sick(Sick::Part, now);
            breaker.admit(u64::MAX, now).unwrap().well();
        }
        assert!(breaker.lock().parts.len() <= MOST_PARTS);
    }

    #[test]
    fn one_probe_at_a_time_and_the_pause_doubles_to_its_limit() {
        let mut now = Instant::now();
        let breaker = broken(now);
        for pause in [1, 2, 4, 8, 16, 30, 30].map(Duration::from_secs) {
            assert_eq!(breaker.check(HERE, now), Err(pause));
            now += pause;
            let probe = breaker.admit(HERE, now).unwrap();
            assert!(breaker.admit(HERE, now).is_err());
            probe.sick(Sick::Part, now);
        }
        now += LONGEST_PAUSE;
        breaker.admit(HERE, now).unwrap().well();
        assert!(breaker.admit(HERE, now).is_ok() && breaker.admit(HERE, now).is_ok());
    }

    #[test]
    fn a_cancelled_probe_makes_room_for_the_next() {
        let now = Instant::now();
        let breaker = broken(now);
        let later = now + FIRST_PAUSE;
        drop(breaker.admit(HERE, later).unwrap());
        assert!(breaker.admit(HERE, later).is_ok());
    }

    #[test]
    fn answers_from_before_it_opened_change_nothing() {
        let now = Instant::now();
        let breaker = Arc::new(Breaker::default());
        let late = breaker.admit(HERE, now).unwrap();
        for _ in 0..SICK_IN_A_ROW {
            breaker.admit(HERE, now).unwrap().sick(Sick::Whole, now);
        }
        late.sick(Sick::Whole, now);
        assert_eq!(breaker.check(HERE, now), Err(FIRST_PAUSE));
    }
}
