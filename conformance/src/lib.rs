//! The black box: real clients against a running tidegate, and the same
//! clients against the upstream itself, which is the oracle.
//!
//! The library starts the pieces (upstreams with quirks, the real binary, stock
//! git, go-git, gix, raw sockets) and compares what came out. The claims are in
//! `tests/`. Nothing here imports a room.
#![expect(clippy::missing_panics_doc, reason = "a harness fails by panicking, everywhere")]
#![expect(clippy::return_self_not_must_use, reason = "`run.ok();` is a whole claim")]

pub mod client;
pub mod dice;
pub mod egress;
pub mod fixture;
pub mod metrics;
pub mod outcome;
pub mod pack;
pub mod pkt;
pub mod ports;
pub mod repository;
pub mod scene;
pub mod tidegate;
pub mod tools;
pub mod upstream;
pub mod wait;
pub mod world;

pub use client::git::{Git, Run};
pub use client::raw;
pub use dice::Dice;
pub use outcome::Outcome;
pub use repository::Repository;
pub use scene::{Door, Scene};
pub use tidegate::Tidegate;
pub use upstream::{Kind, Upstream};
pub use wait::{eventually, holds_for};
pub use world::World;
