//! What can go wrong over a set of packs.

use std::path::PathBuf;

use gix_hash::ObjectId;

/// A cause from below, kept for the log.
type Source = Box<dyn std::error::Error + Send + Sync>;

/// A pack set that can't answer, or an answer that can't be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An object that something here refers to isn't here.
    #[error("object {oid} is missing")]
    Missing {
        /// Its name.
        oid: ObjectId,
    },
    /// An object whose bytes can't be what its name or its referrer says.
    #[error("object {oid} is broken: {what}")]
    Broken {
        /// Its name.
        oid: ObjectId,
        /// What is wrong with it.
        what: &'static str,
    },
    /// An object that can't be decoded.
    #[error("object {oid} can't be read")]
    Unreadable {
        /// Its name.
        oid: ObjectId,
        /// Why.
        #[source]
        source: Source,
    },
    /// An object over a configured cap.
    #[error("object {oid} has {size} bytes, more than the limit of {limit}")]
    TooLarge {
        /// Its name.
        oid: ObjectId,
        /// Its size, unpacked.
        size: u64,
        /// The cap.
        limit: u64,
    },
    /// A pack or index file that can't be opened.
    #[error("pack {} can't be used: {what}", path.display())]
    Pack {
        /// The index file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
        /// The cause, if one came from below.
        #[source]
        source: Option<Source>,
    },
    /// More objects than a pack can name.
    #[error("the packs hold more than 4294967295 objects")]
    TooMany,
    /// The receiver of a pack failed.
    #[error("the pack could not be written")]
    Write(#[from] std::io::Error),
}

impl Error {
    /// Whether an object is absent, as opposed to broken.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }
}
