//! A pack on its way into the store, and those who wait for it or read along.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tidegate_http::Body;
use tidegate_store::{Entry, Growing};
use tokio::{sync::watch, time::timeout};

use crate::error::Error;

/// Under which an answer is kept: a hash over everything that decides it.
pub(crate) type Key = [u8; 32];

/// Whoever waits for the start of a pack waits this long.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where a pack's bytes come from.
pub(crate) enum Source {
    /// From the store.
    Kept(Entry),
    /// From a file that still grows.
    Growing(Body),
}

impl Source {
    /// The raw pack from its first byte. Ends cleanly only if it is whole.
    pub(crate) fn reader(self) -> Body {
        match self {
            Self::Kept(entry) => entry.reader(None),
            Self::Growing(body) => body,
        }
    }
}

/// A pack being made. `T` is what is known once it has begun.
pub(crate) struct Flight<T> {
    begun: watch::Receiver<Option<Result<T, Error>>>,
    growing: Growing,
    /// Tells this flight from a later one under the same key.
    tag: Tag,
}

/// Which flight is meant.
pub(crate) type Tag = Arc<()>;

impl<T> Clone for Flight<T> {
    fn clone(&self) -> Self {
        Self { begun: self.begun.clone(), growing: self.growing.clone(), tag: Arc::clone(&self.tag) }
    }
}

/// Tells a flight's followers how it began.
pub(crate) struct Launch<T>(watch::Sender<Option<Result<T, Error>>>);

impl<T> Launch<T> {
    /// The first word counts; later ones change nothing.
    pub(crate) fn begin(&self, how: Result<T, Error>) {
        self.0.send_if_modified(|begun| {
            let first = begun.is_none();
            if first {
                *begun = Some(how);
            }
            first
        });
    }
}

impl<T: Clone> Flight<T> {
    pub(crate) fn tag(&self) -> Tag {
        Arc::clone(&self.tag)
    }

    pub(crate) fn new(growing: Growing) -> (Launch<T>, Self) {
        let (sender, begun) = watch::channel(None);
        (Launch(sender), Self { begun, growing, tag: Arc::default() })
    }

    /// Waits until the pack has begun, or can't be had.
    pub(crate) async fn begun(mut self) -> Result<(T, Source), Error> {
        // Before the first byte: what a full disk can't hold is there only for
        // those who were reading when it passed.
        let reader = self.growing.reader(0);
        let how = match timeout(PATIENCE, self.begun.wait_for(Option::is_some)).await {
            Ok(Ok(how)) => how.clone(),
            Ok(Err(_)) => None,
            Err(_) => Some(Err(Error::Remote("the upstream took too long to begin".into()))),
        };
        let begun = how.unwrap_or_else(|| Err(Error::internal("a pack was given up before it began")))?;
        Ok((begun, Source::Growing(reader)))
    }
}

/// The packs being made, by key.
pub(crate) struct Flights<T>(Arc<Mutex<HashMap<Key, Flight<T>>>>);

impl<T> Clone for Flights<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Flights<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Flights<T> {
    /// Joins the flight under `key`; `None` comes with the right to start it.
    pub(crate) fn join_or<E>(
        &self,
        key: Key,
        start: impl FnOnce() -> Result<Flight<T>, E>,
    ) -> Result<(Flight<T>, bool), E> {
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One that failed a moment ago is still on the board, but nobody's answer.
        if let Some(flight) = flights.get(&key).filter(|flight| !flight.growing.has_failed()) {
            return Ok((flight.clone(), true));
        }
        let flight = start()?;
        flights.insert(key, flight.clone());
        Ok((flight, false))
    }

    /// Takes a flight off the board when dropped.
    pub(crate) fn landing(&self, key: Key, tag: Tag) -> Landing<T> {
        Landing { flights: self.clone(), key, tag }
    }
}

/// Ends a flight, also when its task panics.
pub(crate) struct Landing<T> {
    flights: Flights<T>,
    key: Key,
    tag: Tag,
}

impl<T> Drop for Landing<T> {
    fn drop(&mut self) {
        let mut flights = self.flights.0.lock().unwrap_or_else(PoisonError::into_inner);
        if flights.get(&self.key).is_some_and(|flight| Arc::ptr_eq(&flight.tag, &self.tag)) {
            flights.remove(&self.key);
        }
    }
}
