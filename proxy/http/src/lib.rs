//! What rooms have in common when they speak HTTP: the one body type, who asks
//! ([`Identity`], [`Client`]), how a room is attached ([`Mount`]), what the
//! cache did ([`Outcome`]) and short text answers.
//!
//! No protocol of any room, no listener and no upstream lives here.

mod answer;
mod body;
mod identity;
mod mount;
mod outcome;
mod ranges;

pub use answer::{challenge, local, retry_after, text};
pub use body::{Body, BoxError, Stalled, collect, empty, full, stall_after, stream};
pub use identity::{Client, Identity};
pub use mount::{Mount, RoomService};
pub use outcome::{Outcome, Served};
pub use ranges::{ByteRange, RangeRequest, parse_range};
