//! Packs: what a mirror holds, which objects a client lacks, and the pack that
//! carries them.
//!
//! [`PackSet`] and [`Graph`] are a snapshot's content. [`plan`] decides on
//! commits alone (and gives the key under which the answer may be kept),
//! [`write`] selects the objects and streams the pack. All of it blocks, none
//! of it spawns or looks at a clock. Decisions follow git's upload-pack.

mod bits;
mod connected;
mod error;
mod graph;
mod key;
mod object;
mod paint;
mod peel;
mod plan;
mod query;
mod reach;
mod reader;
mod select;
mod set;
mod shallow;
mod sieve;
mod trees;
mod write;

#[cfg(test)]
mod tests;

pub use crate::wire::filter::Filter;
pub use connected::check_connected;
pub use error::Error;
pub use graph::Graph;
pub use plan::{Plan, plan};
pub use query::{Deepen, Query, Stop, View};
pub use reach::{Reach, ready};
pub use reader::Reader;
pub use set::{Limits, PackSet};
pub use write::{Stats, write};
