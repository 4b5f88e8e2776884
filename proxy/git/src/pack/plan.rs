//! Decides what a fetch is answered with, on commits alone.
//!
//! The same steps as git's upload-pack: new ends of the client's history first,
//! then what the wants reach and the haves don't, with the history cut at the
//! client's own shallow commits and at the new ones. Everything that is left
//! out later, and every thin base, is reachable from [`Plan`]'s bases: they are
//! in the key, and the haves are not.

use gix_hash::{Kind, ObjectId};

use super::{
    Deepen, Filter, Graph, Query, Stop, View,
    bits::Bits,
    paint,
    peel::{End, Peeler},
    shallow::Ends,
    sieve::Sieve,
};

/// What to send, in terms of the view it was made on; only good for that view.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Commits that become shallow at the client, ascending.
    pub shallow: Vec<ObjectId>,
    /// Commits that no longer are, ascending.
    pub unshallow: Vec<ObjectId>,
    /// Nodes to send, children before parents.
    pub(super) commits: Vec<u32>,
    /// Nodes the client has in full: the commits next to the ones to send.
    pub(super) bases: Vec<u32>,
    /// What else was wanted by name: numbers of tags, trees and blobs, ascending.
    pub(super) tags: Vec<u32>,
    pub(super) trees: Vec<u32>,
    pub(super) blobs: Vec<u32>,
    /// Commits a filter must not drop: numbers, only if it drops commits at all.
    pub(super) given: Vec<u32>,
    /// Tags to send if what they peel to is sent, by name.
    pub(super) include: Vec<(ObjectId, ObjectId)>,
    pub(super) filter: Option<Filter>,
    pub(super) thin: bool,
    pub(super) ofs_delta: bool,
    /// The names that stand for the walk in the key, each list ascending.
    pub(super) names: Names,
}

/// The names that go into the key.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) hash: Kind,
    /// Commits to send that none to send has as a parent.
    pub(super) tips: Vec<ObjectId>,
    pub(super) bases: Vec<ObjectId>,
    /// The client's shallow commits where the walk ended.
    pub(super) ends: Vec<ObjectId>,
    /// Tags, trees and blobs wanted, and commits in `given`.
    pub(super) objects: Vec<ObjectId>,
}

impl Plan {
    /// How many commits it sends, before a filter.
    pub fn commits(&self) -> usize {
        self.commits.len()
    }
}

/// Plans the answer to `query`, or says why there can't be one.
///
/// Trees and blobs among the wants are taken as given; whether a client may
/// want them is [`Reach`](super::Reach)'s question.
pub fn plan(view: &View<'_>, query: &Query<'_>) -> Result<Plan, Stop> {
    let mut asked = Asked::read(view, query)?;
    let graph = view.graph;
    let (shallow, unshallow) = ends(graph, query, &asked)?;
    // The client's present and new ends cut the history for both sides, as it will
    // see it; what lies behind an end that goes is wanted by name instead.
    let cut = Bits::of(graph.len(), asked.client.iter().chain(&shallow));
    for &node in &unshallow {
        if graph.at_boundary(node) {
            return Err(Stop::Boundary);
        }
        asked.tips.extend_from_slice(graph.parents(node));
        asked.theirs.push(node);
    }
    let difference = paint::difference(graph, &asked.tips, &asked.theirs, &cut);
    if difference.commits.iter().any(|&node| graph.at_boundary(node) && !cut.holds(node)) {
        return Err(Stop::Boundary);
    }
    let mut bases = difference.edges;
    if query.thin && !(asked.client.is_empty() && shallow.is_empty()) {
        // A shallow history has few edges, often none; git then takes everything
        // the client names ("objects-edge-aggressive").
        bases.extend(paint::maximal(graph, &asked.theirs, &cut));
        bases.sort_unstable();
        bases.dedup();
    }
    if difference.commits.is_empty() && asked.trees.is_empty() {
        bases.clear();
    }
    Ok(asked.into_plan(view, query, &Cuts { cut, shallow, unshallow }, (difference.commits, bases)))
}

/// Where a client's history ends, before and after.
struct Cuts {
    cut: Bits,
    shallow: Vec<u32>,
    unshallow: Vec<u32>,
}

/// A query in numbers and nodes.
struct Asked {
    tips: Vec<u32>,
    theirs: Vec<u32>,
    /// The client's shallow commits that the graph knows.
    client: Vec<u32>,
    not: Vec<u32>,
    tags: Vec<u32>,
    trees: Vec<u32>,
    blobs: Vec<u32>,
}

impl Asked {
    fn read(view: &View<'_>, query: &Query<'_>) -> Result<Self, Stop> {
        let mut peeler = Peeler::new(*view);
        let mut asked = Self {
            tips: Vec::new(),
            theirs: Vec::new(),
            client: Vec::new(),
            not: Vec::new(),
            tags: Vec::new(),
            trees: Vec::new(),
            blobs: Vec::new(),
        };
        for want in query.wants {
            match peeler.peel(want, &mut asked.tags)? {
                Some(End::Commit(node)) => asked.tips.push(node),
                Some(End::Tree(number)) => asked.trees.push(number),
                Some(End::Blob(number)) => asked.blobs.push(number),
                Some(End::Stray) | None => return Err(Stop::Unknown(*want)),
            }
        }
        // Haves that aren't commits prove nothing that a walk could use.
        let mut had_tags = Vec::new();
        for have in query.common {
            if let Some(End::Commit(node)) = peeler.peel(have, &mut had_tags)? {
                asked.theirs.push(node);
            }
        }
        had_tags.sort_unstable();
        asked.tags.retain(|tag| had_tags.binary_search(tag).is_err());
        asked.client =
            query.client_shallows.iter().filter_map(|id| view.graph.node(view.set.number(id)?)).collect();
        if let Some(Deepen::History { not, .. }) = &query.deepen {
            for id in not {
                match peeler.peel(id, &mut had_tags)? {
                    Some(End::Commit(node)) => asked.not.push(node),
                    Some(End::Tree(_) | End::Blob(_)) => {}
                    Some(End::Stray) | None => return Err(Stop::Unknown(*id)),
                }
            }
        }
        for list in [&mut asked.tags, &mut asked.trees, &mut asked.blobs, &mut asked.client] {
            list.sort_unstable();
            list.dedup();
        }
        Ok(asked)
    }

    fn into_plan(
        self,
        view: &View<'_>,
        query: &Query<'_>,
        cuts: &Cuts,
        (commits, bases): (Vec<u32>, Vec<u32>),
    ) -> Plan {
        let graph = view.graph;
        let sent = Bits::of(graph.len(), &commits);
        let inner = commits.iter().filter(|&&node| !cuts.cut.holds(node));
        let below = Bits::of(graph.len(), inner.flat_map(|&node| graph.parents(node)));
        let names = |nodes: &mut dyn Iterator<Item = u32>| {
            sorted(nodes.map(|node| view.set.oid(graph.object(node)).to_owned()).collect())
        };
        let sieve = Sieve::new(query.filter.as_ref());
        let mut given: Vec<u32> = Vec::new();
        if !sieve.commits {
            given.extend(self.tips.iter().filter(|&&tip| sent.holds(tip)).map(|&tip| graph.object(tip)));
            given.sort_unstable();
            given.dedup();
        }
        let objects = [&self.tags, &self.trees, &self.blobs, &given].into_iter().flatten();
        let objects = sorted(objects.map(|&number| view.set.oid(number).to_owned()).collect());
        let tips = names(&mut commits.iter().copied().filter(|&node| !below.holds(node)));
        let ends = names(&mut self.client.iter().copied().filter(|&node| sent.holds(node)));
        Plan {
            shallow: names(&mut cuts.shallow.iter().copied()),
            unshallow: names(&mut cuts.unshallow.iter().copied()),
            names: Names {
                hash: view.set.hash(),
                tips,
                bases: names(&mut bases.iter().copied()),
                ends,
                objects,
            },
            include: include(view, query, &sent),
            commits,
            bases,
            tags: self.tags,
            trees: self.trees,
            blobs: self.blobs,
            given,
            filter: query.filter.clone(),
            // A client with a filter may lack any object of a commit it has.
            thin: query.thin && query.filter.is_none(),
            ofs_delta: query.ofs_delta,
        }
    }
}

/// The shallow and unshallow lists, as nodes.
fn ends(graph: &Graph, query: &Query<'_>, asked: &Asked) -> Result<(Vec<u32>, Vec<u32>), Stop> {
    let Some(deepen) = &query.deepen else { return Ok((Vec::new(), Vec::new())) };
    let everything = deepen.is_everything();
    // An end we don't know may be one the upstream would move.
    let unknown = query.client_shallows.len() > asked.client.len();
    if unknown && graph.has_boundary() && (everything || matches!(deepen, Deepen::Relative(_))) {
        return Err(Stop::Boundary);
    }
    if everything {
        return Ok((Vec::new(), asked.client.clone()));
    }
    let ends = Ends::find(graph, deepen, &asked.tips, &asked.client, &asked.not)?;
    Ok(ends.against(&asked.client, graph.len()))
}

/// The tags that may go along: those of commits to send, and of what only a walk of trees can tell.
fn include(view: &View<'_>, query: &Query<'_>, sent: &Bits) -> Vec<(ObjectId, ObjectId)> {
    if !query.include_tag {
        return Vec::new();
    }
    let may_go = |peeled: &ObjectId| {
        view.set.number(peeled).is_some_and(|number| match view.graph.node(number) {
            Some(node) => sent.holds(node),
            None => view.graph.others().binary_search(&number).is_ok(),
        })
    };
    let known = query.tags.iter().filter(|(tag, peeled)| view.set.contains(tag) && may_go(peeled));
    let mut include: Vec<_> = known.copied().collect();
    include.sort_unstable();
    include.dedup();
    include
}

fn sorted(mut ids: Vec<ObjectId>) -> Vec<ObjectId> {
    ids.sort_unstable();
    ids.dedup();
    ids
}
