//! Equal requests at the same time become one.
//!
//! The work runs as a task of its own: it survives every one of its waiters,
//! the first included, so that a client that goes away takes nothing from the
//! others.

use std::{
    collections::HashMap,
    future::Future,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;

type Flights<K, V> = Arc<Mutex<HashMap<K, watch::Receiver<Option<V>>>>>;

/// Collapses work by key; every waiter gets a clone of the one result.
pub struct Collapse<K, V> {
    flights: Flights<K, V>,
}

impl<K, V> Clone for Collapse<K, V> {
    fn clone(&self) -> Self {
        Self { flights: Arc::clone(&self.flights) }
    }
}

impl<K, V> Default for Collapse<K, V> {
    fn default() -> Self {
        Self { flights: Flights::default() }
    }
}

impl<K, V> Collapse<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Joins the work under `key`, or starts it. The flag tells whether this
    /// call joined work that was already under way.
    ///
    /// `None` only if the work panicked.
    pub async fn run<F>(&self, key: K, work: impl FnOnce() -> F) -> (Option<V>, bool)
    where
        F: Future<Output = V> + Send + 'static,
    {
        let (mut flight, joined) = self.join(key, work);
        let result = match flight.wait_for(Option::is_some).await {
            Ok(value) => value.clone(),
            Err(_) => None,
        };
        (result, joined)
    }

    /// Starts the work under `key` unless it is under way, without waiting.
    pub fn start<F>(&self, key: K, work: impl FnOnce() -> F)
    where
        F: Future<Output = V> + Send + 'static,
    {
        let _ = self.join(key, work);
    }

    fn join<F>(&self, key: K, work: impl FnOnce() -> F) -> (watch::Receiver<Option<V>>, bool)
    where
        F: Future<Output = V> + Send + 'static,
    {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flight) = flights.get(&key) {
            return (flight.clone(), true);
        }
        let (sender, receiver) = watch::channel(None);
        flights.insert(key.clone(), receiver.clone());
        let landing = Landing { key, flights: Arc::clone(&self.flights) };
        let work = work();
        tokio::spawn(async move {
            let value = work.await;
            // Off the board first: whoever comes now must not get a result
            // from before it asked.
            drop(landing);
            sender.send_replace(Some(value));
        });
        (receiver, false)
    }

    /// How many pieces of work are under way.
    pub fn len(&self) -> usize {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Takes the flight off the board, also when the work panics.
struct Landing<K: Eq + Hash, V> {
    key: K,
    flights: Flights<K, V>,
}

impl<K: Eq + Hash, V> Drop for Landing<K, V> {
    fn drop(&mut self) {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn equal_requests_share_one_piece_of_work() {
        let collapse = Collapse::<u8, usize>::default();
        let runs = Arc::new(AtomicUsize::new(0));
        let gate = Arc::new(tokio::sync::Notify::new());
        let ask = || {
            let (runs, gate) = (Arc::clone(&runs), Arc::clone(&gate));
            collapse.run(1, move || async move {
                gate.notified().await;
                runs.fetch_add(1, Ordering::SeqCst) + 1
            })
        };
        let (a, b, ()) = tokio::join!(ask(), ask(), async { gate.notify_one() });
        assert_eq!((a, b), ((Some(1), false), (Some(1), true)));
        assert!(collapse.is_empty());
    }

    #[tokio::test]
    async fn the_work_survives_the_client_that_started_it() {
        let collapse = Collapse::<u8, u8>::default();
        let gate = Arc::new(tokio::sync::Notify::new());
        let opened = Arc::clone(&gate);
        let first = tokio::spawn({
            let collapse = collapse.clone();
            async move {
                collapse
                    .run(1, move || async move {
                        opened.notified().await;
                        7
                    })
                    .await
            }
        });
        while collapse.is_empty() {
            tokio::task::yield_now().await;
        }
        first.abort();
        let second = collapse.run(1, || async { 8 });
        gate.notify_one();
        assert_eq!(second.await, (Some(7), true));
    }

    #[tokio::test]
    async fn work_that_panics_leaves_nothing_behind() {
        let collapse = Collapse::<u8, u8>::default();
        let (result, _) = collapse.run(1, || async { panic!("broken on purpose") }).await;
        assert_eq!(result, None);
        assert_eq!(collapse.run(1, || async { 2 }).await, (Some(2), false));
    }
}
