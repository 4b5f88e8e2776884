//! The commits of a snapshot: who is whose parent, without unpacking anything.
//!
//! Nodes are numbered so that a parent always has a lower number than its
//! children; a walk from high to low numbers has seen all children of a commit
//! before the commit itself. At the mirror's boundary a commit's parents aren't
//! held: such a node has none here, and [`Graph::at_boundary`] says so. Replace
//! refs and grafts play no part.

use std::collections::{HashMap, HashSet};

use gix_hash::ObjectId;
use gix_object::Kind;

use super::{Error, PackSet, Reader, bits::Bits, object};

/// Memory for unpacked commits while a graph is built.
const CACHE: usize = 32 << 20;

/// The commits reachable from a set of tips, down to a boundary.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The object number of each node.
    objects: Vec<u32>,
    /// The object number of each node's tree.
    trees: Vec<u32>,
    times: Vec<i64>,
    generations: Vec<u32>,
    /// Where each node's parents start in `parents`; one more at the end.
    starts: Vec<u32>,
    parents: Vec<u32>,
    boundary: Vec<bool>,
    /// (object number, node), ascending.
    nodes: Vec<(u32, u32)>,
    /// Tag objects met on the way from the tips, ascending object numbers.
    tags: Vec<u32>,
    /// Trees and blobs that a tip is, or that a tag points at; ascending.
    others: Vec<u32>,
}

impl Graph {
    /// Walks from `tips` (of any kind) through all parents, down to `boundary`.
    ///
    /// A commit, tag target or tree of a commit that isn't in `set` is
    /// [`Error::Missing`]: building a graph is the connectivity check for commits.
    pub fn build(set: &PackSet, tips: &[ObjectId], boundary: &HashSet<ObjectId>) -> Result<Self, Error> {
        Builder::new(set, boundary, None).build(tips)
    }

    /// [`build`](Self::build) for a newer set, unpacking only commits that this graph lacks.
    ///
    /// `old` is the set this graph was built on; neither the packs nor the tips need to be a superset.
    pub fn extend(
        &self,
        old: &PackSet,
        set: &PackSet,
        tips: &[ObjectId],
        boundary: &HashSet<ObjectId>,
    ) -> Result<Self, Error> {
        Builder::new(set, boundary, Some((old, self))).build(tips)
    }

    /// How many commits there are; nodes are the numbers below it.
    pub fn len(&self) -> u32 {
        u32::try_from(self.objects.len()).unwrap_or(u32::MAX)
    }

    /// Whether there is no commit at all.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The node of the commit with this object number.
    pub fn node(&self, number: u32) -> Option<u32> {
        let at = self.nodes.binary_search_by_key(&number, |&(object, _)| object).ok()?;
        Some(self.nodes[at].1)
    }

    /// The object number of a node's commit.
    pub fn object(&self, node: u32) -> u32 {
        self.objects[node as usize]
    }

    /// The object number of a node's tree.
    pub fn tree(&self, node: u32) -> u32 {
        self.trees[node as usize]
    }

    /// The parents of a node; none at the boundary.
    pub fn parents(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.parents[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    /// The committer time of a node, in seconds.
    pub fn time(&self, node: u32) -> i64 {
        self.times[node as usize]
    }

    /// One more than the highest generation among a node's parents.
    pub fn generation(&self, node: u32) -> u32 {
        self.generations[node as usize]
    }

    /// Whether a node has parents that the mirror doesn't hold.
    pub fn at_boundary(&self, node: u32) -> bool {
        self.boundary[node as usize]
    }

    /// Whether any node is at the boundary.
    pub fn has_boundary(&self) -> bool {
        self.boundary.contains(&true)
    }

    /// Object numbers of the tags met on the way from the tips, ascending.
    pub fn tags(&self) -> &[u32] {
        &self.tags
    }

    /// Object numbers of trees and blobs that tips or tags name directly, ascending.
    pub fn others(&self) -> &[u32] {
        &self.others
    }
}

/// A commit as it was found, before it has a node.
struct Found {
    number: u32,
    tree: u32,
    time: i64,
    /// Object numbers.
    parents: Vec<u32>,
    boundary: bool,
}

struct Builder<'a> {
    set: &'a PackSet,
    boundary: &'a HashSet<ObjectId>,
    known: Option<(&'a PackSet, &'a Graph)>,
    reader: Reader<'a>,
    buffer: Vec<u8>,
    seen: Bits,
    found: Vec<Found>,
    tags: Vec<u32>,
    others: Vec<u32>,
}

impl<'a> Builder<'a> {
    fn new(
        set: &'a PackSet,
        boundary: &'a HashSet<ObjectId>,
        known: Option<(&'a PackSet, &'a Graph)>,
    ) -> Self {
        Self {
            set,
            boundary,
            known,
            reader: Reader::new(set, CACHE),
            buffer: Vec::new(),
            seen: Bits::new(set.total()),
            found: Vec::new(),
            tags: Vec::new(),
            others: Vec::new(),
        }
    }

    fn build(mut self, tips: &[ObjectId]) -> Result<Graph, Error> {
        let mut stack = Vec::new();
        for tip in tips {
            if let Some(commit) = self.peel(tip)? {
                stack.push(commit);
            }
        }
        while let Some(number) = stack.pop() {
            if self.seen.insert(number) {
                let commit = self.commit(number)?;
                stack.extend_from_slice(&commit.parents);
                self.found.push(commit);
            }
        }
        self.assemble()
    }

    /// Follows tags from a tip, noting them; gives the commit at the end, if it is one.
    fn peel(&mut self, tip: &ObjectId) -> Result<Option<u32>, Error> {
        let mut number = self.set.require(tip)?;
        if self.known_node(number).is_some() {
            return Ok(Some(number));
        }
        while !self.seen.holds(number) {
            match self.reader.read(number, &mut self.buffer)? {
                Kind::Commit => return Ok(Some(number)),
                Kind::Tag => {
                    self.tags.push(number);
                    self.seen.insert(number);
                    let target = object::tag_target(&self.buffer, self.set.hash());
                    number = self
                        .set
                        .require(&target.ok_or_else(|| self.broken(number, "not a tag git would take"))?)?;
                }
                Kind::Tree | Kind::Blob => {
                    self.seen.insert(number);
                    self.others.push(number);
                }
            }
        }
        Ok(None)
    }

    fn commit(&mut self, number: u32) -> Result<Found, Error> {
        let id = self.set.oid(number);
        let boundary = self.boundary.contains(id);
        if let Some((old, graph, node)) = self.known_node(number)
            && !boundary
        {
            let here = |object: u32| self.set.require(old.oid(object));
            let parents = graph.parents(node).iter().map(|&parent| here(graph.object(parent)));
            return Ok(Found {
                number,
                tree: here(graph.tree(node))?,
                time: graph.time(node),
                parents: parents.collect::<Result<_, _>>()?,
                boundary,
            });
        }
        self.reader.read_as(number, Kind::Commit, &mut self.buffer)?;
        let commit = object::commit(&self.buffer, self.set.hash());
        let commit = commit.ok_or_else(|| self.broken(number, "not a commit git would take"))?;
        let parents = if boundary { &[][..] } else { &commit.parents };
        Ok(Found {
            number,
            tree: self.set.require(&commit.tree)?,
            time: commit.time,
            parents: parents.iter().map(|parent| self.set.require(parent)).collect::<Result<_, _>>()?,
            // A root commit has nothing beyond it, whatever a shallow list says.
            boundary: boundary && !commit.parents.is_empty(),
        })
    }

    /// The older graph's node for an object, if its parents are known there.
    fn known_node(&self, number: u32) -> Option<(&'a PackSet, &'a Graph, u32)> {
        let (old, graph) = self.known?;
        let node = graph.node(old.number(self.set.oid(number))?)?;
        (!graph.at_boundary(node)).then_some((old, graph, node))
    }

    fn broken(&self, number: u32, what: &'static str) -> Error {
        Error::Broken { oid: self.set.oid(number).to_owned(), what }
    }

    /// Numbers the commits, parents first, the same way whatever order they were found in.
    fn assemble(mut self) -> Result<Graph, Error> {
        // From here on a commit is its place in `found`, which is by object number.
        self.found.sort_unstable_by_key(|commit| commit.number);
        let mut graph = Graph { starts: vec![0], ..Graph::default() };
        let order = self.parents_first()?;
        let mut node_of = HashMap::with_capacity(order.len());
        for (node, &at) in (0u32..).zip(&order) {
            let commit = &self.found[at];
            node_of.insert(commit.number, node);
            let first = graph.parents.len();
            for parent in &commit.parents {
                let parent = node_of[parent];
                // git's walks don't mind a parent that is listed twice; one is enough.
                if !graph.parents[first..].contains(&parent) {
                    graph.parents.push(parent);
                }
            }
            let oldest =
                graph.parents[first..].iter().map(|&parent| graph.generations[parent as usize]).max();
            graph.starts.push(u32::try_from(graph.parents.len()).map_err(|_| Error::TooMany)?);
            graph.generations.push(oldest.map_or(1, |generation| generation.saturating_add(1)));
            graph.objects.push(commit.number);
            graph.trees.push(commit.tree);
            graph.times.push(commit.time);
            graph.boundary.push(commit.boundary);
        }
        graph.nodes = node_of.into_iter().collect();
        graph.nodes.sort_unstable();
        self.tags.sort_unstable();
        self.others.sort_unstable();
        (graph.tags, graph.others) = (self.tags, self.others);
        Ok(graph)
    }

    /// Places in `found` such that parents precede children.
    fn parents_first(&self) -> Result<Vec<usize>, Error> {
        let place = |number: u32| self.found.binary_search_by_key(&number, |commit| commit.number).ok();
        let mut children = vec![0u32; self.found.len()];
        for parent in self.found.iter().flat_map(|commit| &commit.parents).filter_map(|&parent| place(parent))
        {
            children[parent] += 1;
        }
        let mut ready: Vec<usize> = (0..self.found.len()).filter(|&at| children[at] == 0).collect();
        let mut order = Vec::with_capacity(self.found.len());
        while let Some(at) = ready.pop() {
            order.push(at);
            for parent in self.found[at].parents.iter().filter_map(|&parent| place(parent)) {
                children[parent] -= 1;
                if children[parent] == 0 {
                    ready.push(parent);
                }
            }
        }
        // A cycle of commits would need a broken hash; an index that lies can make one.
        if let Some(at) = (order.len() < self.found.len()).then(|| children.iter().position(|&left| left > 0))
        {
            let number = at.map_or(0, |at| self.found[at].number);
            return Err(self.broken(number, "it is its own ancestor"));
        }
        order.reverse();
        Ok(order)
    }
}
