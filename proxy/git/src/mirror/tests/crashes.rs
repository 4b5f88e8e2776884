//! Folders as a crash, a full disk or rot leaves them.

use super::*;

/// A mirror folder after one publish and after the next, and what the next one added.
struct Two {
    before: Vec<(PathBuf, Vec<u8>)>,
    after: Vec<(PathBuf, Vec<u8>)>,
    first: ObjectId,
    second: ObjectId,
    source: Source,
}

fn two() -> Two {
    let source = Source::with_history(6);
    let dir = tempfile::tempdir().unwrap();
    let mirror = open(dir.path());
    let first = source.oid("main");
    mirror.publish(&source.update(Some(source.pack_all(OFS)))).unwrap();
    let before = files(dir.path());
    let second = source.commit(7);
    mirror.publish(&source.update(Some(source.pack(&format!("{second}\n^{first}\n"), THIN)))).unwrap();
    let after = files(dir.path());
    Two { before, after, first, second, source }
}

/// What is opened from these files: generation and main.
fn opened(files: &[(PathBuf, Vec<u8>)]) -> (TempDir, Mirror) {
    let dir = tempfile::tempdir().unwrap();
    restore(dir.path(), files);
    let mirror = open(dir.path());
    (dir, mirror)
}

fn main_of(mirror: &Mirror) -> (u64, ObjectId) {
    let snapshot = mirror.snapshot().unwrap();
    (snapshot.generation, snapshot.refs.resolve(b"refs/heads/main").unwrap())
}

fn is(path: &Path, start: &str) -> bool {
    path.to_string_lossy().starts_with(start)
}

/// The same files with one of them changed.
fn with(files: &[(PathBuf, Vec<u8>)], start: &str, change: impl Fn(&mut Vec<u8>)) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = files.to_vec();
    let (_, bytes) = files.iter_mut().find(|(path, _)| is(path, start)).unwrap();
    change(bytes);
    files
}

/// The pack that only the second publish brought, without its extension.
fn second_pack(two: &Two) -> String {
    let known = |path: &PathBuf| two.before.iter().any(|(other, _)| other == path);
    let found = two.after.iter().find(|(path, _)| is(path, "packs/") && !known(path)).unwrap();
    found.0.with_extension("").to_string_lossy().into_owned()
}

#[test]
fn a_kill_between_any_two_steps_leaves_the_old_state_or_the_new_one() {
    let two = two();
    let mut disk = two.before.clone();
    let step = |disk: &[(PathBuf, Vec<u8>)], generation, main| {
        let (dir, mirror) = opened(disk);
        assert_eq!(main_of(&mirror), (generation, main));
        assert_eq!(mirror.damage(), [""; 0]);
        judge(&mirror);
        // Leftovers are gone, and work goes on.
        let packs = fs::read_dir(dir.path().join("packs")).unwrap().count();
        assert_eq!(packs, if generation == 1 { 2 } else { 4 });
        let pack = two.source.pack(&format!("{}\n^{}\n", two.second, two.first), THIN);
        let published = mirror.publish(&two.source.update(Some(pack))).unwrap();
        assert!(published.snapshot.generation >= 2);
        assert_eq!(main_of(&mirror).1, two.second);
        judge(&mirror);
    };
    // Half a pack, half an index and half a generation in quarantine.
    disk.push(("quarantine/pack/completed".into(), b"PACK\0\0".to_vec()));
    disk.push(("quarantine/pack/incoming.idx".into(), vec![]));
    disk.push(("quarantine/writing".into(), b"tidegate-gen".to_vec()));
    step(&disk, 1, two.first);
    let pack = second_pack(&two);
    for extension in ["pack", "idx"] {
        let name = PathBuf::from(format!("{pack}.{extension}"));
        disk.push(two.after.iter().find(|(path, _)| *path == name).unwrap().clone());
        step(&disk, 1, two.first);
    }
    disk.push(two.after.iter().find(|(path, _)| is(path, "generations/2")).unwrap().clone());
    step(&disk, 1, two.first);
    let disk = with(&disk, "current", |bytes| *bytes = b"2\n".to_vec());
    step(&disk, 2, two.second);
}

#[test]
fn a_broken_newest_generation_falls_back_under_a_number_never_used() {
    let two = two();
    let pack = second_pack(&two);
    let cut = |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() / 2);
    let flip = |bytes: &mut Vec<u8>| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    };
    let tail = |bytes: &mut Vec<u8>| *bytes.last_mut().unwrap() ^= 1;
    let cases = [
        with(&two.after, "generations/2", cut),
        with(&two.after, "generations/2", flip),
        with(&two.after, "generations/2", Vec::clear),
        with(&two.after, &format!("{pack}.pack"), cut),
        with(&two.after, &format!("{pack}.pack"), tail),
        with(&two.after, &format!("{pack}.idx"), cut),
        with(&two.after, &format!("{pack}.idx"), tail),
        two.after.iter().filter(|(path, _)| !is(path, &pack)).cloned().collect(),
        two.after.iter().filter(|(path, _)| !is(path, "generations/2")).cloned().collect(),
    ];
    for (case, disk) in cases.iter().enumerate() {
        let (dir, mirror) = opened(disk);
        assert_eq!(main_of(&mirror), (3, two.first), "case {case}");
        judge(&mirror);
        drop(mirror);
        let again = open(dir.path());
        assert_eq!((main_of(&again), again.damage().len()), ((3, two.first), 0), "case {case}");
        let pack = two.source.pack(&format!("{}\n^{}\n", two.second, two.first), THIN);
        again.publish(&two.source.update(Some(pack))).unwrap();
        assert_eq!(main_of(&again), (4, two.second), "case {case}");
        judge(&again);
    }
}

#[test]
fn an_unreadable_current_costs_nothing_but_a_number() {
    let two = two();
    for garbage in [&b""[..], b"two\n", b"2", b"\xff\n", b"99999999999999999999999\n"] {
        let disk = with(&two.after, "current", |bytes| *bytes = garbage.to_vec());
        let (_dir, mirror) = opened(&disk);
        assert_eq!(main_of(&mirror), (3, two.second));
        assert_eq!(mirror.damage().len(), 1);
        judge(&mirror);
    }
    let (_dir, mirror) = opened(&with(&two.after, "current", |bytes| *bytes = b"41\n".to_vec()));
    assert_eq!(main_of(&mirror), (42, two.second));
}

#[test]
fn with_nothing_left_that_verifies_the_mirror_is_empty_and_starts_over() {
    let two = two();
    let first_pack = two.before.iter().find(|(path, _)| is(path, "packs/")).unwrap().0.with_extension("pack");
    let first_pack = first_pack.to_string_lossy();
    for damaged in [
        with(&two.after, &first_pack, |bytes| bytes.truncate(100)),
        with(&with(&two.after, "generations/1", Vec::clear), "generations/2", Vec::clear),
        two.after.iter().filter(|(path, _)| !is(path, "packs/")).cloned().collect(),
    ] {
        let (dir, mirror) = opened(&damaged);
        assert!(mirror.snapshot().is_none());
        assert_eq!(mirror.damage().len(), 2);
        let published = mirror.publish(&two.source.update(Some(two.source.pack_all(OFS)))).unwrap();
        assert_eq!(published.snapshot.generation, 3, "numbers are not used twice");
        judge(&mirror);
        drop(mirror);
        let again = open(dir.path());
        assert_eq!((main_of(&again), again.damage().len()), ((3, two.second), 0));
    }
}

#[test]
fn rot_inside_files_is_found_by_fsck_and_named() {
    let two = two();
    let pack = second_pack(&two);
    for extension in ["pack", "idx"] {
        let disk = with(&two.after, &format!("{pack}.{extension}"), |bytes| {
            // Sizes and trailers stay right.
            let at = bytes.len() - 41;
            bytes[at] ^= 0x10;
        });
        let dir = tempfile::tempdir().unwrap();
        restore(dir.path(), &disk);
        let mirror = open(dir.path());
        let found = if mirror.damage().is_empty() { mirror.fsck() } else { mirror.damage().to_vec() };
        assert!(!found.is_empty(), "{extension}");
    }
    let (dir, mirror) = opened(&two.after);
    fs::write(dir.path().join("generations/2"), b"gone").unwrap();
    assert_eq!(mirror.fsck().len(), 1);
}

#[test]
fn random_damage_never_gives_wrong_objects_or_a_panic() {
    let two = two();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    for _ in 0..40 {
        let mut disk = two.after.clone();
        let victim = random(disk.len());
        let bytes = &mut disk[victim].1;
        let at = random(bytes.len());
        if random(2) == 0 {
            bytes.truncate(at);
        } else {
            bytes[at] ^= 1 << random(8);
        }
        let (_dir, mirror) = opened(&disk);
        if let Some(snapshot) = mirror.snapshot() {
            let main = snapshot.refs.resolve(b"refs/heads/main").unwrap();
            assert!(main == two.first || main == two.second);
            mirror.fsck();
        }
    }
}
