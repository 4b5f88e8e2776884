//! Repositories as they really are, and mirrors that don't hold everything.

use std::collections::HashSet;

use gix_hash::{Kind, ObjectId};

use super::fixture::{Dice, Repository, lines, oid, oids, set};
use crate::pack::{Deepen, Error, Graph, PackSet, Query, Reach, Stop, check_connected, plan};

fn query(wants: &[ObjectId]) -> Query<'_> {
    Query { wants, ofs_delta: true, ..Query::default() }
}

/// Tags of tags, of a tree and of a blob, light ones too; a submodule; an empty tree.
fn tagged() -> Repository {
    let repository = Repository::empty();
    let blob = repository.feed(&["hash-object", "-w", "--stdin"], b"text");
    let other = repository.feed(&["hash-object", "-w", "--stdin"], b"tagged");
    let link = "160000 commit 5e1c309dae7f45e0f39b1bf3ac3cd9db12e7d689\tlink";
    let tree =
        repository.feed(&["mktree", "--missing"], format!("{link}\n100644 blob {blob}\tf\n").as_bytes());
    let empty = repository.feed(&["mktree"], b"");
    let root = repository.git(&["commit-tree", "-m", "root", &empty]);
    let tip = repository.git(&["commit-tree", "-m", "tip", "-p", &root, &tree]);
    repository.git(&["update-ref", "refs/heads/main", &tip]);
    for (name, target) in [("n1", "main"), ("n2", "n1"), ("n3", "n2"), ("tb-ann", &other), ("tt-ann", &tree)]
    {
        repository.git(&["tag", "-a", "-m", "x", name, target]);
    }
    repository.git(&["tag", "tb-light", &other]);
    repository.git(&["tag", "tt-light", &tree]);
    repository.git(&["repack", "-adq"]);
    repository
}

#[test]
fn a_tag_of_tags_brings_the_whole_chain() {
    let repository = tagged();
    let snapshot = repository.open();
    let n3 = [oid(&repository.git(&["rev-parse", "n3"]))];
    let pack = snapshot.pack(&plan(&snapshot.view(), &query(&n3)).unwrap());
    // Three tags, two commits, two trees, a blob.
    assert_eq!(repository.listed(&pack), repository.listed(&repository.stock(&query(&n3)).unwrap().pack));
    assert_eq!(repository.listed(&pack).len(), 8);
}

#[test]
fn tags_of_trees_and_blobs_are_sent_alone_together_and_filtered() {
    let repository = tagged();
    let snapshot = repository.open();
    check_connected(&snapshot.set, &snapshot.graph, &repository.tips(), None).unwrap();
    for wants in [repository.tips(), repository.tips()[4..].to_vec(), repository.branches()] {
        for filter in [None, Some(crate::pack::Filter::BlobNone), Some(crate::pack::Filter::BlobLimit(5))] {
            for deepen in [None, Some(Deepen::Depth(1))] {
                let query = Query {
                    filter: filter.clone(),
                    deepen,
                    include_tag: true,
                    tags: &snapshot.tags,
                    ..query(&wants)
                };
                let pack = snapshot.pack(&plan(&snapshot.view(), &query).unwrap());
                let stock = repository.stock(&query).unwrap();
                repository.assert_same(&pack, &stock.pack, &query);
            }
        }
    }
}

#[test]
fn objects_that_fsck_minds_are_served_as_they_are() {
    let repository = Repository::empty();
    let blob = repository.feed(&["hash-object", "-w", "--stdin"], b"text");
    let raw = |kind: &str, bytes: &[u8]| {
        repository.feed(&["hash-object", "-w", "--literally", "--stdin", "-t", kind], bytes)
    };
    let mut tree = b"0100644 padded\0".to_vec();
    tree.extend_from_slice(oid(&blob).as_slice());
    tree.extend_from_slice(b"100666 odd\0");
    tree.extend_from_slice(oid(&blob).as_slice());
    let tree = raw("tree", &tree);
    let mut tip =
        raw("commit", format!("tree {tree}\nauthor a<a> 1 +0\ncommitter b <b> 5 +0\n\n").as_bytes());
    for tail in [
        "author a <a> x\ncommitter b\n\n",
        "author a <a> 1 +51800\ncommitter b <b> 7 -1\ngpgsig a\n b\ngpgsig c\n\n",
    ] {
        tip = raw("commit", format!("tree {tree}\nparent {tip}\n{tail}").as_bytes());
    }
    let tag = raw("tag", format!("object {tip}\ntype commit\ntag x\n\n").as_bytes());
    repository.git(&["update-ref", "refs/heads/main", &tip]);
    repository.git(&["update-ref", "refs/tags/x", &tag]);
    repository.git(&["repack", "-adq"]);
    let snapshot = repository.open();
    check_connected(&snapshot.set, &snapshot.graph, &repository.tips(), None).unwrap();
    let tips = repository.tips();
    for deepen in [None, Some(Deepen::Depth(2))] {
        let query = Query { deepen, ..query(&tips) };
        let pack = snapshot.pack(&plan(&snapshot.view(), &query).unwrap());
        assert_eq!(repository.listed(&pack), repository.listed(&repository.stock(&query).unwrap().pack));
    }
}

#[test]
fn a_walk_past_the_mirrors_boundary_is_a_miss() {
    for seed in 0..4 {
        let upstream = Repository::random(seed + 500, 40);
        let branches = upstream.branches();
        let mirror = upstream.client(&branches, &["--depth=2"]);
        mirror.git(&["repack", "-adq"]);
        let snapshot = mirror.open();
        assert!(snapshot.graph.has_boundary());
        check_connected(&snapshot.set, &snapshot.graph, &branches, None).unwrap();
        let whole = upstream.open();
        let mut dice = Dice::new(seed);
        for depth in 1..4 {
            let wants = dice.some(&branches, 2);
            let query = Query { deepen: Some(Deepen::Depth(depth)), ..query(&wants) };
            let true_answer = plan(&whole.view(), &query).unwrap();
            match plan(&snapshot.view(), &query) {
                Ok(answer) => {
                    assert_eq!(answer.shallow, true_answer.shallow);
                    assert_eq!(answer.key("r"), true_answer.key("r"));
                    Repository::empty().accept(&snapshot.pack(&answer), &answer, &wants).unwrap();
                }
                Err(Stop::Boundary) => assert!(depth > 1),
                Err(stop) => panic!("{stop:?}"),
            }
        }
        for deepen in
            [None, Some(Deepen::Depth(0x7fff_ffff)), Some(Deepen::History { since: Some(0), not: vec![] })]
        {
            let query = Query { deepen, ..query(&branches) };
            assert!(matches!(plan(&snapshot.view(), &query), Err(Stop::Boundary)), "{query:?}");
        }
    }
}

#[test]
fn a_boundary_behind_what_the_client_has_is_no_obstacle() {
    let upstream = Repository::random(600, 30);
    let (tip, parent) =
        (upstream.branches()[0], upstream.git(&["rev-parse", &format!("{}^", upstream.branches()[0])]));
    let mirror = upstream.client(&[tip], &["--depth=2"]);
    mirror.git(&["repack", "-adq"]);
    let snapshot = mirror.open();
    let (wants, haves) = ([tip], oids(&upstream.git(&["rev-parse", &format!("{tip}^@")])));
    assert!(haves.contains(&oid(&parent)));
    let query = Query { common: &haves, thin: true, ..query(&wants) };
    let plan = plan(&snapshot.view(), &query).unwrap();
    upstream.client(&haves, &[]).accept(&snapshot.pack(&plan), &plan, &wants).unwrap();
}

#[test]
fn an_end_that_the_mirror_does_not_know_is_not_deepened_from() {
    let upstream = Repository::random(601, 30);
    let mirror = upstream.client(&upstream.branches(), &["--depth=1"]);
    mirror.git(&["repack", "-adq"]);
    let snapshot = mirror.open();
    let unknown = [oid("5e1c309dae7f45e0f39b1bf3ac3cd9db12e7d689")];
    let wants = upstream.branches();
    for deepen in [Deepen::Relative(1), Deepen::Depth(u32::MAX)] {
        let query = Query { client_shallows: &unknown, deepen: Some(deepen), ..query(&wants) };
        assert!(matches!(plan(&snapshot.view(), &query), Err(Stop::Boundary)));
    }
}

#[test]
fn what_no_root_reaches_cannot_be_wanted() {
    let repository = Repository::random(602, 20);
    let all: Vec<ObjectId> = oids(&repository.git(&["rev-list", "--objects", "--all"]));
    let tip = repository.branches()[0].to_string();
    for line in repository.git(&["for-each-ref", "--format=%(refname)"]).lines() {
        repository.git(&["update-ref", "-d", line]);
    }
    repository.git(&["update-ref", "refs/heads/only", &tip]);
    let snapshot = repository.open();
    let kept = set(&oids(&repository.git(&["rev-list", "--objects", "--all"])));
    assert!(kept.len() < all.len());
    let reach = Reach::default();
    for id in &all {
        assert_eq!(reach.holds(&snapshot.view(), id).unwrap(), kept.contains(id), "{id}");
    }
    assert!(!reach.holds(&snapshot.view(), &oid("5e1c309dae7f45e0f39b1bf3ac3cd9db12e7d689")).unwrap());
    let lost = all.iter().find(|id| !kept.contains(*id)).unwrap();
    assert!(matches!(plan(&snapshot.view(), &query(&[*lost])), Err(Stop::Unknown(id)) if id == *lost));
}

#[test]
fn a_pack_that_lacks_any_one_object_is_not_connected() {
    let repository = Repository::random(603, 6);
    let tips = repository.tips();
    let all = oids(&repository.git(&["rev-list", "--objects", "--all"]));
    for missing in &all {
        let rest = lines(all.iter().filter(|id| *id != missing));
        let scratch = tempfile::TempDir::new().unwrap();
        let prefix = scratch.path().join("pack");
        let name = repository.feed(&["pack-objects", "-q", prefix.to_str().unwrap()], rest.as_bytes());
        let index = scratch.path().join(format!("pack-{name}.idx"));
        let set = PackSet::open(&[index], Kind::Sha1).unwrap();
        let graph = Graph::build(&set, &tips, &HashSet::new());
        let verdict = graph.and_then(|graph| check_connected(&set, &graph, &tips, None));
        assert!(matches!(verdict, Err(Error::Missing { oid }) if oid == *missing), "{missing}: {verdict:?}");
    }
}

#[test]
fn a_graph_that_grew_is_the_graph_built_anew() {
    let repository = Repository::random(604, 30);
    let before = repository.open();
    let tip = repository.branches()[0];
    let stream = format!(
        "commit refs/heads/new\ncommitter n <e> 2000000 +0000\ndata 1\nx\nfrom {tip}\nM 100644 inline new\ndata 3\nnew\n"
    );
    repository.feed(&["fast-import", "--quiet"], stream.as_bytes());
    let after = repository.open();
    let tips = repository.tips();
    let grown = before.graph.extend(&before.set, &after.set, &tips, &HashSet::new()).unwrap();
    assert_eq!(format!("{grown:?}"), format!("{:?}", after.graph));
    assert_eq!(grown.len(), before.graph.len() + 1);
    check_connected(&after.set, &grown, &tips, Some(&(before.set, before.graph))).unwrap();
}

#[test]
fn an_entry_that_changed_on_disk_is_never_sent() {
    let repository = Repository::random(605, 10);
    let snapshot = repository.open();
    let tips = repository.tips();
    let plan = plan(&snapshot.view(), &query(&tips)).unwrap();
    let file = repository.indexes()[0].with_extension("pack");
    let scratch = tempfile::TempDir::new().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(scratch.path().join("p.pack"), bytes).unwrap();
    std::fs::copy(file.with_extension("idx"), scratch.path().join("p.idx")).unwrap();
    let set = PackSet::open(&[scratch.path().join("p.idx")], Kind::Sha1).unwrap();
    let view = crate::pack::View { set: &set, graph: &snapshot.graph };
    assert!(crate::pack::write(&view, &plan, &mut Vec::new()).is_err());
}
