//! What a client may want: anything the snapshot's roots reach, and nothing else.
//!
//! Packs can hold more than that: content whose ref was forced away lies in
//! them until they are consolidated. So being in the set is no proof; commits
//! are looked up in the graph, trees and blobs by a walk that goes on from
//! where the last question left it and remembers all it saw.

use std::sync::Mutex;

use gix_hash::{ObjectId, oid};

use super::{
    Error, Graph, View,
    bits::Bits,
    object::EntryKind,
    peel::{End, Peeler},
    trees::TreeReader,
};

/// Memory for unpacked trees.
const CACHE: usize = 16 << 20;

/// Remembers what the roots of one snapshot reach; lives as long as the snapshot, and is asked with its view only.
#[derive(Debug, Default)]
pub struct Reach(Mutex<Option<Walk>>);

/// A walk over all trees of a graph, newest commit first, that can be interrupted.
#[derive(Debug)]
struct Walk {
    seen: Bits,
    /// Nodes below this one, then the first so many of the graph's other roots, are still to come.
    nodes: u32,
    others: usize,
    stack: Vec<u32>,
}

impl Reach {
    /// Whether the graph's roots reach `id`, an object of any kind.
    ///
    /// A tree or blob may cost a walk over every tree of the snapshot, once; a
    /// current one only a walk over the newest. Questions about those wait for
    /// each other, so ask from where waiting is allowed.
    pub fn holds(&self, view: &View<'_>, id: &oid) -> Result<bool, Error> {
        let Some(number) = view.set.number(id) else { return Ok(false) };
        let listed = |list: &[u32]| list.binary_search(&number).is_ok();
        let graph = view.graph;
        if graph.node(number).is_some() || listed(graph.tags()) || listed(graph.others()) {
            return Ok(true);
        }
        if !matches!(Peeler::new(*view).peel(id, &mut Vec::new())?, Some(End::Tree(end) | End::Blob(end)) if end == number)
        {
            return Ok(false);
        }
        // The lock is held while walking: whoever else asks needs the same walk.
        let mut slot = self.0.lock().unwrap_or_else(|poisoned| {
            let mut slot = poisoned.into_inner();
            *slot = None;
            slot
        });
        let walk = slot.get_or_insert_with(|| Walk::new(view));
        let answer = walk.find(view, number);
        if answer.is_err() {
            // Interrupted inside a tree: what it remembers is no longer the whole truth.
            *slot = None;
        }
        answer
    }
}

impl Walk {
    fn new(view: &View<'_>) -> Self {
        let graph = view.graph;
        Self {
            seen: Bits::new(view.set.total()),
            nodes: graph.len(),
            others: graph.others().len(),
            stack: Vec::new(),
        }
    }

    fn find(&mut self, view: &View<'_>, number: u32) -> Result<bool, Error> {
        let mut trees = TreeReader::new(view.set, CACHE);
        while !self.seen.holds(number) {
            let Some(tree) = self.stack.pop() else {
                if self.next_root(view.graph, &mut trees)? {
                    continue;
                }
                return Ok(false);
            };
            let (seen, stack) = (&mut self.seen, &mut self.stack);
            trees.entries(tree, |kind, entry| {
                if seen.insert(entry) && kind == EntryKind::Tree {
                    stack.push(entry);
                }
            })?;
        }
        Ok(true)
    }

    /// Stacks the next root tree, if it is new; false when there are no more.
    fn next_root(&mut self, graph: &Graph, trees: &mut TreeReader<'_>) -> Result<bool, Error> {
        let root = if let Some(node) = self.nodes.checked_sub(1) {
            self.nodes = node;
            graph.tree(node)
        } else if let Some(other) = self.others.checked_sub(1) {
            self.others = other;
            let other = graph.others()[other];
            if trees.objects().kind(other)? != gix_object::Kind::Tree {
                return Ok(true);
            }
            other
        } else {
            return Ok(false);
        };
        if self.seen.insert(root) {
            self.stack.push(root);
        }
        Ok(true)
    }
}

/// Whether a client that has `haves` (all of them here) can be sent a pack now: every want reaches something it has.
///
/// git's `ok_to_give_up`: the parents of a have count as had, unless the client
/// says its history ends there. Wants that aren't commits don't matter.
pub fn ready(view: &View<'_>, wants: &[ObjectId], haves: &[ObjectId], client_shallows: &[ObjectId]) -> bool {
    let graph = view.graph;
    let mut peeler = Peeler::new(*view);
    let mut node = |id: &ObjectId| match peeler.peel(id, &mut Vec::new()) {
        Ok(Some(End::Commit(node))) => Some(node),
        _ => None,
    };
    let mut had = Bits::new(graph.len());
    let mut lowest = u32::MAX;
    let mut ends = Bits::new(graph.len());
    for end in client_shallows.iter().filter_map(|id| graph.node(view.set.number(id)?)) {
        ends.insert(end);
    }
    for have in haves.iter().filter_map(&mut node) {
        let parents = if ends.holds(have) { &[][..] } else { graph.parents(have) };
        for &node in parents.iter().chain([&have]) {
            had.insert(node);
            lowest = lowest.min(node);
        }
    }
    if lowest == u32::MAX {
        return false;
    }
    let wants: Vec<u32> = wants.iter().filter_map(node).collect();
    // Nothing below the lowest had node can reach one.
    let mut above = Bits::new(graph.len());
    let mut order = Vec::new();
    let mut stack = wants.clone();
    while let Some(node) = stack.pop() {
        if node >= lowest && above.insert(node) {
            order.push(node);
            stack.extend_from_slice(graph.parents(node));
        }
    }
    order.sort_unstable();
    for node in order {
        if graph.parents(node).iter().any(|&parent| had.holds(parent)) {
            had.insert(node);
        }
    }
    wants.iter().all(|&want| had.holds(want))
}
