//! What can go wrong with content at rest.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use tidegate_name::Digest;

/// A store operation that did not succeed.
///
/// Cloneable, because one failed fill is told to everyone who followed it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The file system refused.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// Why not.
        #[source]
        source: Arc<io::Error>,
    },
    /// Another process holds the folder.
    #[error("{} is in use by another tidegate; stop it, or choose another folder with --data", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The index could not be written; what tables hold lasts until a restart.
    #[error("the index {} cannot be written; it is rebuilt when there is room", path.display())]
    IndexAway {
        /// The index file.
        path: PathBuf,
    },
    /// The content is not what its name promised.
    #[error("the content hashes to {found}, not to {expected}")]
    Mismatch {
        /// What was promised.
        expected: Box<Digest>,
        /// What came.
        found: Box<Digest>,
    },
    /// More bytes came than were allowed.
    #[error("the content is longer than the {limit} bytes allowed")]
    TooLarge {
        /// The most that was allowed.
        limit: u64,
    },
    /// The fill ended before its content was whole.
    #[error("the fill broke off: {reason}")]
    BrokenOff {
        /// What its writer said.
        reason: Arc<str>,
    },
    /// A reader asked for bytes of an unkept fill that are gone already.
    #[error("byte {at} has passed and the disk had no room to keep it; ask again")]
    Passed {
        /// The byte that was asked for.
        at: u64,
    },
    /// A reader held up everyone else for too long.
    #[error("the reader took nothing for {seconds} s while the disk was full and others waited")]
    Stalled {
        /// How long it took nothing.
        seconds: u64,
    },
    /// The content is held in memory only, so it has no file.
    #[error("{digest} has no file: the disk had no room for it")]
    NotOnDisk {
        /// Which content.
        digest: Digest,
    },
    /// The file is not what was stored.
    #[error("{digest} is damaged on disk; `tidegate fsck` sets it aside")]
    Damaged {
        /// Which content.
        digest: Digest,
    },
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source: Arc::new(source) }
    }

    pub(crate) fn broken_off(reason: impl Into<Arc<str>>) -> Self {
        Self::BrokenOff { reason: reason.into() }
    }
}
