//! The git room: smart HTTP in protocol v0, v1 and v2, served from mirrors
//! that are kept in step with their upstream, without a git binary.
//!
//! [`Git`] is the room; [`Git::mount`] is how the front attaches it. Pushes
//! are passed through. Dumb HTTP and LFS are other rooms'.

mod account;
mod advertise;
mod away;
mod caps;
mod config;
mod deliver;
mod endpoint;
mod error;
mod fetch;
mod fill;
mod flight;
mod git;
mod inspect;
mod intake;
mod keep;
mod list;
mod live;
#[doc(hidden)]
pub mod mirror;
#[doc(hidden)]
pub mod negotiate;
mod obtain;
#[doc(hidden)]
pub mod pack;
mod prepare;
mod push;
mod receive;
mod refresh;
#[doc(hidden)]
pub mod refs;
mod rescue;
mod respond;
mod responses;
mod service;
mod speak;
mod translate;
mod update;
mod want;
#[doc(hidden)]
pub mod wire;

pub use caps::Caps;
pub use config::{Depth, GitConfig, Revalidate};
pub use git::{Git, Parts};
