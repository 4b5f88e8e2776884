//! The room's caps that an operator may set (the `git_*` keys of `limits`).

use std::time::Duration;

/// What one client, one repository and the room as a whole may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Bytes of a request's body, inflated.
    pub body_bytes: usize,
    /// How many times as long as it was sent a body may inflate to, once it is
    /// past 1 MiB.
    pub body_ratio: usize,
    /// Bytes of a pack taken in from an upstream.
    pub pack_bytes: u64,
    /// Asks for unknown objects per repository and minute.
    pub unknown_wants: usize,
    /// Packs made at once.
    pub builds: usize,
    /// Packs made at once from one repository.
    pub builds_per_repository: usize,
    /// Packs waiting to be made.
    pub build_queue: usize,
    /// How long one waits before its client is told to come again.
    pub build_wait: Duration,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            body_bytes: 64 << 20,
            body_ratio: 100,
            pack_bytes: 4 << 30,
            unknown_wants: 10,
            builds: std::thread::available_parallelism().map_or(2, usize::from),
            builds_per_repository: 4,
            build_queue: 64,
            build_wait: Duration::from_secs(10),
        }
    }
}
