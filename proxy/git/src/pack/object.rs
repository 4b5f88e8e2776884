//! What a walk needs from commits, tags and trees, and no more.
//!
//! As forgiving as git itself (CASES K10): zero-padded modes, missing dates
//! and repeated headers exist in real histories, and a plain `git clone`
//! takes them. Pure: bytes in, values out, never a panic.

use gix_hash::{Kind, ObjectId, oid};

/// A commit, as far as it matters to a walk.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Commit {
    pub(super) tree: ObjectId,
    pub(super) parents: Vec<ObjectId>,
    /// Committer time in seconds; 0 if it can't be read, as in git.
    pub(super) time: i64,
}

/// What a tree entry is, by its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    Tree,
    Blob,
    /// A submodule's commit, or a mode git reads as one: never followed.
    Link,
}

/// Reads a commit; None if git wouldn't take it for one.
pub(super) fn commit(bytes: &[u8], hash: Kind) -> Option<Commit> {
    let (tree, mut rest) = id_line(bytes, b"tree ", hash)?;
    let mut parents = Vec::new();
    while rest.starts_with(b"parent ") {
        let (parent, after) = id_line(rest, b"parent ", hash)?;
        parents.push(parent);
        rest = after;
    }
    Some(Commit { tree, parents, time: committer_time(rest).unwrap_or(0) })
}

/// Reads what a tag points at.
pub(super) fn tag_target(bytes: &[u8], hash: Kind) -> Option<ObjectId> {
    id_line(bytes, b"object ", hash).map(|(id, _)| id)
}

/// The entries of a tree; an `Err` item ends it.
pub(super) fn tree(bytes: &[u8], hash: Kind) -> TreeEntries<'_> {
    TreeEntries { rest: bytes, hash }
}

/// Iterator over the entries of one tree.
pub(super) struct TreeEntries<'a> {
    rest: &'a [u8],
    hash: Kind,
}

/// A tree whose bytes aren't a list of entries.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadTree;

impl<'a> Iterator for TreeEntries<'a> {
    type Item = Result<(EntryKind, &'a oid), BadTree>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let entry = self.entry();
        if entry.is_none() {
            self.rest = &[];
        }
        Some(entry.ok_or(BadTree))
    }
}

impl<'a> TreeEntries<'a> {
    fn entry(&mut self) -> Option<(EntryKind, &'a oid)> {
        let space = self.rest.iter().position(|&byte| byte == b' ')?;
        let mode = self.rest.get(..space).filter(|digits| !digits.is_empty())?.iter().try_fold(
            0u32,
            // Wraps like git's own: only the type bits count.
            |mode, digit| matches!(digit, b'0'..=b'7').then(|| (mode << 3) | u32::from(digit - b'0')),
        )?;
        let name = self.rest.get(space + 1..)?;
        let nul = name.iter().position(|&byte| byte == 0).filter(|&length| length > 0)?;
        let id = name.get(nul + 1..nul + 1 + self.hash.len_in_bytes())?;
        self.rest = name.get(nul + 1 + self.hash.len_in_bytes()..)?;
        let kind = match mode & 0o170_000 {
            0o040_000 => EntryKind::Tree,
            0o100_000 | 0o120_000 => EntryKind::Blob,
            _ => EntryKind::Link,
        };
        Some((kind, oid::try_from_bytes(id).ok()?))
    }
}

fn id_line<'a>(bytes: &'a [u8], field: &[u8], hash: Kind) -> Option<(ObjectId, &'a [u8])> {
    let rest = bytes.strip_prefix(field)?;
    let hex = rest.get(..hash.len_in_hex())?;
    let rest = rest.get(hash.len_in_hex()..)?.strip_prefix(b"\n")?;
    Some((ObjectId::from_hex(hex).ok()?, rest))
}

fn committer_time(bytes: &[u8]) -> Option<i64> {
    let author_end = bytes.starts_with(b"author").then(|| line_end(bytes))??;
    let line = bytes.get(author_end + 1..)?;
    let line = line.get(..line_end(line)?).filter(|line| line.starts_with(b"committer"))?;
    let after = line.iter().rposition(|&byte| byte == b'>')? + 1;
    let text = line.get(after..)?.trim_ascii_start();
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(text.get(..digits)?).ok()?.parse().ok()
}

fn line_end(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|&byte| byte == b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "5e1c309dae7f45e0f39b1bf3ac3cd9db12e7d689";

    #[test]
    fn a_commit_gives_its_tree_parents_and_committer_time() {
        let text =
            format!("tree {HEX}\nparent {HEX}\nparent {HEX}\nauthor a <a> 1 +0\ncommitter b <b> 77 +0\n\nm");
        let commit = commit(text.as_bytes(), Kind::Sha1).unwrap();
        assert_eq!((commit.parents.len(), commit.time), (2, 77));
        assert_eq!(commit.tree.to_string(), HEX);
    }

    #[test]
    fn a_commit_without_a_readable_date_has_time_zero() {
        for tail in ["", "author x\n", "author x\ncommitter y <y> never\n\n", "committer y <y> 5 +0\n"] {
            let text = format!("tree {HEX}\n{tail}");
            assert_eq!(commit(text.as_bytes(), Kind::Sha1).unwrap().time, 0, "{tail:?}");
        }
    }

    #[test]
    fn a_commit_cut_inside_its_ids_is_none_never_a_panic() {
        let text = format!("tree {HEX}\nparent {HEX}\n");
        for end in 0..text.len() {
            let cut = &text.as_bytes()[..end];
            let whole_tree = end > 45;
            assert_eq!(commit(cut, Kind::Sha1).is_some(), whole_tree && end <= 46 + 6, "cut at {end}");
        }
    }

    #[test]
    fn tree_modes_are_read_as_git_reads_them() {
        let mut bytes = Vec::new();
        for mode in ["040000", "40000", "100644", "100666", "120000", "160000", "0"] {
            bytes.extend_from_slice(mode.as_bytes());
            bytes.extend_from_slice(b" name\0");
            bytes.extend_from_slice(&[7; 20]);
        }
        let kinds: Vec<_> = tree(&bytes, Kind::Sha1).map(|entry| entry.unwrap().0).collect();
        assert_eq!(format!("{kinds:?}"), "[Tree, Tree, Blob, Blob, Blob, Link, Link]");
    }

    #[test]
    fn a_tree_cut_anywhere_ends_in_an_error_never_a_panic() {
        let bytes = b"100644 a\0aaaaaaaaaaaaaaaaaaaa";
        for end in 1..bytes.len() {
            let entries: Vec<_> = tree(&bytes[..end], Kind::Sha1).collect();
            assert_eq!(entries, [Err(BadTree)], "cut at {end}");
        }
        assert_eq!(tree(b"", Kind::Sha1).count(), 0);
    }
}
