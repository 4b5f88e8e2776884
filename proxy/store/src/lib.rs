//! Content at rest, by digest: what a protocol has verified, kept on disk in
//! cacache's layout, with a memory tier above it and small tables beside it.
//!
//! Ingest is our own: a temporary file that grows, is hashed and is followed by
//! any number of readers, then checked, fsynced, renamed, and only then
//! visible. Nothing here knows a protocol, an upstream or who may read.

mod catalog;
mod clock;
mod config;
mod entry;
mod error;
mod evict;
mod fill;
mod growing;
mod index;
mod layout;
mod memory;
mod publish;
mod read;
mod space;
mod store;
mod table;
mod verify;
mod window;
mod writer;

pub use catalog::{Group, Pin};
pub use config::StoreConfig;
pub use entry::Entry;
pub use error::Error;
pub use evict::Account;
pub use fill::Finished;
pub use growing::Growing;
pub use store::{Begin, Store, Usage};
pub use table::Table;
pub use verify::{Audit, Damage, verify_folder};
pub use writer::Writer;
