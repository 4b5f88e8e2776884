//! Whether everything reachable is here, and where the boundary lies.

use std::collections::HashSet;

use gix_hash::ObjectId;
use gix_object::{CommitRefIter, Kind};

use super::{Error, Retained, Snapshot};
use crate::{
    pack::{self, Graph, PackSet, Reader, check_connected},
    refs::RefTable,
};

/// Everything that must be complete: eager refs, HEAD, retained tips, roots.
pub(super) fn tips(refs: &RefTable, retained: &[Retained], roots: &[Retained]) -> Vec<ObjectId> {
    let mut seen = HashSet::new();
    let kept = retained.iter().chain(roots).map(|kept| kept.oid);
    refs.eager_tips().into_iter().chain(kept).filter(|oid| seen.insert(*oid)).collect()
}

/// The graph from `tips`, if everything it leads to is in `set`.
///
/// What `old` reaches is known to be complete and is not walked again.
pub(super) fn connected(
    set: &PackSet,
    tips: &[ObjectId],
    boundary: &HashSet<ObjectId>,
    old: Option<&Snapshot>,
) -> Result<Graph, pack::Error> {
    let Some(old) = old else {
        let graph = Graph::build(set, tips, boundary)?;
        check_connected(set, &graph, tips, None)?;
        return Ok(graph);
    };
    let graph = old.graph.extend(&old.packs, set, tips, boundary)?;
    let in_old = |number: u32| old.packs.number(set.oid(number));
    let known = |number: u32| in_old(number).is_some_and(|number| old.graph.node(number).is_some());
    // The new commits alone, down to the old ones they build on.
    let (mut fresh, mut border) = (Vec::new(), boundary.clone());
    for node in (0..graph.len()).filter(|&node| !known(graph.object(node))) {
        fresh.push(set.oid(graph.object(node)).to_owned());
        let parents = graph.parents(node).iter().map(|&parent| graph.object(parent));
        border.extend(parents.filter(|&parent| known(parent)).map(|parent| set.oid(parent).to_owned()));
    }
    let listed = |number: u32| old.graph.others().binary_search(&number).is_ok();
    let others = graph.others().iter().filter(|&&other| !in_old(other).is_some_and(listed));
    fresh.extend(others.map(|&other| set.oid(other).to_owned()));
    let part = Graph::build(set, &fresh, &border)?;
    check_connected(set, &part, &fresh, None)?;
    Ok(graph)
}

/// Where a boundary may lie.
pub(super) struct Boundaries {
    /// Every shallow commit the upstream spoke of that is here.
    pub(super) widest: HashSet<ObjectId>,
    /// Those of them whose parents aren't all here.
    pub(super) narrowest: HashSet<ObjectId>,
}

/// Finds the boundary after a fetch with these shallow and unshallow lists.
pub(super) fn boundaries(
    set: &PackSet,
    old: &HashSet<ObjectId>,
    shallow: &[ObjectId],
    unshallow: &[ObjectId],
) -> Result<Boundaries, Error> {
    let gone: HashSet<_> = unshallow.iter().collect();
    let mut reader = Reader::new(set, 0);
    let mut buffer = Vec::new();
    let mut found = Boundaries { widest: HashSet::new(), narrowest: HashSet::new() };
    for oid in old.iter().chain(shallow) {
        let Some(number) = set.number(oid) else { continue };
        if gone.contains(oid)
            || found.widest.contains(oid)
            || reader.read(number, &mut buffer)? != Kind::Commit
        {
            continue;
        }
        found.widest.insert(*oid);
        let mut parents = CommitRefIter::from_bytes(&buffer, set.hash()).parent_ids();
        if !parents.all(|parent| set.contains(&parent)) {
            found.narrowest.insert(*oid);
        }
    }
    Ok(found)
}
