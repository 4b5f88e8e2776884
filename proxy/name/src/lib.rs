//! Pure values that every room speaks in: which upstream, which repository,
//! which digest, and the [`Destination`] that every door turns a request into.
//!
//! Nothing here does I/O, keeps state or knows a protocol. Everything is
//! validated where it is made, so that a value that exists is a good one.

mod destination;
mod digest;
mod path;
mod repository;
mod upstream;

pub use destination::{BadDestination, Destination};
pub use digest::{Algorithm, Digest, Hasher, InvalidDigest};
pub use path::{BadPath, check_path};
pub use repository::{Folding, Repository};
pub use upstream::{InvalidUpstream, Upstream};
