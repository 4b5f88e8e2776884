//! What a connection is doing, and for how long it may go on doing it.
//!
//! The connection's parts write down what happens; one timer per connection
//! asks [`Activity::judge`]. hyper's own header timer can't be used for this:
//! it also runs between requests, and not before it knows the HTTP version.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::Limits;

/// A pause this long before the kernel took more bytes counts as slow.
const SLOW: Duration = Duration::from_secs(5);
/// The slowest reader that is still served, in bytes per second.
const SLOWEST: u64 = 256;
/// The least a kernel makes room for at once.
const SEGMENT: u64 = 64 << 10;
/// What the first pause of a slow reader may take on top.
const SLACK: Duration = Duration::from_secs(15);
/// The same on loopback, where a segment is 64 KiB and room comes in twos: a
/// reader of 1 KiB/s was measured to look still for 63 to 127 s.
const LOOPBACK_SLACK: Duration = Duration::from_secs(75);
/// However large the pieces are in which a reader takes its bytes.
const LONGEST: Duration = Duration::from_secs(600);

/// The notes on one connection.
#[derive(Debug)]
pub(crate) struct Activity {
    limits: Arc<Limits>,
    /// How long a client may take nothing.
    patience: Duration,
    notes: Mutex<Notes>,
}

#[derive(Debug)]
struct Notes {
    /// Since when the head of a request is awaited.
    head: Option<Instant>,
    /// HTTP/2: reads between requests are no head, streams stall by themselves.
    multiplexed: bool,
    running: usize,
    idle: Instant,
    blocked: Option<Instant>,
    /// Bytes taken since the last slow pause, if there was one.
    lump: Option<u64>,
    allowance: Duration,
    /// HTTP/2 answers that hold bytes the client hasn't made room for.
    waiting: HashMap<u64, Instant>,
    next: u64,
}

/// What to do with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Look again after this.
    Keep(Duration),
    /// Idle for too long: say goodbye.
    Close,
    /// Cut it, for this reason.
    Cut(&'static str),
}

/// One running request; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    activity: Arc<Activity>,
    id: u64,
    multiplexed: bool,
}

impl Activity {
    pub(crate) fn new(limits: Arc<Limits>, loopback: bool) -> Arc<Self> {
        let now = Instant::now();
        let patience = limits.response_stall + if loopback { LOOPBACK_SLACK } else { SLACK };
        let notes = Notes {
            head: Some(now),
            multiplexed: false,
            running: 0,
            idle: now,
            blocked: None,
            lump: None,
            allowance: patience,
            waiting: HashMap::new(),
            next: 0,
        };
        Arc::new(Self { limits, patience, notes: Mutex::new(notes) })
    }

    /// A request's head arrived.
    pub(crate) fn begin(self: &Arc<Self>, multiplexed: bool) -> Running {
        let mut notes = self.lock();
        notes.head = None;
        notes.multiplexed = multiplexed;
        notes.running += 1;
        notes.next += 1;
        Running { activity: Arc::clone(self), id: notes.next, multiplexed }
    }

    /// Bytes came from the client.
    pub(crate) fn read(&self) {
        let mut notes = self.lock();
        if notes.running == 0 && !notes.multiplexed && notes.head.is_none() {
            notes.head = Some(Instant::now());
        }
    }

    /// The client took bytes.
    pub(crate) fn wrote(&self, bytes: usize) {
        let mut notes = self.lock();
        if notes.blocked.take().is_some_and(|since| since.elapsed() >= SLOW) {
            notes.lump = Some(0);
        }
        if let Some(lump) = &mut notes.lump {
            *lump += bytes as u64;
        }
    }

    /// The client takes no more bytes for now.
    pub(crate) fn blocked(&self) {
        let mut notes = self.lock();
        if notes.blocked.is_none() {
            notes.blocked = Some(Instant::now());
            // Kernels make room in lumps (a third of the send buffer, a sixteenth
            // of the receive buffer): a slow reader of large lumps must not look
            // like one that stopped.
            let slow = notes.lump.take().map_or(Duration::ZERO, |lump| time_for(lump.max(SEGMENT)));
            notes.allowance = slow.max(self.patience);
        }
    }

    /// Judges the connection as it is now.
    pub(crate) fn judge(&self) -> Verdict {
        let now = Instant::now();
        let notes = self.lock();
        let mut wait = self.limits.header_read;
        if let Some(since) = notes.head {
            match left(since + self.limits.header_read, now) {
                Some(rest) => wait = wait.min(rest),
                None => return Verdict::Cut("the head of a request took too long"),
            }
        }
        if let Some(since) = notes.blocked {
            match left(since + notes.allowance, now) {
                Some(rest) => wait = wait.min(rest),
                None => return Verdict::Cut("the client stopped reading"),
            }
        }
        for until in notes.waiting.values() {
            match left(*until, now) {
                Some(rest) => wait = wait.min(rest),
                None => return Verdict::Cut("the client stopped reading a stream"),
            }
        }
        if notes.running == 0 && notes.blocked.is_none() {
            match left(notes.idle + self.limits.idle, now) {
                Some(rest) => wait = wait.min(rest),
                None => return Verdict::Close,
            }
        }
        Verdict::Keep(wait)
    }

    fn lock(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn left(until: Instant, now: Instant) -> Option<Duration> {
    until.checked_duration_since(now).filter(|rest| !rest.is_zero())
}

fn time_for(bytes: u64) -> Duration {
    Duration::from_secs(bytes / SLOWEST).min(LONGEST)
}

impl Running {
    /// A piece of the answer was handed to the connection.
    pub(crate) fn gave(&self, bytes: usize) {
        if self.multiplexed {
            let activity = &self.activity;
            let allowance = activity.limits.response_stall.max(time_for(bytes as u64));
            activity.lock().waiting.insert(self.id, Instant::now() + allowance);
        }
    }

    /// The connection asks for the next piece.
    pub(crate) fn asked(&self) {
        if self.multiplexed {
            self.activity.lock().waiting.remove(&self.id);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut notes = self.activity.lock();
        notes.waiting.remove(&self.id);
        notes.running -= 1;
        notes.idle = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn activity() -> Arc<Activity> {
        Activity::new(Arc::new(Limits::default()), false)
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_must_arrive_within_ten_seconds() {
        let activity = activity();
        assert_eq!(activity.judge(), Verdict::Keep(secs(10)));
        advance(secs(4)).await;
        activity.read();
        assert_eq!(activity.judge(), Verdict::Keep(secs(6)));
        advance(secs(6)).await;
        assert!(matches!(activity.judge(), Verdict::Cut(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_connection_may_be_kept_for_a_minute_after_its_answer() {
        let activity = activity();
        drop(activity.begin(false));
        advance(secs(59)).await;
        assert_eq!(activity.judge(), Verdict::Keep(secs(1)));
        advance(secs(1)).await;
        assert_eq!(activity.judge(), Verdict::Close);
    }

    #[tokio::test(start_paused = true)]
    async fn half_a_second_head_does_not_keep_a_connection() {
        let activity = activity();
        drop(activity.begin(false));
        activity.read();
        advance(secs(10)).await;
        assert!(matches!(activity.judge(), Verdict::Cut(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_for_a_minute_is_cut() {
        let activity = activity();
        let _running = activity.begin(false);
        activity.wrote(1 << 20);
        activity.blocked();
        advance(secs(74)).await;
        assert!(matches!(activity.judge(), Verdict::Keep(_)));
        advance(secs(1)).await;
        assert!(matches!(activity.judge(), Verdict::Cut(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_of_large_lumps_is_served() {
        let activity = activity();
        let _running = activity.begin(false);
        // As measured at 1 KiB/s on loopback: 63 s, then lumps of 46 KiB each 127 s.
        activity.blocked();
        advance(secs(63)).await;
        for _ in 0..10 {
            assert!(matches!(activity.judge(), Verdict::Keep(_)));
            activity.wrote(47_616);
            activity.blocked();
            advance(secs(127)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn on_loopback_the_first_pause_may_be_two_segments_long() {
        let activity = Activity::new(Arc::new(Limits::default()), true);
        let _running = activity.begin(false);
        activity.blocked();
        advance(secs(127)).await;
        assert!(matches!(activity.judge(), Verdict::Keep(_)));
        advance(secs(8)).await;
        assert!(matches!(activity.judge(), Verdict::Cut(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_without_room_is_cut_though_the_connection_moves() {
        let activity = activity();
        let stream = activity.begin(true);
        stream.gave(1_000);
        advance(secs(59)).await;
        activity.wrote(10);
        assert!(matches!(activity.judge(), Verdict::Keep(_)));
        advance(secs(1)).await;
        assert!(matches!(activity.judge(), Verdict::Cut(_)));
        stream.asked();
        assert!(matches!(activity.judge(), Verdict::Keep(_)));
    }
}
