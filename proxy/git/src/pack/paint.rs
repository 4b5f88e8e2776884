//! What one side reaches and the other doesn't, on commits alone.

use std::collections::BinaryHeap;

use super::{Graph, bits::Bits};

const OURS: u8 = 1;
const THEIRS: u8 = 2;
/// Reached from what the client asked to stay clear of.
const AVOIDED: u8 = 4;

/// A walk from high nodes to low ones: when a node comes up, all its children have.
struct Painter<'g> {
    graph: &'g Graph,
    colours: Vec<u8>,
    queue: BinaryHeap<u32>,
    /// Queued nodes that only we reach so far; at zero the rest is theirs.
    open: usize,
}

impl<'g> Painter<'g> {
    fn new(graph: &'g Graph) -> Self {
        let colours = vec![0; graph.len() as usize];
        Self { graph, colours, queue: BinaryHeap::new(), open: 0 }
    }

    fn paint_all(&mut self, nodes: &[u32], colour: u8) {
        for &node in nodes {
            self.paint(node, colour);
        }
    }

    fn paint(&mut self, node: u32, colour: u8) {
        let slot = &mut self.colours[node as usize];
        let before = *slot;
        *slot |= colour;
        if before == 0 {
            self.queue.push(node);
        }
        match (before == OURS, *slot == OURS) {
            (false, true) => self.open += 1,
            (true, false) => self.open -= 1,
            _ => {}
        }
    }

    fn next(&mut self) -> Option<(u32, u8)> {
        if self.open == 0 {
            return None;
        }
        let node = self.queue.pop()?;
        let colour = self.colours[node as usize];
        if colour == OURS {
            self.open -= 1;
        }
        Some((node, colour))
    }

    /// Hands a node's colour down.
    fn pass_on(&mut self, node: u32, colour: u8) {
        let graph = self.graph;
        // What is theirs, or avoided, is no longer ours however we got there.
        let colour = if colour == OURS { OURS } else { colour & !OURS };
        for &parent in graph.parents(node) {
            self.paint(parent, colour);
        }
    }
}

/// The commits to send and where they meet what the client has.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    /// Reached from the tips and not from theirs; children before parents.
    pub(super) commits: Vec<u32>,
    /// Theirs, and a parent of one of `commits`; ascending.
    pub(super) edges: Vec<u32>,
}

/// What `tips` reach and `theirs` don't, where nodes in `cut` have no parents for either.
pub(super) fn difference(graph: &Graph, tips: &[u32], theirs: &[u32], cut: &Bits) -> Difference {
    let mut painter = Painter::new(graph);
    painter.paint_all(tips, OURS);
    painter.paint_all(theirs, THEIRS);
    let mut commits = Vec::new();
    while let Some((node, colour)) = painter.next() {
        if colour == OURS {
            commits.push(node);
        }
        if !cut.holds(node) {
            painter.pass_on(node, colour);
        }
    }
    let mut edges: Vec<u32> = commits
        .iter()
        .filter(|&&commit| !cut.holds(commit))
        .flat_map(|&commit| graph.parents(commit))
        .copied()
        .collect();
    edges.retain(|&parent| painter.colours[parent as usize] & THEIRS != 0);
    edges.sort_unstable();
    edges.dedup();
    Difference { commits, edges }
}

/// Those of `nodes` that no other of them reaches, where nodes in `cut` have no parents; ascending.
pub(super) fn maximal(graph: &Graph, nodes: &[u32], cut: &Bits) -> Vec<u32> {
    let mut nodes = nodes.to_vec();
    nodes.sort_unstable();
    nodes.dedup();
    let Some(&lowest) = nodes.first() else { return nodes };
    let mut below = Bits::new(graph.len());
    let mut queue: BinaryHeap<u32> = nodes.iter().copied().collect();
    let mut seen = Bits::new(graph.len());
    while let Some(node) = queue.pop() {
        if !seen.insert(node) || cut.holds(node) {
            continue;
        }
        for &parent in graph.parents(node).iter().filter(|&&parent| parent >= lowest) {
            below.insert(parent);
            queue.push(parent);
        }
    }
    nodes.retain(|&node| !below.holds(node));
    nodes
}

/// The commits that a client's `since` and `not` leave.
#[derive(Debug)]
pub(super) struct Recent {
    pub(super) commits: Vec<u32>,
    /// Whether the walk needed parents that the mirror doesn't hold.
    pub(super) met_boundary: bool,
}

/// What `tips` reach and `avoid` doesn't, without old commits and all before them: `git rev-list --max-age`.
pub(super) fn recent(graph: &Graph, tips: &[u32], avoid: &[u32], since: Option<i64>) -> Recent {
    let mut painter = Painter::new(graph);
    painter.paint_all(tips, OURS);
    painter.paint_all(avoid, AVOIDED);
    let mut recent = Recent { commits: Vec::new(), met_boundary: false };
    while let Some((node, mut colour)) = painter.next() {
        if since.is_some_and(|since| graph.time(node) < since) {
            colour |= THEIRS;
        }
        if colour == OURS {
            recent.commits.push(node);
        }
        // Beyond the boundary everything may be avoided; what is merely old ends there for certain.
        recent.met_boundary |= graph.at_boundary(node) && (colour == OURS || colour & AVOIDED != 0);
        painter.pass_on(node, colour);
    }
    recent
}
