//! What followers of an unkept fill still need: a bounded run of bytes in
//! memory, and where each follower is.
//!
//! Used once the disk takes no more. It holds up to [`CAP`], lets the oldest
//! bytes go as soon as every follower is past them, and says how long the
//! slowest one may still take.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::Instant;

/// The most that is held for followers.
pub(crate) const CAP: usize = 8 << 20;
/// How long a follower may hold up the others without taking a byte.
pub(crate) const STALL: Duration = Duration::from_secs(60);
/// What a chunk costs beside its bytes.
const OVERHEAD: usize = 64;

/// Bytes from `start` on, and who reads where.
#[derive(Debug, Default)]
pub(crate) struct Window {
    start: u64,
    chunks: VecDeque<(u64, Bytes)>,
    cost: usize,
    seats: HashMap<u64, Seat>,
    next_seat: u64,
}

#[derive(Clone, Copy, Debug)]
struct Seat {
    at: u64,
    moved: Instant,
}

impl Window {
    /// Lets a follower in that begins at `from`.
    pub(crate) fn sit(&mut self, from: u64) -> u64 {
        self.next_seat += 1;
        self.seats.insert(self.next_seat, Seat { at: from, moved: Instant::now() });
        self.next_seat
    }

    /// Lets it go.
    pub(crate) fn leave(&mut self, seat: u64) {
        self.seats.remove(&seat);
    }

    /// Notes that a follower has taken everything before `at`; `false` if it
    /// was dropped meanwhile for holding up the others.
    pub(crate) fn advance(&mut self, seat: u64, at: u64) -> bool {
        let Some(seat) = self.seats.get_mut(&seat) else { return false };
        *seat = Seat { at, moved: Instant::now() };
        true
    }

    /// Begins to hold bytes, the first being number `start`.
    pub(crate) fn open(&mut self, start: u64) {
        self.start = start;
    }

    /// Whether a follower that needs byte `at` can still have it from memory.
    pub(crate) fn holds(&self, at: u64) -> bool {
        at >= self.start
    }

    /// Makes room for `need` more bytes, or says until when to wait for the
    /// slowest follower. `since` is when the writer began to wait: a follower
    /// that was waiting itself before has not stalled.
    pub(crate) fn make_room(&mut self, need: usize, since: Instant) -> Result<(), Instant> {
        loop {
            let slowest = self.seats.values().map(|seat| seat.at).min();
            while self.cost + need + OVERHEAD > CAP
                && let Some((at, chunk)) = self.chunks.front()
                && slowest.is_none_or(|slowest| at + chunk.len() as u64 <= slowest)
            {
                self.cost -= chunk.len() + OVERHEAD;
                self.start = at + chunk.len() as u64;
                self.chunks.pop_front();
            }
            if self.cost + need + OVERHEAD <= CAP || self.chunks.is_empty() {
                return Ok(());
            }
            let behind = self.seats.iter().filter(|(_, seat)| Some(seat.at) == slowest);
            let Some((number, seat)) = behind.min_by_key(|(_, seat)| seat.moved) else { return Ok(()) };
            let deadline = seat.moved.max(since) + STALL;
            if Instant::now() < deadline {
                return Err(deadline);
            }
            let number = *number;
            self.seats.remove(&number);
        }
    }

    /// Adds the bytes after all others, whether or not there is room: whoever
    /// may wait has called [`Window::make_room`] before.
    pub(crate) fn push(&mut self, at: u64, bytes: Bytes) {
        if !bytes.is_empty() {
            self.cost += bytes.len() + OVERHEAD;
            self.chunks.push_back((at, bytes));
        }
    }

    /// Up to `most` bytes from `at`, as far as one chunk goes.
    pub(crate) fn get(&self, at: u64, most: u64) -> Option<Bytes> {
        let number = self.chunks.partition_point(|(start, _)| *start <= at).checked_sub(1)?;
        let (start, chunk) = &self.chunks[number];
        let from = usize::try_from(at - start).ok().filter(|from| *from < chunk.len())?;
        let end = chunk.len().min(from.saturating_add(usize::try_from(most).unwrap_or(usize::MAX)));
        Some(chunk.slice(from..end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(bytes: usize) -> Window {
        let mut window = Window::default();
        window.open(10);
        window.push(10, Bytes::from(vec![7; bytes]));
        window
    }

    #[tokio::test(start_paused = true)]
    async fn without_followers_the_oldest_bytes_go() {
        let mut window = filled(CAP - OVERHEAD);
        assert!(window.holds(10));
        assert_eq!(window.make_room(1, Instant::now()), Ok(()));
        assert!(!window.holds(10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_follower_is_dropped_a_moving_one_is_not() {
        let mut window = filled(CAP - OVERHEAD);
        let (slow, quick) = (window.sit(10), window.sit(10));
        let since = Instant::now();
        let deadline = window.make_room(1, since).unwrap_err();
        assert_eq!(deadline, since + STALL);
        tokio::time::advance(STALL / 2).await;
        assert!(window.advance(quick, 11));
        tokio::time::advance(STALL / 2).await;
        assert_eq!(window.make_room(1, since), Err(since + STALL / 2 + STALL));
        assert!(!window.advance(slow, 11));
        assert!(window.advance(quick, 12));
    }

    #[tokio::test(start_paused = true)]
    async fn a_chunk_is_read_in_any_part() {
        let mut window = Window::default();
        window.open(5);
        window.push(5, Bytes::from("abc"));
        window.push(8, Bytes::from("de"));
        assert_eq!(window.get(5, 2).unwrap(), "ab");
        assert_eq!(window.get(7, 9).unwrap(), "c");
        assert_eq!(window.get(9, 9).unwrap(), "e");
        assert_eq!(window.get(4, 1), None);
        assert_eq!(window.get(10, 1), None);
    }
}
