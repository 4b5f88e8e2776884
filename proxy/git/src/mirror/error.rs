//! What can go wrong with a mirror on disk, and what makes a pack unacceptable.

use std::{
    io,
    path::{Path, PathBuf},
};

use gix_hash::ObjectId;

use crate::pack;

/// Work on a mirror that did not end in a new or unchanged snapshot.
///
/// Whatever the variant, nothing of the failed update is visible.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk said no.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried: `write`, `rename`, ...
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The upstream's pack is not one `git clone` would accept, or is beyond our limits.
    #[error("the upstream's pack was refused: {0}")]
    BadPack(#[from] BadPack),
    /// The update would leave something reachable missing.
    #[error("the upstream's answer is incomplete: {oid} is reachable but missing")]
    Disconnected {
        /// The first missing object.
        oid: ObjectId,
    },
    /// The pack holds other bytes under an id that we already hold.
    #[error("the upstream sent other content for {oid}, which we already hold; nothing was taken over")]
    Collision {
        /// The id with two contents.
        oid: ObjectId,
    },
    /// A cap of `limits` was reached.
    #[error("{what}: {count} exceeds the limit of {limit}")]
    Limit {
        /// What there is too much of.
        what: &'static str,
        /// How much there is.
        count: u64,
        /// How much is allowed.
        limit: u64,
    },
    /// The update speaks of another hash than the mirror.
    #[error("the repository uses {found}, its mirror {expected}; purge the repository to start again")]
    HashKind {
        /// The mirror's.
        expected: gix_hash::Kind,
        /// The update's.
        found: gix_hash::Kind,
    },
    /// The mirror was purged or evicted meanwhile.
    #[error("the mirror was removed; ask again")]
    Removed,
    /// Objects could not be read, or are not what they should be.
    #[error("the objects cannot be used: {0}")]
    Stored(#[from] pack::Error),
}

impl Error {
    /// Whether the upstream's answer is to blame, not our disk.
    pub fn is_upstream_fault(&self) -> bool {
        match self {
            Self::BadPack(_) | Self::Disconnected { .. } | Self::Collision { .. } | Self::Limit { .. } => {
                true
            }
            Self::Stored(error) => matches!(error, pack::Error::Broken { .. } | pack::Error::TooLarge { .. }),
            Self::Io { .. } | Self::HashKind { .. } | Self::Removed => false,
        }
    }

    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

/// Why a pack was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPack {
    /// It doesn't begin with `PACK` and version 2 or 3.
    #[error("it does not begin with a pack header")]
    Header,
    /// It ends too early.
    #[error("it ends early, at byte {at}")]
    Truncated {
        /// How far it goes.
        at: u64,
    },
    /// An entry is not well-formed.
    #[error("the entry at byte {at} is malformed")]
    Entry {
        /// Where.
        at: u64,
    },
    /// An entry inflates to another size than it declares.
    #[error("the entry at byte {at} is not as long as it says")]
    SizeLie {
        /// Where.
        at: u64,
    },
    /// A delta's base isn't an earlier entry of this pack.
    #[error("the delta at byte {at} has no base at {base}")]
    Base {
        /// Where the delta is.
        at: u64,
        /// Where it says its base is.
        base: u64,
    },
    /// A delta by id whose base nobody has, a cycle of deltas, or a delta that doesn't apply.
    #[error("its deltas cannot be resolved: {0}")]
    Unresolved(String),
    /// The checksum at its end is wrong.
    #[error("its checksum is wrong")]
    Checksum,
    /// Bytes follow the checksum.
    #[error("{extra} bytes follow its end")]
    Trailing {
        /// How many.
        extra: u64,
    },
    /// Something is beyond a limit of ours.
    #[error("{what} of {found} exceeds the limit of {limit}")]
    Limit {
        /// What is too big.
        what: &'static str,
        /// How big it is.
        found: u64,
        /// How big it may be.
        limit: u64,
    },
}
