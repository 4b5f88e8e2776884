//! Packs that must leave no trace.

use proptest::prelude::*;

use super::*;
use crate::mirror::BadPack;

/// A pack of these entries: type, declared size, what comes between, content.
fn pack(count: u32, entries: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = b"PACK\0\0\0\x02".to_vec();
    bytes.extend_from_slice(&count.to_be_bytes());
    bytes.extend(entries.concat());
    sealed(bytes)
}

/// With the checksum that belongs at the end.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let mut hasher = gix_hash::hasher(Kind::Sha1);
    hasher.update(&bytes);
    bytes.extend_from_slice(hasher.try_finalize().unwrap().as_slice());
    bytes
}

fn entry(kind: u8, size: usize, base: &[u8], content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = size >> 4;
    let mut byte = (kind << 4) | u8::try_from(size & 15).unwrap();
    while rest > 0 {
        bytes.push(byte | 0x80);
        byte = u8::try_from(rest & 0x7f).unwrap();
        rest >>= 7;
    }
    bytes.push(byte);
    bytes.extend_from_slice(base);
    let mut deflate = flate2::write::ZlibEncoder::new(bytes, flate2::Compression::fast());
    deflate.write_all(content).unwrap();
    deflate.finish().unwrap()
}

const BLOB: u8 = 3;
const OFS_DELTA: u8 = 6;
const REF_DELTA: u8 = 7;

fn blob(content: &[u8]) -> Vec<u8> {
    entry(BLOB, content.len(), b"", content)
}

fn blob_id(content: &[u8]) -> ObjectId {
    gix_object::compute_hash(Kind::Sha1, gix_object::Kind::Blob, content).unwrap()
}

/// A delta that turns one byte into another.
fn delta_to(byte: u8) -> [u8; 4] {
    [1, 1, 1, byte]
}

/// What a mirror says to a pack with some tight limits; that nothing stays is checked here.
fn refusal(bytes: &[u8]) -> Error {
    let (source, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = source.path().join("pack");
    fs::write(&path, bytes).unwrap();
    let limits = Limits {
        pack_bytes: 1 << 20,
        pack_objects: 1_000,
        object_bytes: 1 << 16,
        inflated_bytes: 1 << 18,
        delta_depth: 5,
        ..Limits::default()
    };
    let mirror = Mirror::open(dir.path(), limits).unwrap();
    let before = files(dir.path());
    let error = mirror.publish(&update(RefTable::empty(Kind::Sha1), Some(path))).unwrap_err();
    assert!(mirror.snapshot().is_none());
    assert_eq!(files(dir.path()), before);
    assert_eq!(fs::read_dir(dir.path().join("quarantine")).unwrap().count(), 0);
    assert!(error.is_upstream_fault(), "{error}");
    error
}

fn bad(bytes: &[u8]) -> BadPack {
    match refusal(bytes) {
        Error::BadPack(bad) => bad,
        other => panic!("{other}"),
    }
}

fn limit(bytes: &[u8]) -> &'static str {
    match bad(bytes) {
        BadPack::Limit { what, .. } => what,
        other => panic!("{other}"),
    }
}

#[test]
fn what_is_no_pack_is_refused() {
    for bytes in [&b""[..], b"PACK", b"<html>not found, but with a 200</html>", b"PACK\0\0\0\x04\0\0\0\0"] {
        let found = bad(bytes);
        assert!(matches!(found, BadPack::Header | BadPack::Truncated { .. }), "{found}");
    }
}

#[test]
fn a_wrong_number_of_objects_is_refused() {
    let entries = [blob(b"a"), blob(b"b")];
    for count in [1, 3, 4, 999] {
        let found = bad(&pack(count, &entries));
        assert!(!matches!(found, BadPack::Limit { .. }), "{count}: {found}");
    }
    assert_eq!(limit(&pack(u32::MAX, &entries)), "an object count");
    assert!(matches!(bad(&pack(0, &entries)), BadPack::Checksum));
}

#[test]
fn a_wrong_checksum_and_bytes_after_it_are_refused() {
    let whole = pack(1, &[blob(b"a")]);
    let mut wrong = whole.clone();
    *wrong.last_mut().unwrap() ^= 1;
    assert_eq!(bad(&wrong), BadPack::Checksum);
    assert_eq!(bad(&[&whole[..], b"tail"].concat()), BadPack::Trailing { extra: 4 });
    assert_eq!(bad(&[pack(0, &[]), b"x".to_vec()].concat()), BadPack::Trailing { extra: 1 });
}

#[test]
fn a_size_that_lies_is_refused_either_way() {
    for size in [1, 2, 4, 40_000] {
        let lie = entry(BLOB, size, b"", b"abc");
        assert_eq!(bad(&pack(1, &[lie])), BadPack::SizeLie { at: 12 });
    }
    let bomb = entry(BLOB, 10, b"", &vec![0; 1 << 16]);
    assert_eq!(bad(&pack(1, &[bomb])), BadPack::SizeLie { at: 12 });
}

#[test]
fn objects_and_sums_of_objects_beyond_a_limit_are_refused() {
    let zeros = vec![0; 1 << 16];
    assert_eq!(limit(&pack(1, &[entry(BLOB, usize::MAX >> 1, b"", b"a")])), "an object size");
    assert_eq!(limit(&pack(1, &[blob(&[&zeros[..], b"0"].concat())])), "an object size");
    let many: Vec<_> = (0..5).map(|n| blob(&[&zeros[1..], &[n]].concat())).collect();
    assert_eq!(limit(&pack(5, &many)), "an unpacked size");
    // A delta may be small and stand for something huge.
    let delta = [1, 0xff, 0xff, 0xff, 0x7f];
    let base = blob(b"a");
    let distance = [u8::try_from(base.len()).unwrap()];
    assert_eq!(limit(&pack(2, &[base, entry(OFS_DELTA, 5, &distance, &delta)])), "an object size");
}

#[test]
fn deltas_too_deep_are_refused_by_offset_and_by_id() {
    for depth in [5, 6] {
        let mut by_offset = vec![blob(&[0])];
        let mut by_id = vec![blob(&[0])];
        for n in 1..=depth {
            let distance = u8::try_from(by_offset[usize::from(n) - 1].len()).unwrap();
            by_offset.push(entry(OFS_DELTA, 4, &[distance], &delta_to(n)));
            by_id.push(entry(REF_DELTA, 4, blob_id(&[n - 1]).as_slice(), &delta_to(n)));
        }
        // In any order: bases named by id may come later.
        by_id.reverse();
        for entries in [by_offset, by_id] {
            let bytes = pack(u32::from(depth) + 1, &entries);
            if depth == 6 {
                assert_eq!(limit(&bytes), "a delta depth");
            } else {
                assert!(accepted(&bytes));
            }
        }
    }
}

/// Whether a pack gets as far as the refs; with none that lead to it, it is not kept.
fn accepted(bytes: &[u8]) -> bool {
    let (source, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = source.path().join("pack");
    fs::write(&path, bytes).unwrap();
    let limits = Limits { delta_depth: 5, ..Limits::default() };
    let mirror = Mirror::open(dir.path(), limits).unwrap();
    mirror.publish(&update(RefTable::empty(Kind::Sha1), Some(path))).is_ok()
}

#[test]
fn a_delta_without_its_base_is_refused() {
    let nobody = ObjectId::from_bytes_or_panic(&[9; 20]);
    let by_id = entry(REF_DELTA, 4, nobody.as_slice(), &delta_to(1));
    assert!(matches!(bad(&pack(1, std::slice::from_ref(&by_id))), BadPack::Unresolved(_)));
    // Two that wait for one another, or one that waits for itself, wait for nobody's id.
    let other = entry(REF_DELTA, 4, blob_id(&[1]).as_slice(), &delta_to(2));
    let cycle = [entry(REF_DELTA, 4, blob_id(&[2]).as_slice(), &delta_to(1)), other];
    assert!(matches!(bad(&pack(2, &cycle)), BadPack::Unresolved(_)));
    let selfish = entry(REF_DELTA, 4, blob_id(&[1]).as_slice(), &delta_to(1));
    assert!(matches!(bad(&pack(2, &[blob(b"a"), selfish])), BadPack::Unresolved(_)));
}

#[test]
fn a_base_that_is_no_entry_is_refused() {
    let base = blob(b"a");
    let right = u8::try_from(base.len()).unwrap();
    for distance in [0, 1, right - 1, right + 1, 100] {
        let delta = entry(OFS_DELTA, 4, &[distance], &delta_to(b'b'));
        assert!(matches!(bad(&pack(2, &[base.clone(), delta])), BadPack::Base { .. }), "{distance}");
    }
}

#[test]
fn a_delta_that_does_not_apply_is_refused() {
    let base = blob(b"a");
    let distance = [u8::try_from(base.len()).unwrap()];
    for delta in [&[2, 1, 1, b'x'][..], &[1, 2, 1, b'x'], &[1, 1, 0x91, 9, 1], &[1, 1, 0], &[1, 1], &[1]] {
        let entry = entry(OFS_DELTA, delta.len(), &distance, delta);
        let found = bad(&pack(2, &[base.clone(), entry]));
        assert!(matches!(found, BadPack::Unresolved(_) | BadPack::Entry { .. }), "{delta:?}: {found}");
    }
}

#[test]
fn an_object_with_other_bytes_under_a_known_id_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let forge = |name: &str, content: &[u8], id: ObjectId| {
        let path = dir.path().join(format!("{name}.pack"));
        let bytes = pack(1, &[blob(content)]);
        fs::write(&path, &bytes).unwrap();
        let mut index = b"\xfftOc\0\0\0\x02".to_vec();
        for first in 0..=255 {
            index.extend_from_slice(&u32::from(first >= id.as_slice()[0]).to_be_bytes());
        }
        index.extend_from_slice(id.as_slice());
        index.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 12]);
        index.extend_from_slice(&bytes[bytes.len() - 20..]);
        fs::write(path.with_extension("idx"), sealed(index)).unwrap();
        path
    };
    let id = blob_id(b"ours");
    let ours = forge("ours", b"ours", id);
    let held = crate::pack::PackSet::open(&[ours.with_extension("idx")], Kind::Sha1).unwrap();
    let same = forge("same", b"ours", id);
    let theirs = forge("theirs", b"them", id);
    assert!(!super::super::publish::brings_something(&same, &held).unwrap());
    let collision = super::super::publish::brings_something(&theirs, &held).unwrap_err();
    assert!(matches!(collision, Error::Collision { oid } if oid == id), "{collision}");
}

#[test]
fn a_pack_cut_anywhere_is_refused_never_a_panic() {
    let source = Source::with_history(4);
    let whole = fs::read(source.pack_all(OFS)).unwrap();
    for end in (0..whole.len()).step_by(7) {
        refusal(&whole[..end]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_pack_with_changed_bytes_is_refused_never_a_panic(
        at in 0_usize..100_000,
        with in 1_u8..,
        resealed: bool,
    ) {
        let source = small_pack();
        let mut bytes = source[..source.len() - 20].to_vec();
        let at = at % bytes.len();
        bytes[at] ^= with;
        let bytes = if resealed { sealed(bytes) } else { [&bytes[..], &source[source.len() - 20..]].concat() };
        let dir = tempfile::tempdir().unwrap();
        let mirror = open(dir.path());
        let path = dir.path().join("incoming");
        fs::write(&path, &bytes).unwrap();
        let result = mirror.publish(&update(RefTable::empty(Kind::Sha1), Some(path)));
        // With a right checksum other bytes may make another right pack.
        prop_assert!(resealed || result.is_err());
    }
}

fn small_pack() -> &'static [u8] {
    static PACK: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    PACK.get_or_init(|| fs::read(Source::with_history(4).pack_all(OFS)).unwrap())
}
