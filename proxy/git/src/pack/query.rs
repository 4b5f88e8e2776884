//! One fetch as the pack engine sees it: oids, no protocol version.

use gix_hash::ObjectId;

use super::{Error, Filter, Graph, PackSet};

/// A snapshot's content, borrowed for one request.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Where objects are.
    pub set: &'a PackSet,
    /// The commits of `set` that the snapshot's roots reach.
    pub graph: &'a Graph,
}

/// From here on git takes a depth for "everything" (`INFINITE_DEPTH`).
const INFINITE: u32 = 0x7fff_ffff;

/// How a client wants its history cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deepen {
    /// So many commits from each want; 2147483647 and more is the whole history.
    Depth(u32),
    /// So many commits beyond where the client's history ends now.
    Relative(u32),
    /// Commits not older than a time, and not reachable from some others.
    History {
        /// Seconds since the epoch.
        since: Option<i64>,
        /// Commits, or tags of commits, to stay clear of.
        not: Vec<ObjectId>,
    },
}

impl Deepen {
    /// Whether this asks for the whole history.
    pub(super) fn is_everything(&self) -> bool {
        matches!(self, Self::Depth(depth) | Self::Relative(depth) if *depth >= INFINITE)
    }
}

/// What a client asks for, and what it said it has.
#[derive(Clone, Debug, Default)]
pub struct Query<'a> {
    /// Objects of any kind; each was found good (see [`Reach`](super::Reach)).
    pub wants: &'a [ObjectId],
    /// The client's haves that are here.
    pub common: &'a [ObjectId],
    /// The client's own shallow commits, known here or not.
    pub client_shallows: &'a [ObjectId],
    /// How to cut the history, if at all.
    pub deepen: Option<Deepen>,
    /// What to leave out.
    pub filter: Option<Filter>,
    /// Whether tags of what is sent are to be sent along.
    pub include_tag: bool,
    /// The candidates: each tag object under `refs/tags` and what it peels to.
    pub tags: &'a [(ObjectId, ObjectId)],
    /// Whether deltas may be against objects the client has.
    pub thin: bool,
    /// Whether deltas may name their base by distance.
    pub ofs_delta: bool,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// The walk met the mirror's boundary where the client didn't ask for a cut: a miss, never an answer.
    #[error("the mirror's history ends before the answer does")]
    Boundary,
    /// A want, or an object to stay clear of, isn't here or isn't reachable.
    #[error("not our ref {0}")]
    Unknown(ObjectId),
    /// `since` and `not` leave no commit at all; git ends the request with these words.
    #[error("no commits selected for shallow requests")]
    NothingSelected,
    /// The snapshot can't be read.
    #[error(transparent)]
    Failed(#[from] Error),
}
