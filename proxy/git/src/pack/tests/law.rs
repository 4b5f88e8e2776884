//! Two clients whose requests have one key can share one pack.

use super::fixture::{Dice, Repository};
use crate::pack::{Deepen, Plan, Query, plan};

/// A client's side of a request, random but true to what the client has.
struct Client {
    repository: Repository,
    had: Vec<gix_hash::ObjectId>,
    shallows: Vec<gix_hash::ObjectId>,
}

impl Client {
    fn random(upstream: &Repository, dice: &mut Dice) -> Self {
        let commits = upstream.commits();
        let depth = format!("--depth={}", 1 + dice.roll(4));
        let options: &[&str] = if dice.roll(2) == 0 { &[&depth] } else { &[] };
        let had = dice.some(&commits[commits.len() / 3..], 4);
        let repository = upstream.client(&had, options);
        let shallows = repository.shallows();
        Self { repository, had, shallows }
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
                        common: &client.had,
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
                        || clients[leader].had == clients[follower].had
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
