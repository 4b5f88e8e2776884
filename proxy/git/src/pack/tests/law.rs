//! Two clients whose requests have one key can share one pack.

use std::collections::HashMap;

use gix_hash::ObjectId;

use super::fixture::{Dice, Repository};
use crate::pack::{Deepen, Plan, Query, View, plan};

/// A client's side of a request, random but true to what the client has.
struct Client {
    repository: Repository,
    /// What it says it has, which may be less than it has.
    said: Vec<ObjectId>,
    shallows: Vec<ObjectId>,
}

impl Client {
    fn random(upstream: &Repository, dice: &mut Dice) -> Self {
        let commits = upstream.commits();
        let depth = format!("--depth={}", 1 + dice.roll(4));
        let options: &[&str] = if dice.roll(2) == 0 { &[&depth] } else { &[] };
        let had = dice.some(&commits[commits.len() / 4..], 4);
        let repository = upstream.client(&had, options);
        let shallows = repository.shallows();
        let said = had[..=dice.roll(had.len())].to_vec();
        Self { repository, said, shallows }
    }
}

#[test]
fn clients_with_different_haves_and_one_key_can_both_use_the_pack() {
    let (mut shared, mut thin) = (0, 0);
    for seed in 0..16 {
        let upstream = Repository::random(seed + 300, 24);
        let snapshot = upstream.open();
        let mut dice = Dice::new(seed);
        let commits = upstream.commits();
        let clients: Vec<_> = (0..5).map(|_| Client::random(&upstream, &mut dice)).collect();
        for _ in 0..3 {
            let wants = dice.some(&commits[..commits.len() / 3], 2);
            let depth = u32::try_from(1 + dice.roll(6)).unwrap();
            let deepen =
                dice.pick(&[None, None, Some(Deepen::Depth(depth)), Some(Deepen::Depth(0x7fff_ffff))]);
            let plans: Vec<Plan> = clients
                .iter()
                .map(|client| {
                    let query = Query {
                        wants: &wants,
                        common: &client.said,
                        client_shallows: &client.shallows,
                        deepen: deepen.clone(),
                        thin: true,
                        ofs_delta: true,
                        ..Query::default()
                    };
                    plan(&snapshot.view(), &query).unwrap()
                })
                .collect();
            for (leader, plan) in plans.iter().enumerate() {
                for follower in leader + 1..plans.len() {
                    if plans[follower].key("r") != plan.key("r")
                        || clients[leader].said == clients[follower].said
                    {
                        continue;
                    }
                    let mut pack = Vec::new();
                    thin += crate::pack::write(&snapshot.view(), plan, &mut pack).unwrap().thin;
                    shared += 1;
                    for client in [leader, follower] {
                        let repository = clients[client].repository.twin();
                        let accepted = repository.accept(&pack, plan, &wants);
                        accepted.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                    }
                }
            }
        }
    }
    assert!(shared > 20 && thin > 0, "{shared} packs were shared, with {thin} thin deltas");
}

/// Everything that `write` looks at, besides the view.
fn written_from(plan: &Plan) -> impl PartialEq + std::fmt::Debug + use<> {
    let Plan { commits, bases, tags, trees, blobs, given, include, filter, thin, ofs_delta, .. } =
        plan.clone();
    ((commits, bases, tags, trees, blobs), (given, include, filter, thin, ofs_delta))
}

/// Whether the client has every base: from what it named, not past its own ends.
fn bases_are_the_clients(view: &View<'_>, plan: &Plan, query: &Query<'_>) -> bool {
    let node = |id: &ObjectId| view.graph.node(view.set.number(id)?);
    let ends: Vec<u32> = query.client_shallows.iter().filter_map(node).collect();
    // A shallow line says that the client has the commit, too.
    let mut stack: Vec<u32> = query.common.iter().chain(&plan.unshallow).filter_map(node).collect();
    let mut reached = std::collections::HashSet::new();
    while let Some(node) = stack.pop() {
        if reached.insert(node) && !ends.contains(&node) {
            stack.extend_from_slice(view.graph.parents(node));
        }
    }
    plan.bases.iter().all(|base| reached.contains(base))
}

#[test]
fn one_key_is_one_selection_and_every_base_is_something_the_client_named() {
    let mut shared = 0;
    for seed in 0..5 {
        let upstream = Repository::random(seed + 350, 14);
        let snapshot = upstream.open();
        let commits = upstream.commits();
        let mut dice = Dice::new(seed);
        let mut plans = HashMap::new();
        for _ in 0..1500 {
            let (wants, said) = (dice.some(&commits, 2), dice.some(&commits, 3));
            let shallows = dice.pick(&[vec![], dice.clone().some(&commits, 2)]);
            let depth = u32::try_from(1 + dice.roll(4)).unwrap();
            let not = vec![dice.pick(&commits)];
            let deepen = [None, Some(Deepen::Depth(depth)), Some(Deepen::Relative(depth))];
            let mut deepen = deepen.to_vec();
            deepen.push(Some(Deepen::History { since: None, not }));
            let query = Query {
                wants: &wants,
                common: &said,
                client_shallows: &shallows,
                deepen: dice.pick(&deepen),
                thin: dice.roll(2) == 0,
                ..Query::default()
            };
            let Ok(plan) = plan(&snapshot.view(), &query) else { continue };
            assert!(bases_are_the_clients(&snapshot.view(), &plan, &query), "{query:?}");
            let (first, first_said) =
                plans.entry(plan.key("r")).or_insert_with(|| (written_from(&plan), said.clone()));
            shared += usize::from(said != *first_said);
            assert_eq!(*first, written_from(&plan), "{query:?}");
        }
    }
    assert!(shared > 1000, "{shared} keys were shared");
}

#[test]
fn the_key_tells_repositories_and_capabilities_apart() {
    let upstream = Repository::random(400, 10);
    let snapshot = upstream.open();
    let tips = upstream.tips();
    let query = Query { wants: &tips, ..Query::default() };
    let plan_of = |query: &Query<'_>| plan(&snapshot.view(), query).unwrap();
    let key = plan_of(&query).key("a");
    assert_eq!(key, plan_of(&query).key("a"));
    assert_ne!(key, plan_of(&query).key("b"));
    assert_ne!(key, plan_of(&Query { thin: true, ..query.clone() }).key("a"));
    assert_ne!(key, plan_of(&Query { ofs_delta: true, ..query.clone() }).key("a"));
    assert_ne!(key, plan_of(&Query { deepen: Some(Deepen::Depth(1)), ..query.clone() }).key("a"));
    let filter = Some(crate::pack::Filter::BlobNone);
    assert_ne!(key, plan_of(&Query { filter, ..query.clone() }).key("a"));
    // Asking for what other wants reach anyway changes nothing.
    let mut more = tips.clone();
    more.extend(upstream.commits());
    assert_eq!(key, plan_of(&Query { wants: &more, ..query }).key("a"));
}
