//! Counts refusals, so that garbage logins can't get our address banned.

use std::{collections::HashMap, hash::Hash, time::Duration};

use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);
const MOST_KEYS: usize = 8192;

/// Counts events per key in windows of a minute, and trials under way, each of
/// which may become one.
#[derive(Debug)]
pub(crate) struct Meter<K> {
    most: u32,
    windows: HashMap<K, (Instant, u32)>,
    trials: HashMap<K, u32>,
}

impl<K: Eq + Hash> Meter<K> {
    /// Allows `most` events per key and minute.
    pub(crate) fn new(most: u32) -> Self {
        Self { most, windows: HashMap::new(), trials: HashMap::new() }
    }

    /// Whether one more trial may begin: even if all of them fail, `most` holds.
    pub(crate) fn has_room(&self, key: &K, now: Instant) -> bool {
        let window = self.windows.get(key);
        let counted = window.filter(|(since, _)| now.saturating_duration_since(*since) < MINUTE);
        let trials = self.trials.get(key).copied().unwrap_or_default();
        counted.map_or(0, |(_, count)| *count).saturating_add(trials) < self.most
    }

    /// A trial begins.
    pub(crate) fn begin(&mut self, key: K) {
        *self.trials.entry(key).or_default() += 1;
    }

    /// A trial is over; if it failed, it was counted before.
    pub(crate) fn end(&mut self, key: &K) {
        if let Some(trials) = self.trials.get_mut(key) {
            *trials -= 1;
            if *trials == 0 {
                self.trials.remove(key);
            }
        }
    }

    /// How long `key` must wait; `None` if it is within its allowance.
    pub(crate) fn wait(&self, key: &K, now: Instant) -> Option<Duration> {
        let (since, count) = self.windows.get(key)?;
        let left = MINUTE.checked_sub(now.saturating_duration_since(*since))?;
        (*count >= self.most && !left.is_zero()).then_some(left)
    }

    /// Counts one event.
    pub(crate) fn count(&mut self, key: K, now: Instant) {
        if self.windows.len() >= MOST_KEYS {
            self.windows.retain(|_, (since, _)| now.saturating_duration_since(*since) < MINUTE);
            if self.windows.len() >= MOST_KEYS {
                // An attacker with that many addresses is not stopped by this
                // meter; the one per upstream still holds.
                self.windows.clear();
            }
        }
        let window = self.windows.entry(key).or_insert((now, 0));
        if now.saturating_duration_since(window.0) >= MINUTE {
            *window = (now, 0);
        }
        window.1 += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_eleventh_in_a_minute_waits_for_the_rest_of_it() {
        let mut meter = Meter::new(10);
        let start = Instant::now();
        for _ in 0..10 {
            assert_eq!(meter.wait(&"a", start), None);
            meter.count("a", start);
        }
        let later = start + Duration::from_secs(20);
        assert_eq!(meter.wait(&"a", later), Some(Duration::from_secs(40)));
        assert_eq!(meter.wait(&"b", later), None);
        assert_eq!(meter.wait(&"a", start + MINUTE), None);
    }
}
