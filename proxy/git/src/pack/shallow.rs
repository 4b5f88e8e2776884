//! Where a client's history is to end: the rules of git's `get_shallow_commits`.
//!
//! Two lists come out: commits that become shallow, and shallow ones that no
//! longer are. In git's words the former are `SHALLOW`, everything nearer is
//! `NOT_SHALLOW`.

use super::{Deepen, Graph, Stop, bits::Bits, paint};

/// The new ends of a client's history, as nodes.
#[derive(Debug)]
pub(super) struct Ends {
    /// Commits whose parents aren't to be sent, whether the client knows that already or not.
    shallow: Vec<u32>,
    /// Commits whose parents are.
    open: Bits,
}

impl Ends {
    /// Ends for a `deepen` that isn't "everything".
    pub(super) fn find(
        graph: &Graph,
        deepen: &Deepen,
        wants: &[u32],
        client: &[u32],
        not: &[u32],
    ) -> Result<Self, Stop> {
        match deepen {
            Deepen::Depth(depth) => by_depth(graph, wants, *depth),
            // Counted from the client's present ends, which stand at one.
            Deepen::Relative(depth) => by_depth(graph, client, depth.saturating_add(1)),
            Deepen::History { since, .. } => by_history(graph, wants, not, *since),
        }
    }

    /// The lists to tell a client whose history ends at `client`: (shallow, unshallow).
    pub(super) fn against(self, client: &[u32], nodes: u32) -> (Vec<u32>, Vec<u32>) {
        let known = Bits::of(nodes, client);
        let shallow = self.shallow.into_iter().filter(|&node| !known.holds(node)).collect();
        let unshallow = client.iter().copied().filter(|&node| self.open.holds(node)).collect();
        (shallow, unshallow)
    }
}

/// Level by level: a commit's depth is its shortest way from a head.
fn by_depth(graph: &Graph, heads: &[u32], depth: u32) -> Result<Ends, Stop> {
    let mut seen = Bits::new(graph.len());
    let mut open = Bits::new(graph.len());
    let mut level: Vec<u32> = heads.iter().copied().filter(|&head| seen.insert(head)).collect();
    for _ in 1..depth.max(1) {
        if level.is_empty() {
            break;
        }
        let mut below = Vec::new();
        for node in level {
            if graph.at_boundary(node) {
                return Err(Stop::Boundary);
            }
            open.insert(node);
            below.extend(graph.parents(node).iter().copied().filter(|&parent| seen.insert(parent)));
        }
        level = below;
    }
    Ok(Ends { shallow: level, open })
}

/// A commit with a parent that isn't selected is an end; whether it has others that are doesn't matter.
fn by_history(graph: &Graph, wants: &[u32], not: &[u32], since: Option<i64>) -> Result<Ends, Stop> {
    let recent = paint::recent(graph, wants, not, since);
    if recent.met_boundary {
        return Err(Stop::Boundary);
    }
    if recent.commits.is_empty() {
        return Err(Stop::NothingSelected);
    }
    let selected = Bits::of(graph.len(), &recent.commits);
    let mut open = Bits::new(graph.len());
    let mut shallow = Vec::new();
    for node in recent.commits {
        if graph.parents(node).iter().all(|&parent| selected.holds(parent)) {
            open.insert(node);
        } else {
            shallow.push(node);
        }
    }
    Ok(Ends { shallow, open })
}
