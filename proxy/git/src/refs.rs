//! The refs of one repository: names are bytes, sorted, each once.
//!
//! A table is immutable and cheap to copy parts of, because names are shared.
//! Refs come in two classes (see [`is_eager`]) that are observed apart and
//! published together. Nothing here knows objects or files: a ref name is never
//! a path, and that `a` and `a/b` were refs at the same time is nobody's error.

use std::{borrow::Borrow, cmp::Ordering, collections::HashSet, fmt, ops::Deref, sync::Arc};

use gix_hash::{Kind, ObjectId};

/// The longest ref name we take, in bytes.
pub const LONGEST_NAME: usize = 4_096;

/// The full name of a ref, like `refs/heads/main`: bytes, checked when made.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RefName(Arc<[u8]>);

/// A name that can't be a ref's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a ref name")]
pub struct BadRefName(String);

impl RefName {
    /// Checks what the wire needs: no control bytes, no spaces, no `^`, under
    /// `refs/`, of bounded length. Anything else an upstream calls a ref is one.
    pub fn new(name: &[u8]) -> Result<Self, BadRefName> {
        let fits = name.len() <= LONGEST_NAME
            && name.strip_prefix(b"refs/").is_some_and(|rest| !rest.is_empty())
            && !name.iter().any(|byte| byte.is_ascii_control() || matches!(byte, b' ' | b'^'));
        if fits {
            Ok(Self(name.into()))
        } else {
            let cut = &name[..name.len().min(120)];
            Err(BadRefName(cut.escape_ascii().to_string()))
        }
    }

    /// The bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Deref for RefName {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for RefName {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(f)
    }
}

impl fmt::Debug for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}

/// Whether a ref belongs to the class that is refreshed in the background:
/// HEAD, branches and tags. Everything else is only listed.
pub fn is_eager(name: &[u8]) -> bool {
    name == b"HEAD" || name.starts_with(b"refs/heads/") || name.starts_with(b"refs/tags/")
}

/// One ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ref {
    /// Its full name.
    pub name: RefName,
    /// What it points at.
    pub oid: ObjectId,
    /// What is inside, if that is a tag object: peeled to the end.
    pub peeled: Option<ObjectId>,
    /// The ref it follows, if it is symbolic and the upstream says so.
    pub symref: Option<RefName>,
}

/// Where HEAD is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// On a ref, which need not be in the table: the upstream may hide it.
    Attached {
        /// The ref.
        target: RefName,
        /// Its object.
        oid: ObjectId,
    },
    /// On a ref that doesn't exist.
    Unborn {
        /// The ref.
        target: RefName,
    },
    /// On an object, or on a ref the upstream doesn't name.
    Detached {
        /// The object.
        oid: ObjectId,
    },
}

impl Head {
    /// The object HEAD leads to.
    pub fn oid(&self) -> Option<ObjectId> {
        match self {
            Self::Attached { oid, .. } | Self::Detached { oid } => Some(*oid),
            Self::Unborn { .. } => None,
        }
    }

    /// The ref HEAD is on.
    pub fn target(&self) -> Option<&RefName> {
        match self {
            Self::Attached { target, .. } | Self::Unborn { target } => Some(target),
            Self::Detached { .. } => None,
        }
    }
}

/// All refs of a repository, or those of one look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefTable {
    hash: Kind,
    head: Option<Head>,
    refs: Vec<Ref>,
}

/// Refs that make no table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRefs {
    /// A name that isn't one.
    #[error(transparent)]
    Name(#[from] BadRefName),
    /// Two refs of one name.
    #[error("the ref {0} is listed twice")]
    Twice(String),
    /// An object id of another hash than the table's.
    #[error("the ref {0} has an object id of another hash")]
    Hash(String),
}

/// Collects refs in any order and makes a [`RefTable`] of them.
#[derive(Debug)]
pub struct Builder {
    table: RefTable,
    symrefs: Vec<(RefName, RefName)>,
}

impl Builder {
    /// Starts with no refs and no HEAD.
    pub fn new(hash: Kind) -> Self {
        Self { table: RefTable::empty(hash), symrefs: Vec::new() }
    }

    /// Adds a ref.
    pub fn push(&mut self, entry: Ref) {
        self.table.refs.push(entry);
    }

    /// Sets HEAD.
    pub fn head(&mut self, head: Head) {
        self.table.head = Some(head);
    }

    /// The ref added last, to complete it.
    pub(crate) fn last_mut(&mut self) -> Option<&mut Ref> {
        self.table.refs.last_mut()
    }

    /// Marks the ref `name` as symbolic, if it is there in the end.
    pub(crate) fn symref(&mut self, name: RefName, target: RefName) {
        self.symrefs.push((name, target));
    }

    /// Sorts and checks.
    pub fn build(self) -> Result<RefTable, BadRefs> {
        let mut table = self.table;
        if !table.refs.is_sorted_by(|a, b| a.name < b.name) {
            table.refs.sort_by(|a, b| a.name.cmp(&b.name));
        }
        for pair in table.refs.windows(2) {
            if pair[0].name == pair[1].name {
                return Err(BadRefs::Twice(pair[0].name.to_string()));
            }
        }
        let alien = |oid: &ObjectId| oid.kind() != table.hash;
        for entry in &table.refs {
            if alien(&entry.oid) || entry.peeled.as_ref().is_some_and(alien) {
                return Err(BadRefs::Hash(entry.name.to_string()));
            }
        }
        if table.head.as_ref().and_then(Head::oid).as_ref().is_some_and(alien) {
            return Err(BadRefs::Hash("HEAD".to_owned()));
        }
        for (name, target) in self.symrefs {
            if let Ok(at) = table.refs.binary_search_by(|entry| entry.name.cmp(&name)) {
                table.refs[at].symref = Some(target);
            }
        }
        Ok(table)
    }
}

/// What changed from one table to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff<'a> {
    /// Refs that are new.
    pub created: Vec<&'a Ref>,
    /// Refs that point elsewhere: before, after.
    pub moved: Vec<(&'a Ref, &'a Ref)>,
    /// Refs that are gone.
    pub deleted: Vec<&'a Ref>,
    /// Whether HEAD is elsewhere, by name or by object.
    pub head: bool,
}

impl Diff<'_> {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.created.is_empty() && self.moved.is_empty() && self.deleted.is_empty() && !self.head
    }
}

impl RefTable {
    /// The table of a repository without refs and without HEAD.
    pub fn empty(hash: Kind) -> Self {
        Self { hash, head: None, refs: Vec::new() }
    }

    /// The hash that names this repository's objects.
    pub fn hash(&self) -> Kind {
        self.hash
    }

    /// Where HEAD is; `None` if the upstream shows none.
    pub fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    /// All refs but HEAD, sorted by name.
    pub fn refs(&self) -> &[Ref] {
        &self.refs
    }

    /// The ref of this name.
    pub fn get(&self, name: &[u8]) -> Option<&Ref> {
        self.refs.binary_search_by(|entry| entry.name.as_bytes().cmp(name)).ok().map(|at| &self.refs[at])
    }

    /// What a name leads to; `HEAD` is a name too.
    pub fn resolve(&self, name: &[u8]) -> Option<ObjectId> {
        if name == b"HEAD" {
            self.head.as_ref().and_then(Head::oid)
        } else {
            self.get(name).map(|entry| entry.oid)
        }
    }

    /// The refs whose name starts with `prefix`, sorted.
    pub fn by_prefix(&self, prefix: &[u8]) -> &[Ref] {
        let start = self.refs.partition_point(|entry| entry.name.as_bytes() < prefix);
        let found = &self.refs[start..];
        &found[..found.partition_point(|entry| entry.name.starts_with(prefix))]
    }

    /// Every object a ref or HEAD points at, each once. Tags are not peeled.
    pub fn tips(&self) -> Vec<ObjectId> {
        self.distinct(|_| true)
    }

    /// The same, of HEAD, branches and tags alone.
    pub fn eager_tips(&self) -> Vec<ObjectId> {
        self.distinct(is_eager)
    }

    fn distinct(&self, wanted: impl Fn(&[u8]) -> bool) -> Vec<ObjectId> {
        let refs = self.refs.iter().filter(|entry| wanted(&entry.name)).map(|entry| entry.oid);
        let mut seen = HashSet::new();
        self.head.iter().filter_map(Head::oid).chain(refs).filter(|oid| seen.insert(*oid)).collect()
    }

    /// A table with HEAD, branches and tags from `eager` and all else from `self`.
    ///
    /// Both have to be of the same hash; of another, `eager` is returned alone.
    #[must_use]
    pub fn merge_listed(&self, eager: &Self) -> Self {
        let mut merged = Self {
            hash: eager.hash,
            head: eager.head.clone(),
            refs: eager.refs.iter().filter(|entry| is_eager(&entry.name)).cloned().collect(),
        };
        if self.hash == eager.hash {
            merged.refs.extend(self.refs.iter().filter(|entry| !is_eager(&entry.name)).cloned());
            // Two sorted runs: the stable sort finds and merges them.
            merged.refs.sort_by(|a, b| a.name.cmp(&b.name));
        }
        merged
    }

    /// What changed from `self` to `new`. A ref that only gained or lost its
    /// symref target counts as moved.
    pub fn diff<'a>(&'a self, new: &'a Self) -> Diff<'a> {
        let mut diff = Diff { head: self.head != new.head, ..Diff::default() };
        let (mut before, mut after) = (self.refs.iter().peekable(), new.refs.iter().peekable());
        loop {
            let order = match (before.peek(), after.peek()) {
                (None, None) => return diff,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.name.cmp(&new.name),
            };
            match order {
                Ordering::Less => diff.deleted.extend(before.next()),
                Ordering::Greater => diff.created.extend(after.next()),
                Ordering::Equal => diff.moved.extend(before.next().zip(after.next()).filter(|(a, b)| a != b)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn oid(n: u8) -> ObjectId {
        ObjectId::from_bytes_or_panic(&[n; 20])
    }

    fn name(text: &str) -> RefName {
        RefName::new(text.as_bytes()).unwrap()
    }

    fn table(refs: &[(&str, u8)]) -> RefTable {
        let mut builder = Builder::new(Kind::Sha1);
        for (text, n) in refs {
            builder.push(Ref { name: name(text), oid: oid(*n), peeled: None, symref: None });
        }
        builder.build().unwrap()
    }

    fn names(refs: &[Ref]) -> Vec<String> {
        refs.iter().map(|entry| entry.name.to_string()).collect()
    }

    #[test]
    fn odd_names_are_names_and_dangerous_ones_are_not() {
        for good in [
            &b"refs/heads/a#b"[..],
            b"refs/heads/%25",
            b"refs/heads/\xff\xfe",
            "refs/heads/zażółć".as_bytes(),
            b"refs/heads/@",
            b"refs/heads/-dash",
            b"refs/heads/HEAD",
            b"refs/heads/foo{1",
            b"refs/heads/refs/heads/main",
            b"refs/x",
        ] {
            assert_eq!(RefName::new(good).unwrap().as_bytes(), good);
        }
        let long = [&b"refs/heads/"[..], &[b'x'; LONGEST_NAME]].concat();
        for bad in [
            &b""[..],
            b"HEAD",
            b"refs/",
            b"heads/a",
            b"refs/heads/a b",
            b"refs/heads/a\n",
            b"refs/heads/a\0",
            b"refs/tags/a^{}",
            &long,
        ] {
            assert!(RefName::new(bad).is_err(), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn a_table_is_sorted_by_bytes_and_refuses_a_name_twice() {
        let sorted =
            table(&[("refs/heads/b", 1), ("refs/heads/a/b", 2), ("refs/heads/a", 3), ("refs/heads/B", 4)]);
        assert_eq!(names(sorted.refs()), ["refs/heads/B", "refs/heads/a", "refs/heads/a/b", "refs/heads/b"]);
        assert_eq!(sorted.get(b"refs/heads/a").unwrap().oid, oid(3));
        assert_eq!(sorted.get(b"refs/heads/c"), None);
        let mut builder = Builder::new(Kind::Sha1);
        for n in [1, 2] {
            builder.push(Ref { name: name("refs/heads/a"), oid: oid(n), peeled: None, symref: None });
        }
        assert_eq!(builder.build(), Err(BadRefs::Twice("refs/heads/a".into())));
    }

    #[test]
    fn listed_refs_survive_an_eager_look_and_eager_ones_are_replaced() {
        let old =
            table(&[("refs/heads/gone", 1), ("refs/pull/1/head", 2), ("refs/tags/v1", 3), ("refs/a", 9)]);
        let eager = table(&[("refs/heads/new", 4), ("refs/tags/v1", 5)]);
        let merged = old.merge_listed(&eager);
        assert_eq!(names(merged.refs()), ["refs/a", "refs/heads/new", "refs/pull/1/head", "refs/tags/v1"]);
        assert_eq!(merged.resolve(b"refs/tags/v1"), Some(oid(5)));
    }

    #[test]
    fn a_branch_that_became_a_folder_is_one_deletion_and_one_creation() {
        let (old, new) = (
            table(&[("refs/heads/a", 1), ("refs/heads/z", 1)]),
            table(&[("refs/heads/a/b", 1), ("refs/heads/z", 2)]),
        );
        let diff = old.diff(&new);
        assert_eq!(diff.deleted, [&old.refs()[0]]);
        assert_eq!(diff.created, [&new.refs()[0]]);
        assert_eq!(diff.moved, [(&old.refs()[1], &new.refs()[1])]);
        assert!(!diff.head && !diff.is_empty() && old.diff(&old).is_empty());
    }

    #[test]
    fn a_switched_head_is_a_change_though_no_ref_moved() {
        let mut builder = Builder::new(Kind::Sha1);
        builder.head(Head::Attached { target: name("refs/heads/a"), oid: oid(1) });
        let old = builder.build().unwrap();
        let mut builder = Builder::new(Kind::Sha1);
        builder.head(Head::Attached { target: name("refs/heads/b"), oid: oid(1) });
        let new = builder.build().unwrap();
        assert!(old.diff(&new).head);
        assert_eq!(new.tips(), [oid(1)]);
    }

    proptest! {
        #[test]
        fn a_prefix_finds_what_a_scan_finds(
            words in prop::collection::btree_set("[ab/]{1,6}", 0..20),
            prefix in "refs/[ab/]{0,3}",
        ) {
            let refs: Vec<(String, u8)> = words.iter().map(|word| (format!("refs/{word}"), 1)).collect();
            let refs: Vec<(&str, u8)> = refs.iter().map(|(name, n)| (name.as_str(), *n)).collect();
            let table = table(&refs);
            let scan: Vec<String> =
                names(table.refs()).into_iter().filter(|name| name.starts_with(&prefix)).collect();
            prop_assert_eq!(names(table.by_prefix(prefix.as_bytes())), scan);
        }
    }
}
