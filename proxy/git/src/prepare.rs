//! Works out, on a snapshot, how a fetch is answered: which wants are good,
//! what is in common, where history is cut, and under which key the pack goes.
//!
//! Blocking and without I/O but the mapped packs.

use std::sync::Arc;

use gix_hash::ObjectId;

use crate::{
    error::Error,
    flight::Key,
    live::Held,
    negotiate::negotiate,
    pack::{self, Plan, Query, Stop},
    refs::RefTable,
    wire::{
        answer::{Head, ShallowInfo, WantedRef},
        fetch::{Deepen, FetchRequest},
        protocol::Version,
    },
};

/// How a fetch is answered.
pub(crate) struct Prepared {
    /// What stands before the pack.
    pub(crate) head: Head,
    /// The pack, if one follows.
    pub(crate) pack: Option<(Key, Plan)>,
}

/// Why a fetch can't be answered from a snapshot.
pub(crate) enum Trouble {
    /// Wants that it doesn't have.
    Unknown(Vec<ObjectId>),
    /// Its history ends before the answer does.
    Boundary,
    /// The request itself fails.
    Failed(Error),
}

impl From<pack::Error> for Trouble {
    fn from(error: pack::Error) -> Self {
        Self::Failed(Error::internal(error))
    }
}

/// Prepares the answer to `request`, whose `want_refs` are among its wants
/// already and are told back as `wanted`.
pub(crate) fn prepare(
    held: &Held,
    request: &FetchRequest,
    wanted: Vec<WantedRef>,
    version: Version,
    repository: &str,
) -> Result<Prepared, Trouble> {
    let snapshot = &held.snapshot;
    let view = pack::View { set: &snapshot.packs, graph: &snapshot.graph };
    let mut unknown = Vec::new();
    for want in &request.wants {
        if !held.reach.holds(&view, want)? {
            unknown.push(*want);
        }
    }
    if !unknown.is_empty() {
        return Err(Trouble::Unknown(unknown));
    }
    // Only what a root reaches counts as ours: its history is known to be whole.
    let has = |id: &gix_hash::oid| {
        view.set.number(id).is_some_and(|number| {
            view.graph.node(number).is_some() || view.graph.tags().binary_search(&number).is_ok()
        })
    };
    let ready = |shared: &[ObjectId]| pack::ready(&view, &request.wants, shared, &request.shallows);
    let negotiation = negotiate(request, version, has, ready);
    let mut answer = negotiation.head;
    let cuts = request.has_shallow_section(version);
    let tells_cut_alone = cuts && version != Version::V2;
    if !negotiation.send_pack && !tells_cut_alone {
        return Ok(Prepared { head: answer, pack: None });
    }
    let tags = if request.include_tag { tag_objects(&snapshot.refs) } else { Vec::new() };
    let query = Query {
        wants: &request.wants,
        common: &negotiation.common,
        client_shallows: &request.shallows,
        deepen: deepen(request, &snapshot.refs)?,
        filter: request.filter.clone(),
        include_tag: request.include_tag,
        tags: &tags,
        thin: request.thin_pack,
        ofs_delta: request.ofs_delta,
    };
    let plan = pack::plan(&view, &query).map_err(stopped)?;
    if cuts {
        answer.shallow_info =
            Some(ShallowInfo { shallow: plan.shallow.clone(), unshallow: plan.unshallow.clone() });
    }
    if !negotiation.send_pack {
        return Ok(Prepared { head: answer, pack: None });
    }
    answer.wanted_refs = wanted;
    let key = plan.key(repository);
    Ok(Prepared { head: answer, pack: Some((key, plan)) })
}

fn stopped(stop: Stop) -> Trouble {
    match stop {
        Stop::Boundary => Trouble::Boundary,
        Stop::Unknown(oid) => Trouble::Unknown(vec![oid]),
        Stop::NothingSelected => Trouble::Failed(Error::BadFetch(format!("upload-pack: {stop}"))),
        Stop::Failed(error) => Trouble::Failed(Error::internal(error)),
    }
}

fn tag_objects(refs: &RefTable) -> Vec<(ObjectId, ObjectId)> {
    refs.by_prefix(b"refs/tags/").iter().filter_map(|entry| Some((entry.oid, entry.peeled?))).collect()
}

fn deepen(request: &FetchRequest, refs: &Arc<RefTable>) -> Result<Option<pack::Deepen>, Trouble> {
    Ok(match &request.deepen {
        None => None,
        Some(Deepen::Depth { n, relative: false }) => Some(pack::Deepen::Depth(*n)),
        Some(Deepen::Depth { n, relative: true }) => Some(pack::Deepen::Relative(*n)),
        Some(Deepen::Cutoff { since, not }) => {
            let not = not.iter().map(|name| expand(refs, name)).collect::<Result<_, _>>()?;
            let since = since.map(|seconds| i64::try_from(seconds).unwrap_or(i64::MAX));
            Some(pack::Deepen::History { since, not })
        }
    })
}

/// A ref by its full or short name, by git's rules (gitrevisions(7)).
fn expand(refs: &RefTable, name: &[u8]) -> Result<ObjectId, Trouble> {
    let candidates: [(&[u8], &[u8]); 6] = [
        (b"", b""),
        (b"refs/", b""),
        (b"refs/tags/", b""),
        (b"refs/heads/", b""),
        (b"refs/remotes/", b""),
        (b"refs/remotes/", b"/HEAD"),
    ];
    candidates.iter().find_map(|(before, after)| refs.resolve(&[*before, name, *after].concat())).ok_or_else(
        || {
            let name = String::from_utf8_lossy(name);
            Trouble::Failed(Error::BadFetch(format!("upload-pack: deepen-not is not a ref: {name}")))
        },
    )
}
