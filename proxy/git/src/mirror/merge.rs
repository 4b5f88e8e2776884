//! What a new ref table means for the next snapshot. Pure.
//!
//! A ref whose object we don't hold keeps its old value, or stays out if it is
//! new; whatever an eager ref leaves behind becomes a retained tip.

use std::collections::{HashMap, HashSet};

use gix_hash::ObjectId;

use super::{Retained, Unfetched};
use crate::refs::{Builder, Head, Ref, RefTable, is_eager};

/// The refs that can be published, and those that can't.
pub(super) fn refs(
    old: Option<&RefTable>,
    new: &RefTable,
    is_here: impl Fn(&ObjectId) -> bool,
) -> (RefTable, Vec<Unfetched>) {
    let mut table = Builder::new(new.hash());
    let mut unfetched = Vec::new();
    let mut kept: HashMap<&[u8], Option<&Ref>> = HashMap::new();
    for entry in new.refs() {
        if !is_eager(&entry.name) || is_here(&entry.oid) {
            table.push(entry.clone());
            continue;
        }
        unfetched.push(Unfetched { name: entry.name.to_vec(), oid: entry.oid });
        let before = old.and_then(|old| old.get(&entry.name));
        kept.insert(&entry.name, before);
        if let Some(before) = before {
            table.push(before.clone());
        }
    }
    if let Some(head) = new.head() {
        let settled = settle_head(old, head, &kept, &is_here);
        if let (Some(oid), true) = (head.oid(), settled.as_ref() != Some(head)) {
            unfetched.push(Unfetched { name: b"HEAD".to_vec(), oid });
        }
        if let Some(head) = settled {
            table.head(head);
        }
    }
    // Both tables were sorted and checked, and one entry came of each name.
    let table = table.build().unwrap_or_else(|_| RefTable::empty(new.hash()));
    (table, unfetched)
}

fn settle_head(
    old: Option<&RefTable>,
    head: &Head,
    kept: &HashMap<&[u8], Option<&Ref>>,
    is_here: &impl Fn(&ObjectId) -> bool,
) -> Option<Head> {
    let Some(oid) = head.oid() else { return Some(head.clone()) };
    let target = head.target();
    match target.and_then(|target| kept.get(target.as_bytes())) {
        // HEAD stays on its ref, which stays where it was.
        Some(Some(before)) => Some(Head::Attached { target: before.name.clone(), oid: before.oid }),
        Some(None) => None,
        None if is_here(&oid) => Some(head.clone()),
        None => old.and_then(RefTable::head).cloned(),
    }
}

/// The tips to retain after `old` gave way to `new`; the soonest to expire go first when over `most`.
pub(super) fn retained(
    old: Option<(&RefTable, &[Retained])>,
    new: &RefTable,
    now: u64,
    until: u64,
    most: usize,
) -> Vec<Retained> {
    let Some((refs, before)) = old else { return Vec::new() };
    let tips: HashSet<ObjectId> = new.eager_tips().into_iter().collect();
    let left = refs.eager_tips().into_iter().map(|oid| Retained { oid, until });
    latest(before.iter().copied().filter(|kept| kept.until > now).chain(left), most)
        .into_iter()
        .filter(|kept| !tips.contains(&kept.oid))
        .collect::<Vec<_>>()
}

/// Each object once, with its latest time; at most `most`, the latest of all; in a fixed order.
pub(super) fn latest(all: impl Iterator<Item = Retained>, most: usize) -> Vec<Retained> {
    let mut until: HashMap<ObjectId, u64> = HashMap::new();
    for kept in all {
        let entry = until.entry(kept.oid).or_default();
        *entry = kept.until.max(*entry);
    }
    let mut list: Vec<_> = until.into_iter().map(|(oid, until)| Retained { oid, until }).collect();
    list.sort_unstable_by(|a, b| b.until.cmp(&a.until).then_with(|| a.oid.cmp(&b.oid)));
    list.truncate(most);
    list.sort_unstable_by_key(|kept| kept.oid);
    list
}

#[cfg(test)]
mod tests {
    use gix_hash::Kind;

    use super::*;
    use crate::refs::RefName;

    fn oid(n: u8) -> ObjectId {
        ObjectId::from_bytes_or_panic(&[n; 20])
    }

    fn name(text: &str) -> RefName {
        RefName::new(text.as_bytes()).unwrap()
    }

    fn table(head: impl Into<Option<Head>>, refs: &[(&str, u8)]) -> RefTable {
        let mut builder = Builder::new(Kind::Sha1);
        for (text, n) in refs {
            builder.push(Ref { name: name(text), oid: oid(*n), peeled: None, symref: None });
        }
        if let Some(head) = head.into() {
            builder.head(head);
        }
        builder.build().unwrap()
    }

    fn attached(text: &str, n: u8) -> Head {
        Head::Attached { target: name(text), oid: oid(n) }
    }

    const MAIN: &str = "refs/heads/main";
    const NEW: &str = "refs/heads/new";

    #[test]
    fn a_ref_without_its_object_keeps_its_old_value_and_is_named() {
        let old = table(attached(MAIN, 1), &[(MAIN, 1)]);
        let new = table(attached(MAIN, 2), &[(MAIN, 2), (NEW, 3), ("refs/pull/1/head", 4)]);
        let (merged, unfetched) = refs(Some(&old), &new, |oid| oid.as_slice()[0] == 1);
        assert_eq!(merged, table(attached(MAIN, 1), &[(MAIN, 1), ("refs/pull/1/head", 4)]));
        let names: Vec<_> = unfetched.iter().map(|ref_| ref_.name.as_slice()).collect();
        assert_eq!(names, [&b"refs/heads/main"[..], b"refs/heads/new", b"HEAD"]);
    }

    #[test]
    fn a_head_that_leads_nowhere_we_hold_is_no_head() {
        let new = table(attached(MAIN, 2), &[(MAIN, 2)]);
        let (merged, unfetched) = refs(None, &new, |_| false);
        assert_eq!((merged.head(), merged.refs().len(), unfetched.len()), (None, 0, 2));
        let unborn = table(Some(Head::Unborn { target: name(MAIN) }), &[]);
        assert_eq!(refs(None, &unborn, |_| false), (unborn.clone(), vec![]));
        let hidden = table(attached("refs/hidden/x", 5), &[]);
        assert_eq!(refs(None, &hidden, |_| true).0, hidden);
    }

    #[test]
    fn moved_and_deleted_tips_are_retained_and_returning_ones_are_not() {
        let old = table(attached(MAIN, 1), &[(MAIN, 1), (NEW, 2), ("refs/pull/1/head", 9)]);
        let new = table(attached(MAIN, 3), &[(MAIN, 3)]);
        let kept = retained(Some((&old, &[])), &new, 0, 10, 100);
        assert_eq!(kept, [Retained { oid: oid(1), until: 10 }, Retained { oid: oid(2), until: 10 }]);
        let back = table(attached(MAIN, 1), &[(MAIN, 1)]);
        let kept = retained(Some((&new, &kept)), &back, 5, 20, 100);
        assert_eq!(kept, [Retained { oid: oid(2), until: 10 }, Retained { oid: oid(3), until: 20 }]);
        assert_eq!(retained(Some((&back, &kept)), &back, 10, 30, 100), [Retained { oid: oid(3), until: 20 }]);
    }

    #[test]
    fn over_the_cap_the_oldest_retained_tips_go_first() {
        let many = (1..=9).map(|n| Retained { oid: oid(n), until: u64::from(n) });
        let kept = latest(many, 3);
        assert_eq!(kept.iter().map(|kept| kept.until).collect::<Vec<_>>(), [7, 8, 9]);
    }
}
