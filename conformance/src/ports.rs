//! Loopback ports for programs that must be told theirs.
//!
//! They lie below the range from which the kernel picks outgoing ports, so that
//! a client's connection can't take one between our look and the bind.

use std::net::TcpListener;
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

const FIRST: u16 = 15_000;
const COUNT: u16 = 15_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port nobody listens on now, and that this process hands out once.
pub fn free() -> u16 {
    let start = u16::try_from(process::id().wrapping_mul(97) % u32::from(COUNT)).unwrap_or(0);
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (start.wrapping_add(step) % COUNT);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free loopback port between {FIRST} and {}", FIRST + COUNT);
}
