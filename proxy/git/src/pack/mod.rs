//! Packs: what a mirror holds, which objects a client lacks, and the pack that
//! carries them.
//!
//! [`PackSet`] and [`Graph`] are a snapshot's content. [`plan`] decides on
//! commits alone (and gives the key under which the answer may be kept),
//! [`write`] selects the objects and streams the pack. All of it blocks, none
//! of it spawns or looks at a clock. Decisions follow git's upload-pack.

mod bits;
mod error;
mod graph;
mod object;
mod reader;
mod set;

pub use error::Error;
pub use graph::Graph;
pub use reader::Reader;
pub use set::{Limits, PackSet};
