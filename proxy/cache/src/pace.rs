//! How often the upstream is looked at behind the clients' backs.
//!
//! Pure: the caller brings the times. In use means read within ten intervals,
//! at least an hour; then the interval doubles up to an hour; after a day
//! without a reader the reference is forgotten.

use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const FORGET_AFTER: Duration = Duration::from_secs(24 * 3600);

/// The current pause between two looks at one reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    every: Duration,
    pause: Duration,
}

impl Pace {
    /// A reference in use, looked at once per `every`.
    pub fn new(every: Duration) -> Self {
        Self { every, pause: every }
    }

    /// The pause before the next look, for a reference last read `idle` ago.
    /// `None`: forget it; the next reader starts anew. To be asked once before
    /// each look, since an idle reference's pause grows with every question.
    pub fn next(&mut self, idle: Duration) -> Option<Duration> {
        if idle >= FORGET_AFTER {
            return None;
        }
        if idle <= HOUR.max(self.every * 10) {
            self.pause = self.every;
        } else {
            self.pause = (self.pause * 2).min(HOUR.max(self.every));
        }
        Some(self.pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_reference_in_use_keeps_its_interval() {
        let mut pace = Pace::new(2 * MINUTE);
        assert_eq!(pace.next(Duration::ZERO), Some(2 * MINUTE));
        assert_eq!(pace.next(HOUR), Some(2 * MINUTE));
    }

    #[test]
    fn an_idle_reference_falls_off_and_is_forgotten_after_a_day() {
        let mut pace = Pace::new(2 * MINUTE);
        let mut idle = Duration::ZERO;
        let mut looks = 0;
        while let Some(pause) = pace.next(idle) {
            idle += pause;
            looks += 1;
            assert!(pause <= HOUR);
        }
        // 31 in the hour of use, then 4, 8, 16, 32 minutes, then hourly.
        assert!((50..=62).contains(&looks), "{looks}");
    }

    #[test]
    fn a_reader_brings_the_interval_back() {
        let mut pace = Pace::new(2 * MINUTE);
        assert_eq!(pace.next(2 * HOUR), Some(4 * MINUTE));
        assert_eq!(pace.next(2 * HOUR), Some(8 * MINUTE));
        assert_eq!(pace.next(MINUTE), Some(2 * MINUTE));
    }
}
