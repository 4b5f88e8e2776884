//! Clones and increments, thin and not, against stock git.

use gix_hash::{Kind, ObjectId};

use super::fixture::{Dice, Repository, objects_in, oid, oids, set};
use crate::pack::{Graph, PackSet, Query, View, plan, ready};

fn query<'a>(wants: &'a [ObjectId], common: &'a [ObjectId]) -> Query<'a> {
    Query { wants, common, ofs_delta: true, ..Query::default() }
}

#[test]
fn a_clone_of_everything_is_what_rev_list_names() {
    for seed in 0..6 {
        let repository = Repository::random(seed, 60);
        let snapshot = repository.open();
        let tips = repository.tips();
        let plan = plan(&snapshot.view(), &query(&tips, &[])).unwrap();
        let pack = snapshot.pack(&plan);
        let named = oids(&repository.git(&["rev-list", "--objects", "--all"]));
        assert_eq!(repository.listed(&pack), set(&named), "seed {seed}");
        Repository::empty().accept(&pack, &plan, &tips).unwrap();
    }
}

#[test]
fn an_increment_has_the_objects_that_stock_git_sends() {
    for seed in 0..12 {
        let mut dice = Dice::new(seed + 100);
        let repository = Repository::random(seed, 50);
        // The default marks fewer trees, and so sends more.
        repository.git(&["config", "pack.useSparse", "false"]);
        let snapshot = repository.open();
        let commits = repository.commits();
        for _ in 0..4 {
            let (wants, haves) = (dice.some(&commits, 3), dice.some(&commits, 3));
            let query = query(&wants, &haves);
            let ours = snapshot.pack(&plan(&snapshot.view(), &query).unwrap());
            let stock = repository.stock(&query).unwrap();
            repository.assert_same(&ours, &stock.pack, &query);
        }
    }
}

#[test]
fn a_thin_increment_is_complete_with_what_the_client_has() {
    let mut thin = 0;
    for seed in 0..10 {
        let mut dice = Dice::new(seed + 200);
        let repository = Repository::random(seed, 50);
        let snapshot = repository.open();
        let commits = repository.commits();
        let (wants, haves) = (dice.some(&commits, 3), dice.some(&commits, 2));
        for ofs_delta in [true, false] {
            let query = Query { thin: true, ofs_delta, ..query(&wants, &haves) };
            let plan = plan(&snapshot.view(), &query).unwrap();
            let mut pack = Vec::new();
            let stats = crate::pack::write(&snapshot.view(), &plan, &mut pack).unwrap();
            thin += stats.thin;
            let stock = repository.stock(&query).unwrap();
            assert!(stats.objects <= objects_in(&stock.pack), "seed {seed}");
            repository.client(&haves, &[]).accept(&pack, &plan, &wants).unwrap();
        }
    }
    assert!(thin > 0, "no thin delta was tried");
}

#[test]
fn a_client_without_ofs_delta_gets_none() {
    let repository = Repository::random(3, 40);
    let snapshot = repository.open();
    let tips = repository.tips();
    let wanted = Query { ofs_delta: false, ..query(&tips, &[]) };
    let pack = snapshot.pack(&plan(&snapshot.view(), &wanted).unwrap());
    let mut at = 12;
    let mut by_name = 0;
    while at < pack.len() - 20 {
        let entry = gix_pack::data::Entry::from_bytes(&pack[at..], at as u64, Kind::Sha1).unwrap();
        assert!(!matches!(entry.header, gix_pack::data::entry::Header::OfsDelta { .. }));
        by_name += u32::from(entry.header.is_delta());
        let mut out = vec![0; usize::try_from(entry.decompressed_size).unwrap() + 1];
        let body = usize::try_from(entry.data_offset).unwrap();
        at = body + gix_zlib::Inflate::default().once(&pack[body..], &mut out).unwrap().1;
    }
    assert!(by_name > 0, "no delta was tried");
    Repository::empty().accept(&pack, &plan(&snapshot.view(), &wanted).unwrap(), &tips).unwrap();
}

#[test]
fn after_a_push_of_one_commit_a_warm_client_gets_no_more_objects_than_from_stock_git() {
    let repository = Repository::random(5, 60);
    let tip = repository.branches()[0];
    let stream = format!(
        "commit refs/heads/new\ncommitter n <e> 2000000 +0000\ndata 1\nx\nfrom {tip}\n\
         M 100644 inline d1/deep/er/f1\ndata 3\nnew\n"
    );
    repository.feed(&["fast-import", "--quiet"], stream.as_bytes());
    let pushed = oid(&repository.git(&["rev-parse", "refs/heads/new"]));
    let snapshot = repository.open();
    for depth in [None, Some("1")] {
        let options: Vec<String> = depth.iter().map(|depth| format!("--depth={depth}")).collect();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let client = repository.client(&[tip], &options);
        let (wants, haves, shallows) = ([pushed], [tip], client.shallows());
        let query = Query {
            thin: true,
            client_shallows: &shallows,
            deepen: depth.map(|_| crate::pack::Deepen::Depth(1)),
            ..query(&wants, &haves)
        };
        let plan = plan(&snapshot.view(), &query).unwrap();
        let ours = snapshot.pack(&plan);
        let stock = repository.stock(&query).unwrap();
        assert!(objects_in(&ours) <= objects_in(&stock.pack), "depth {depth:?}");
        client.accept(&ours, &plan, &wants).unwrap();
    }
}

#[test]
fn a_client_that_has_it_all_gets_an_empty_pack() {
    let repository = Repository::random(7, 20);
    let snapshot = repository.open();
    let tip = [repository.branches()[0]];
    let plan = plan(&snapshot.view(), &Query { thin: true, ..query(&tip, &tip) }).unwrap();
    assert_eq!(snapshot.pack(&plan).len(), 32);
}

#[test]
fn tags_go_along_when_what_they_name_does() {
    for seed in 0..6 {
        let repository = Repository::random(seed + 20, 40);
        let snapshot = repository.open();
        let mut dice = Dice::new(seed);
        let commits = repository.commits();
        let (wants, haves) = (dice.some(&commits, 2), dice.some(&commits, 2));
        for haves in [&haves[..], &[]] {
            repository.git(&["config", "pack.useSparse", "false"]);
            let query = Query { include_tag: true, tags: &snapshot.tags, ..query(&wants, haves) };
            let ours = snapshot.pack(&plan(&snapshot.view(), &query).unwrap());
            let stock = repository.stock(&query).unwrap();
            repository.assert_same(&ours, &stock.pack, &query);
        }
    }
}

#[test]
fn forty_one_overlapping_packs_are_one_repository() {
    let repository = Repository::random(11, 80);
    let commits = repository.commits();
    // Each pack holds all that some commit reaches, so most objects are in many packs.
    let mut dice = Dice::new(41);
    for _ in 0..40 {
        let from = format!("{}\n", dice.pick(&commits));
        repository.feed(
            &["pack-objects", "-q", "--revs", "--no-reuse-delta", "objects/pack/pack"],
            from.as_bytes(),
        );
    }
    assert!(repository.indexes().len() > 30);
    let snapshot = repository.open();
    let tips = repository.tips();
    for (wants, haves) in
        [(tips.clone(), vec![]), (tips.clone(), dice.some(&commits, 2)), (dice.some(&commits, 2), vec![])]
    {
        let query = Query { thin: true, ..query(&wants, &haves) };
        let plan = plan(&snapshot.view(), &query).unwrap();
        repository.client(&haves, &[]).accept(&snapshot.pack(&plan), &plan, &wants).unwrap();
    }
}

#[test]
fn the_same_packs_give_the_same_bytes_in_whatever_order_they_are_named() {
    let repository = Repository::random(13, 40);
    let commits = repository.commits();
    let from = format!("{}\n", commits[commits.len() / 2]);
    repository.feed(&["pack-objects", "-q", "--revs", "objects/pack/pack"], from.as_bytes());
    let tips = repository.tips();
    let written: Vec<_> = [false, true]
        .map(|reversed| {
            let mut indexes = repository.indexes();
            if reversed {
                indexes.reverse();
            }
            let set = PackSet::open(&indexes, Kind::Sha1).unwrap();
            let graph = Graph::build(&set, &tips, &std::collections::HashSet::new()).unwrap();
            let view = View { set: &set, graph: &graph };
            let plan = plan(&view, &query(&tips, &commits[20..22])).unwrap();
            let mut pack = Vec::new();
            crate::pack::write(&view, &plan, &mut pack).unwrap();
            (pack, plan.key("x"))
        })
        .into();
    assert_eq!(written[0], written[1]);
}

#[test]
fn a_client_is_ready_when_every_want_reaches_something_it_has() {
    let repository = Repository::random(17, 40);
    let snapshot = repository.open();
    let commits = repository.commits();
    let mut dice = Dice::new(3);
    for _ in 0..40 {
        let (wants, haves) = (dice.some(&commits, 2), dice.some(&commits, 2));
        let expected = wants.iter().all(|want| {
            let mut reached = oids(&repository.git(&["rev-list", &want.to_string()]));
            // A want that a have has as a parent counts, too.
            reached.retain(|id| {
                haves.iter().any(|have| {
                    let family = repository.git(&["rev-list", "--parents", "-1", &have.to_string()]);
                    family.split(' ').any(|member| oid(member) == *id)
                })
            });
            !reached.is_empty()
        });
        assert_eq!(ready(&snapshot.view(), &wants, &haves, &[]), expected);
    }
    assert!(!ready(&snapshot.view(), &commits[..1], &[], &[]));
}
