//! Updates that are taken over, and what of them is not.

use super::*;

fn publish(mirror: &Mirror, update: &Update) -> Published {
    mirror.publish(update).unwrap()
}

/// A source with ten commits and a mirror that has all of it.
fn mirrored() -> (Source, TempDir, Mirror) {
    let source = Source::with_history(10);
    let dir = tempfile::tempdir().unwrap();
    let mirror = open(dir.path());
    publish(&mirror, &source.update(Some(source.pack_all(OFS))));
    (source, dir, mirror)
}

#[test]
fn a_full_clone_is_linked_published_and_passes_gits_fsck() {
    use std::os::unix::fs::MetadataExt;
    let source = Source::with_history(10);
    let dir = tempfile::tempdir().unwrap();
    let mirror = open(dir.path());
    assert!(mirror.snapshot().is_none());
    let pack = source.pack_all(OFS);
    let published = publish(&mirror, &source.update(Some(pack.clone())));
    assert!(published.changed && published.unfetched.is_empty());
    let snapshot = mirror.snapshot().unwrap();
    assert_eq!((snapshot.generation, snapshot.graph.len(), snapshot.boundary.len()), (1, 10, 0));
    assert_eq!(*snapshot.refs, source.refs());
    let ours = snapshot.packs.names()[0].with_extension("pack");
    let ours = mirror.folder.packs().join(ours.file_name().unwrap());
    assert_eq!(fs::metadata(ours).unwrap().ino(), fs::metadata(pack).unwrap().ino(), "no second copy");
    assert!(mirror.bytes() > 0);
    let bare = judge(&mirror);
    let all = |dir: &Path| String::from_utf8(git(dir, &["rev-list", "--objects", "--all"], b"")).unwrap();
    assert_eq!(all(bare.path()), all(source.path()));
}

#[test]
fn a_thin_refresh_is_completed_and_survives_a_restart() {
    let (source, dir, mirror) = mirrored();
    let before = source.oid("main");
    let after = source.commit(10);
    let pack = source.pack(&format!("{after}\n^{before}\n"), THIN);
    let published = publish(&mirror, &source.update(Some(pack)));
    let snapshot = published.snapshot;
    assert_eq!((snapshot.generation, snapshot.graph.len()), (2, 11));
    assert_eq!(snapshot.retained, [super::super::Retained { oid: before, until: START + DAY }]);
    judge(&mirror);
    drop(mirror);
    let again = open(dir.path());
    assert_eq!(again.damage(), [""; 0]);
    let reopened = again.snapshot().unwrap();
    assert_eq!((reopened.generation, &reopened.retained), (2, &snapshot.retained));
    assert_eq!((&reopened.refs, &reopened.files), (&snapshot.refs, &snapshot.files));
    judge(&again);
}

#[test]
fn deltas_by_id_whose_base_is_here_and_in_the_pack_make_no_object_twice() {
    let (source, _dir, mirror) = mirrored();
    let after = source.commit(10);
    // Everything once more, with bases named by id: all of them are held.
    let pack = source.pack(&format!("{after}\n"), REF);
    publish(&mirror, &source.update(Some(pack)));
    let bare = judge(&mirror);
    for file in fs::read_dir(bare.path().join("objects/pack")).unwrap() {
        let file = file.unwrap().path();
        if file.extension().is_some_and(|extension| extension == "pack") {
            // Never to a device: git replaces its output by a rename.
            let index = bare.path().join("again.idx");
            let (index, file) = (index.to_str().unwrap(), file.to_str().unwrap());
            git(bare.path(), &["index-pack", "--strict", "-o", index, file], b"");
        }
    }
}

#[test]
fn an_update_that_changes_nothing_writes_nothing() {
    let (source, dir, mirror) = mirrored();
    let before = files(dir.path());
    for pack in [None, Some(source.pack_all(OFS)), Some(source.pack_all(REF)), Some(source.pack("", OFS))] {
        let mut update = source.update(pack);
        update.now = at(START + 10 * DAY);
        let published = publish(&mirror, &update);
        assert_eq!((published.changed, published.snapshot.generation), (false, 1));
    }
    assert_eq!(files(dir.path()), before);
}

#[test]
fn a_ref_without_its_object_keeps_its_old_value_and_others_move_on() {
    let (source, _dir, mirror) = mirrored();
    let main = source.oid("main");
    source.git(&["checkout", "-q", "-b", "side"]);
    let side = source.commit(50);
    source.git(&["checkout", "-q", "main"]);
    let gone = source.commit(60);
    source.git(&["update-ref", "refs/pull/1/head", &gone.to_string()]);
    let pack = source.pack(&format!("{side}\n^{main}\n"), THIN);
    let published = publish(&mirror, &source.update(Some(pack)));
    let names: Vec<_> = published.unfetched.iter().map(|ref_| String::from_utf8_lossy(&ref_.name)).collect();
    assert_eq!(names, ["refs/heads/main", "HEAD"]);
    let refs = &published.snapshot.refs;
    assert_eq!(refs.resolve(b"refs/heads/main"), Some(main));
    assert_eq!(refs.resolve(b"HEAD"), Some(main));
    assert_eq!(refs.resolve(b"refs/heads/side"), Some(side));
    assert_eq!(refs.resolve(b"refs/pull/1/head"), Some(gone), "listed refs may be without objects");
    judge(&mirror);
}

#[test]
fn a_pack_that_lacks_a_blob_is_refused_with_nothing_visible() {
    let (source, dir, mirror) = mirrored();
    let before = files(dir.path());
    let (old, new) = (source.oid("main"), source.commit(10));
    let whole = source.pack(&format!("{new}\n^{old}\n"), OFS);
    let lacking = source.pack(&format!("{new}\n^{old}\n"), &["--filter=blob:none"]);
    let error = mirror.publish(&source.update(Some(lacking))).unwrap_err();
    assert!(matches!(error, Error::Disconnected { .. }), "{error}");
    assert_eq!((files(dir.path()), mirror.snapshot().unwrap().generation), (before, 1));
    assert_eq!(publish(&mirror, &source.update(Some(whole))).snapshot.generation, 2);
    judge(&mirror);
}

#[test]
fn one_incomplete_branch_does_not_hold_up_another() {
    let (source, _dir, mirror) = mirrored();
    let main = source.oid("main");
    source.git(&["checkout", "-q", "-b", "bad"]);
    source.commit(50);
    source.git(&["checkout", "-q", "-b", "good", &main.to_string()]);
    let good = source.commit(60);
    let without = source.oid("bad:folder/50");
    let listed = source.git(&["rev-list", "--objects", "bad", "good", "^main"]);
    let names: String = listed
        .lines()
        .filter(|line| !line.starts_with(&without.to_string()))
        .fold(String::new(), |all, line| all + line + "\n");
    let pack = source.keep(&git(source.path(), &["pack-objects", "--stdout", "-q"], names.as_bytes()));
    let published = publish(&mirror, &source.update(Some(pack)));
    assert_eq!(published.snapshot.refs.resolve(b"refs/heads/good"), Some(good));
    assert_eq!(published.snapshot.refs.resolve(b"refs/heads/bad"), None);
    assert_eq!(published.unfetched.len(), 1);
    judge(&mirror);
}

#[test]
fn old_tips_stay_through_force_push_and_restart_and_go_when_their_time_is_over() {
    let (source, dir, mirror) = mirrored();
    let old = source.oid("main");
    source.git(&["reset", "-q", "--hard", "HEAD~3"]);
    let forced = source.commit(70);
    let pack = source.pack(&format!("{forced}\n^{old}\n"), THIN);
    publish(&mirror, &source.update(Some(pack)));
    drop(mirror);
    let mirror = open(dir.path());
    let snapshot = mirror.snapshot().unwrap();
    let node = |oid: ObjectId| snapshot.graph.node(snapshot.packs.number(&oid).unwrap());
    assert!(node(old).is_some() && node(forced).is_some());
    let mut later = source.update(None);
    later.now = at(START + DAY - 1);
    assert!(!publish(&mirror, &later).changed);
    later.now = at(START + DAY);
    let published = publish(&mirror, &later);
    assert_eq!((published.snapshot.generation, published.snapshot.retained.len()), (3, 0));
    let snapshot = published.snapshot;
    assert_eq!(snapshot.graph.node(snapshot.packs.number(&old).unwrap()), None, "no longer reachable");
}

#[test]
fn at_most_so_many_old_tips_are_retained() {
    let (source, _dir, mirror) = mirrored();
    for n in 0..5 {
        let old = source.oid("main");
        let new = source.commit(100 + n);
        let mut update = source.update(Some(source.pack(&format!("{new}\n^{old}\n"), THIN)));
        update.now = at(START + n as u64);
        update.keep_max = 3;
        publish(&mirror, &update);
    }
    let untils: Vec<_> = mirror.snapshot().unwrap().retained.iter().map(|kept| kept.until).collect();
    assert_eq!(untils.iter().max(), Some(&(START + 4 + DAY)));
    assert_eq!((untils.len(), untils.iter().min()), (3, Some(&(START + 2 + DAY))));
}

#[test]
fn a_want_accepted_on_demand_is_a_root_for_a_day_after_its_last_read() {
    let (source, _dir, mirror) = mirrored();
    let main = source.oid("main");
    let wanted = source.commit(10);
    source.git(&["reset", "-q", "--hard", "HEAD~1"]);
    let mut update = source.update(Some(source.pack(&format!("{wanted}\n^{main}\n"), THIN)));
    let missing = ObjectId::from_bytes_or_panic(&[7; 20]);
    update.roots = vec![wanted, missing];
    let published = publish(&mirror, &update);
    assert_eq!(published.snapshot.roots, [super::super::Retained { oid: wanted, until: START + DAY }]);
    judge(&mirror);
    mirror.root_read(wanted, at(START + DAY / 2));
    let mut later = source.update(None);
    later.now = at(START + DAY);
    assert!(!publish(&mirror, &later).changed, "it was read half a day ago");
    later.now = at(START + 2 * DAY);
    assert_eq!(publish(&mirror, &later).snapshot.roots, []);
}

#[test]
fn the_boundary_follows_what_the_upstream_sent() {
    let source = Source::with_history(10);
    let dir = tempfile::tempdir().unwrap();
    let mirror = open(dir.path());
    let tip = source.oid("main");
    let shallow = tempfile::tempdir().unwrap();
    let url = format!("file://{}", source.path().display());
    git(shallow.path(), &["clone", "-q", "--bare", "--depth", "1", &url, "."], b"");
    let pack = git(shallow.path(), &["pack-objects", "--revs", "--stdout", "-q", "--shallow", "--all"], b"");
    let mut update = source.update(Some(source.keep(&pack)));
    update.shallow = vec![tip];
    let published = publish(&mirror, &update);
    assert_eq!(published.snapshot.boundary, [tip].into());
    judge(&mirror);

    // One more commit on top: the boundary stays where it is, though the upstream names a new one.
    let next = source.commit(10);
    let mut update = source.update(Some(source.pack(&format!("{next}\n^{tip}\n"), THIN)));
    update.shallow = vec![next];
    let published = publish(&mirror, &update);
    assert_eq!((published.snapshot.boundary.clone(), published.snapshot.graph.len()), ([tip].into(), 2));
    judge(&mirror);

    // The rest of the history: no boundary, though the refs are the same.
    let mut update = source.update(Some(source.pack_all(OFS)));
    update.unshallow = vec![tip];
    let published = publish(&mirror, &update);
    assert_eq!(
        (published.changed, published.snapshot.boundary.len(), published.snapshot.graph.len()),
        (true, 0, 11)
    );
    judge(&mirror);
    drop(mirror);
    judge(&open(dir.path()));
}

#[test]
fn tags_of_tags_trees_and_blobs_are_ordinary_refs() {
    let source = Source::with_history(3);
    source.git(&["tag", "-a", "-m", "1", "n1", "main"]);
    source.git(&["tag", "-a", "-m", "2", "n2", "n1"]);
    source.git(&["tag", "tb-light", "main:long"]);
    source.git(&["tag", "-a", "-m", "tt", "tt-ann", "main:folder"]);
    source.git(&["tag", "tt-light", "main~1^{tree}"]);
    let dir = tempfile::tempdir().unwrap();
    let mirror = open(dir.path());
    let published = publish(&mirror, &source.update(Some(source.pack_all(OFS))));
    assert!(published.unfetched.is_empty());
    judge(&mirror);
    source.git(&["tag", "-d", "tt-light"]);
    publish(&mirror, &source.update(None));
    judge(&mirror);
    drop(mirror);
    judge(&open(dir.path()));
}

#[test]
fn an_empty_repository_has_a_snapshot_without_objects() {
    let source = Source::new();
    let dir = tempfile::tempdir().unwrap();
    let mirror = open(dir.path());
    let published = publish(&mirror, &source.update(None));
    assert_eq!((published.snapshot.generation, published.snapshot.packs.total()), (1, 0));
    drop(mirror);
    let mirror = open(dir.path());
    assert_eq!(*mirror.snapshot().unwrap().refs, source.refs());
    source.commit(1);
    publish(&mirror, &source.update(Some(source.pack_all(OFS))));
    judge(&mirror);
}

#[test]
fn readers_go_on_while_someone_publishes_and_after_removal() {
    let (source, dir, mirror) = mirrored();
    let snapshot = {
        let _publishing = super::super::lock(&mirror.writer);
        mirror.snapshot().unwrap()
    };
    mirror.remove().unwrap();
    assert!(!dir.path().exists() && mirror.snapshot().is_none());
    let mut object = Vec::new();
    let number = snapshot.packs.number(&source.oid("main")).unwrap();
    crate::pack::Reader::new(&snapshot.packs, 0).read(number, &mut object).unwrap();
    assert!(matches!(mirror.publish(&source.update(None)), Err(Error::Removed)));
    fs::create_dir(dir.path()).unwrap();
}

#[test]
fn only_the_last_two_generations_are_kept() {
    let (source, dir, mirror) = mirrored();
    for n in 0..3 {
        let old = source.oid("main");
        let new = source.commit(100 + n);
        publish(&mirror, &source.update(Some(source.pack(&format!("{new}\n^{old}\n"), THIN))));
    }
    let mut kept: Vec<_> =
        fs::read_dir(dir.path().join("generations")).unwrap().map(|file| file.unwrap().file_name()).collect();
    kept.sort();
    assert_eq!(kept, ["3", "4"]);
    assert_eq!(fs::read_dir(dir.path().join("packs")).unwrap().count(), 8);
    assert_eq!(fs::read_dir(dir.path().join("quarantine")).unwrap().count(), 0);
}
