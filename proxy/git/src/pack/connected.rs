//! The connectivity check: from every root, everything is here.

use super::{Error, Graph, PackSet, bits::Bits, trees::TreeReader};
use gix_hash::ObjectId;
use gix_object::Kind;

/// Memory for unpacked trees.
const CACHE: usize = 32 << 20;

/// Walks the trees of all commits of `graph`, and of trees that tips or tags name.
///
/// Commits of a graph that was checked before are taken on trust, so `set` must
/// still hold all that the older one held; pass None when packs went away. Every
/// one of `new_tips` must be part of `graph`. A tree or blob that isn't here is
/// [`Error::Missing`]; submodule commits aren't looked for.
pub fn check_connected(
    set: &PackSet,
    graph: &Graph,
    new_tips: &[ObjectId],
    already_connected: Option<&(PackSet, Graph)>,
) -> Result<(), Error> {
    for tip in new_tips {
        let number = set.require(tip)?;
        let listed = |list: &[u32]| list.binary_search(&number).is_ok();
        if graph.node(number).is_none() && !listed(graph.tags()) && !listed(graph.others()) {
            return Err(Error::Broken { oid: *tip, what: "the commit graph was built without it" });
        }
    }
    let known = |node: u32| {
        already_connected.is_some_and(|(old_set, old_graph)| {
            let number = old_set.number(set.oid(graph.object(node)));
            number.is_some_and(|number| old_graph.node(number).is_some())
        })
    };
    let mut trees = TreeReader::new(set, CACHE);
    let mut seen = Bits::new(set.total());
    let fresh: Vec<u32> = (0..graph.len()).filter(|&node| !known(node)).collect();
    // Children first: neighbours share most of their trees, and their deltas.
    for &node in fresh.iter().rev() {
        trees.mark(graph.tree(node), &mut seen)?;
    }
    for &other in graph.others() {
        if trees.objects().kind(other)? == Kind::Tree {
            trees.mark(other, &mut seen)?;
        }
    }
    Ok(())
}
