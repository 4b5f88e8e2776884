//! Depth in all its forms: the lists and the objects that stock git answers with.

use gix_hash::ObjectId;

use super::fixture::{Dice, Repository, Snapshot, set};
use crate::pack::{Deepen, Query, Stop, plan};

/// Plans and writes; the same as stock git's answer in lists and objects, or both refuse.
fn compare(repository: &Repository, snapshot: &Snapshot, query: &Query<'_>) {
    let stock = repository.stock(query);
    match plan(&snapshot.view(), query) {
        Ok(plan) => {
            let stock = stock.unwrap();
            assert_eq!(set(&plan.shallow), stock.shallow, "shallow: {query:?}");
            assert_eq!(set(&plan.unshallow), stock.unshallow, "unshallow: {query:?}");
            let ours = snapshot.pack(&plan);
            repository.assert_same(&ours, &stock.pack, &query);
        }
        Err(Stop::NothingSelected) => assert!(stock.unwrap_err().contains("no commits selected")),
        Err(stop) => panic!("{stop:?}: {query:?}"),
    }
}

fn compare_all(seeds: std::ops::Range<u64>, deepen: impl Fn(&mut Dice, &[ObjectId]) -> Deepen) {
    for seed in seeds {
        let repository = Repository::random(seed, 40);
        repository.git(&["config", "pack.useSparse", "false"]);
        let snapshot = repository.open();
        let commits = repository.commits();
        let mut dice = Dice::new(seed + 1);
        for round in 0..4 {
            let wants = dice.some(&commits, 3);
            let depth = format!("--depth={}", 1 + dice.roll(4));
            let client = dice.some(&commits, 2);
            let shallows = if round == 0 { vec![] } else { repository.client(&client, &[&depth]).shallows() };
            let common = if round == 0 { vec![] } else { client };
            let deepen = Some(deepen(&mut dice, &commits));
            let query = Query {
                wants: &wants,
                common: &common,
                client_shallows: &shallows,
                deepen,
                ofs_delta: true,
                ..Query::default()
            };
            compare(&repository, &snapshot, &query);
        }
    }
}

#[test]
fn a_depth_cuts_where_stock_git_cuts() {
    compare_all(0..8, |dice, _| Deepen::Depth(u32::try_from(1 + dice.roll(8)).unwrap()));
}

#[test]
fn a_relative_depth_counts_from_the_clients_ends() {
    compare_all(10..18, |dice, _| Deepen::Relative(u32::try_from(1 + dice.roll(5)).unwrap()));
}

#[test]
fn the_whole_history_ends_every_end() {
    compare_all(20..24, |_, _| Deepen::Depth(0x7fff_ffff));
}

#[test]
fn a_time_cuts_where_stock_git_cuts() {
    compare_all(30..38, |dice, _| Deepen::History {
        since: Some(1_000_000 + i64::try_from(dice.roll(4000)).unwrap()),
        not: vec![],
    });
}

#[test]
fn a_ref_to_stay_clear_of_cuts_where_stock_git_cuts() {
    compare_all(40..48, |dice, commits| Deepen::History { since: None, not: dice.some(commits, 2) });
}

#[test]
fn a_time_and_a_ref_cut_together() {
    compare_all(50..54, |dice, commits| Deepen::History {
        since: Some(1_000_000 + i64::try_from(dice.roll(2000)).unwrap()),
        not: vec![dice.pick(commits)],
    });
}

#[test]
fn a_shallow_client_that_asks_for_no_depth_keeps_its_ends() {
    for seed in 60..66 {
        let repository = Repository::random(seed, 40);
        repository.git(&["config", "pack.useSparse", "false"]);
        let snapshot = repository.open();
        let commits = repository.commits();
        let mut dice = Dice::new(seed);
        let (wants, client) = (dice.some(&commits, 3), dice.some(&commits, 2));
        let shallows = repository.client(&client, &["--depth=2"]).shallows();
        let query = Query {
            wants: &wants,
            common: &client,
            client_shallows: &shallows,
            ofs_delta: true,
            ..Query::default()
        };
        compare(&repository, &snapshot, &query);
    }
}

#[test]
fn a_thin_pack_for_a_shallow_client_is_complete_with_what_it_has() {
    let mut thin = 0;
    for seed in 70..90 {
        let repository = Repository::random(seed, 40);
        let snapshot = repository.open();
        let commits = repository.commits();
        let mut dice = Dice::new(seed);
        let (wants, had) = (dice.some(&commits, 2), dice.some(&commits, 2));
        let client = repository.client(&had, &[&format!("--depth={}", 1 + dice.roll(3))]);
        let shallows = client.shallows();
        let depth = u32::try_from(1 + dice.roll(6)).unwrap();
        let deepen = dice.pick(&[None, Some(Deepen::Depth(depth)), Some(Deepen::Relative(depth))]);
        let query = Query {
            wants: &wants,
            common: &had,
            client_shallows: &shallows,
            deepen,
            thin: true,
            ofs_delta: true,
            ..Query::default()
        };
        let plan = plan(&snapshot.view(), &query).unwrap();
        let mut pack = Vec::new();
        thin += crate::pack::write(&snapshot.view(), &plan, &mut pack).unwrap().thin;
        client.accept(&pack, &plan, &wants).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert!(thin > 0, "no thin delta was tried");
}
