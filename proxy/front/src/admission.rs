//! How many connections are held, in all and of one address.
//!
//! Over the total nothing is accepted, so that clients wait in the kernel's
//! queue. Over the cap of its address a connection is accepted (its address is
//! not known before) but not read until another one of that address ends.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many connections of one address may wait unread. One that has this many
/// waiting on top of its cap is turned away, or it could hold every seat.
const WAITING_PER_ADDRESS: usize = 1_024;

/// The seats of all listeners together.
#[derive(Debug)]
pub struct Admission {
    total: Arc<Semaphore>,
    per_address: usize,
    addresses: Mutex<HashMap<IpAddr, Seats>>,
}

#[derive(Debug)]
struct Seats {
    served: Arc<Semaphore>,
    holders: usize,
}

/// A connection's place; gives it back when dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    admission: Arc<Admission>,
    address: IpAddr,
    served: Arc<Semaphore>,
    _total: OwnedSemaphorePermit,
}

impl Admission {
    /// Seats for `total` connections, at most `per_address` of them served for
    /// one address.
    pub fn new(total: usize, per_address: usize) -> Arc<Self> {
        Arc::new(Self {
            total: Arc::new(Semaphore::new(total.clamp(1, Semaphore::MAX_PERMITS))),
            per_address: per_address.clamp(1, Semaphore::MAX_PERMITS),
            addresses: Mutex::default(),
        })
    }

    /// Waits until another connection may be accepted.
    pub(crate) async fn next(&self) -> OwnedSemaphorePermit {
        let total = Arc::clone(&self.total);
        total.acquire_owned().await.expect("the semaphore is never closed")
    }

    /// Takes a seat for an accepted connection; `None` turns it away.
    pub(crate) fn sit(self: &Arc<Self>, address: IpAddr, total: OwnedSemaphorePermit) -> Option<Seat> {
        let address = address.to_canonical();
        let mut addresses = self.lock();
        let seats = addresses
            .entry(address)
            .or_insert_with(|| Seats { served: Arc::new(Semaphore::new(self.per_address)), holders: 0 });
        if seats.holders >= self.per_address.saturating_add(WAITING_PER_ADDRESS) {
            return None;
        }
        seats.holders += 1;
        let served = Arc::clone(&seats.served);
        Some(Seat { admission: Arc::clone(self), address, served, _total: total })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Seats>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Waits for a turn among the connections of the same address; keep what
    /// it returns for as long as the connection is served.
    pub(crate) async fn turn(&self) -> OwnedSemaphorePermit {
        let served = Arc::clone(&self.served);
        served.acquire_owned().await.expect("the semaphore is never closed")
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut addresses = self.admission.lock();
        if let Some(seats) = addresses.get_mut(&self.address) {
            seats.holders -= 1;
            if seats.holders == 0 {
                addresses.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[tokio::test]
    async fn over_the_total_nothing_is_accepted_until_a_connection_ends() {
        let admission = Admission::new(1, 9);
        let seat = admission.sit(A, admission.next().await).unwrap();
        assert!(admission.next().now_or_never().is_none());
        drop(seat);
        assert!(admission.next().now_or_never().is_some());
    }

    #[tokio::test]
    async fn over_the_cap_of_its_address_a_connection_waits_and_is_not_refused() {
        let admission = Admission::new(9, 1);
        let first = admission.sit(A, admission.next().await).unwrap();
        let turn = first.turn().await;
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        let second = admission.sit(mapped, admission.next().await).unwrap();
        assert!(second.turn().now_or_never().is_none());
        let other = admission.sit("192.0.2.2".parse().unwrap(), admission.next().await).unwrap();
        assert!(other.turn().now_or_never().is_some());
        drop((first, turn));
        assert!(second.turn().now_or_never().is_some());
        drop((second, other));
        assert!(admission.lock().is_empty());
    }

    #[tokio::test]
    async fn an_address_cannot_hold_every_seat_by_waiting() {
        let admission = Admission::new(5_000, 1);
        let mut held = Vec::new();
        while let Some(seat) = admission.sit(A, admission.next().await) {
            held.push(seat);
        }
        assert_eq!(held.len(), 1 + WAITING_PER_ADDRESS);
    }
}
