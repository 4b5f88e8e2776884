//! Looks into a pack that came over the wire, with stock git and with our own
//! eyes.

use std::path::Path;

use flate2::{Decompress, FlushDecompress};

use crate::repository::Repository;

/// How many entries of each kind a pack has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// Commits, trees, blobs and tags stored whole.
    pub whole: usize,
    /// Deltas against an entry further up.
    pub ofs_deltas: usize,
    /// Deltas against a named object.
    pub ref_deltas: usize,
}

/// Counts the entries of a pack by kind; format: gitformat-pack(5).
pub fn entries(pack: &[u8]) -> Entries {
    let mut counted = Entries::default();
    let mut at = 12;
    let end = pack.len().saturating_sub(20);
    while at < end {
        let kind = (pack[at] >> 4) & 7;
        while pack[at] & 0x80 != 0 {
            at += 1;
        }
        at += 1;
        match kind {
            6 => {
                while pack[at] & 0x80 != 0 {
                    at += 1;
                }
                at += 1;
                counted.ofs_deltas += 1;
            }
            7 => {
                at += 20;
                counted.ref_deltas += 1;
            }
            _ => counted.whole += 1,
        }
        at += deflated(&pack[at..end]);
    }
    counted
}

fn deflated(bytes: &[u8]) -> usize {
    let mut inflate = Decompress::new(true);
    let mut out = vec![0_u8; 64 * 1024];
    loop {
        let used = usize::try_from(inflate.total_in()).expect("a pack fits in memory");
        let status = inflate.decompress(&bytes[used..], &mut out, FlushDecompress::None);
        let status = status.expect("a pack entry is zlib");
        if status == flate2::Status::StreamEnd {
            return usize::try_from(inflate.total_in()).expect("a pack fits in memory");
        }
    }
}

/// The ids of all objects in a self-contained pack, sorted, as stock git reads it.
pub fn objects(pack: &[u8], work: &Path) -> Vec<String> {
    objects_on(&Repository::create(&work.join("scratch.git")), pack)
}

/// The ids of all objects that `repository` holds once it took this (maybe thin) pack.
pub fn objects_on(repository: &Repository, pack: &[u8]) -> Vec<String> {
    repository.feed(&["index-pack", "--stdin", "--fix-thin"], pack);
    let listed = repository.git(&["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"]);
    let mut ids: Vec<String> = listed.lines().map(str::to_owned).collect();
    ids.sort_unstable();
    ids
}
