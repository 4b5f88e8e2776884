//! Partial clones: the objects that stock git leaves in.

use gix_hash::ObjectId;
use gix_object::Kind;

use super::fixture::{Dice, Repository, oids, set};
use crate::pack::{Filter, Query, plan};

fn every_filter() -> Vec<Filter> {
    let mut filters =
        vec![Filter::BlobNone, Filter::BlobLimit(0), Filter::BlobLimit(1020), Filter::BlobLimit(1 << 30)];
    filters.extend((0..4).map(Filter::Tree));
    filters.extend([Kind::Commit, Kind::Tree, Kind::Blob, Kind::Tag].map(Filter::ObjectType));
    filters.push(Filter::Combine(vec![Filter::BlobLimit(1020), Filter::Tree(2)]));
    filters.push(Filter::Combine(vec![Filter::Tree(3), Filter::ObjectType(Kind::Blob)]));
    filters.push(Filter::Combine(vec![Filter::BlobNone, Filter::Tree(1), Filter::Tree(4)]));
    filters
}

fn compare(repository: &Repository, wants: &[ObjectId], common: &[ObjectId]) {
    let snapshot = repository.open();
    for filter in every_filter() {
        let query = Query {
            wants,
            common,
            filter: Some(filter.clone()),
            include_tag: true,
            tags: &snapshot.tags,
            ofs_delta: true,
            thin: true,
            ..Query::default()
        };
        let ours = snapshot.pack(&plan(&snapshot.view(), &query).unwrap());
        let stock = repository.stock(&Query { thin: false, ..query.clone() }).unwrap();
        if matches!(filter, Filter::Combine(_)) {
            // git forgets a blob that one part let through before all did.
            assert!(repository.listed(&ours).is_superset(&repository.listed(&stock.pack)), "{query:?}");
        } else {
            repository.assert_same(&ours, &stock.pack, &query);
        }
    }
}

#[test]
fn a_filtered_clone_is_what_stock_git_sends() {
    for seed in 0..3 {
        let repository = Repository::random(seed, 30);
        repository.git(&["config", "pack.useSparse", "false"]);
        compare(&repository, &repository.tips(), &[]);
    }
}

#[test]
fn a_filtered_increment_is_what_stock_git_sends() {
    for seed in 10..13 {
        let repository = Repository::random(seed, 30);
        repository.git(&["config", "pack.useSparse", "false"]);
        let commits = repository.commits();
        let mut dice = Dice::new(seed);
        compare(&repository, &dice.some(&commits, 2), &dice.some(&commits, 2));
    }
}

#[test]
fn what_is_wanted_by_name_is_sent_whatever_the_filter() {
    let repository = Repository::random(20, 20);
    let objects = oids(&repository.git(&["rev-list", "--objects", "--all"]));
    let mut dice = Dice::new(1);
    for _ in 0..6 {
        compare(&repository, &[dice.pick(&objects)], &[]);
    }
    // With several, git drops one that it also meets inside another; we don't.
    let snapshot = repository.open();
    for filter in every_filter() {
        let wants = dice.some(&objects, 8);
        let query = Query { wants: &wants, filter: Some(filter), ..Query::default() };
        let ours = repository.listed(&snapshot.pack(&plan(&snapshot.view(), &query).unwrap()));
        assert!(ours.is_superset(&set(&wants)), "{query:?}");
        assert!(ours.is_superset(&repository.listed(&repository.stock(&query).unwrap().pack)), "{query:?}");
    }
}
