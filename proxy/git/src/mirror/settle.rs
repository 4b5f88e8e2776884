//! Finds the most of an update that can be published: refs, retained tips,
//! roots and a boundary such that everything reachable is here.

use std::{collections::HashSet, sync::Arc};

use gix_hash::ObjectId;

use super::{
    Error, Mirror, ROOT_LIFETIME, Retained, Snapshot, Unfetched, Update, connect, lock, merge, unix,
};
use crate::{
    pack::{self, Graph, PackSet},
    refs::RefTable,
};

/// New tips looked at one by one when the whole isn't connected.
const MOST_SUSPECTS: usize = 64;

/// An update, beside what was before it and the packs that are there with it.
pub(super) struct Settling<'a> {
    pub(super) mirror: &'a Mirror,
    pub(super) update: &'a Update,
    pub(super) old: Option<&'a Arc<Snapshot>>,
    pub(super) set: &'a PackSet,
}

/// What the next snapshot names.
pub(super) struct Merged {
    pub(super) refs: RefTable,
    pub(super) unfetched: Vec<Unfetched>,
    pub(super) retained: Vec<Retained>,
    pub(super) roots: Vec<Retained>,
}

/// The next snapshot.
pub(super) struct Draft {
    pub(super) merged: Merged,
    pub(super) boundary: HashSet<ObjectId>,
    pub(super) graph: Graph,
}

/// How it ended.
pub(super) enum Settled<'a> {
    /// This snapshot says all of it already.
    Same(&'a Arc<Snapshot>, Merged),
    /// There is something new.
    New(Box<Draft>),
}

impl<'a> Settling<'a> {
    /// Finds out; an error if nothing of the update can be taken over.
    pub(super) fn run(&self) -> Result<Settled<'a>, Error> {
        let none = HashSet::new();
        if let Some(old) = self.old
            && std::ptr::eq(Arc::as_ptr(&old.packs), self.set)
        {
            // Without new objects the boundary stays, and often all of it: not worth a walk.
            let merged = self.merge(&none);
            if merged.says_what(old) {
                return Ok(Settled::Same(old, merged));
            }
        }
        let before = self.old.map_or(&none, |old| &old.boundary);
        let found = connect::boundaries(self.set, before, &self.update.shallow, &self.update.unshallow)?;
        let missing = match self.draft(&found.narrowest, &none) {
            Ok(draft) => return Ok(self.settled(draft)),
            Err(pack::Error::Missing { oid }) => oid,
            Err(other) => return Err(other.into()),
        };
        // Parents may be here without being complete; then the wider boundary holds.
        match self.draft(&found.widest, &none) {
            Ok(draft) => return Ok(self.settled(draft)),
            Err(pack::Error::Missing { .. }) => {}
            Err(other) => return Err(other.into()),
        }
        let broken = self.broken_tips(&found.widest)?;
        let draft = match self.draft(&found.widest, &broken) {
            Ok(draft) if !broken.is_empty() => draft,
            Ok(_) | Err(pack::Error::Missing { .. }) => return Err(Error::Disconnected { oid: missing }),
            Err(other) => return Err(other.into()),
        };
        let gained = match self.old {
            Some(old) => !draft.says_what(old),
            None => !draft.merged.is_void(),
        };
        if gained { Ok(Settled::New(Box::new(draft))) } else { Err(Error::Disconnected { oid: missing }) }
    }

    fn settled(&self, draft: Draft) -> Settled<'a> {
        match self.old {
            Some(old) if draft.says_what(old) => Settled::Same(old, draft.merged),
            _ => Settled::New(Box::new(draft)),
        }
    }

    fn draft(&self, boundary: &HashSet<ObjectId>, broken: &HashSet<ObjectId>) -> Result<Draft, pack::Error> {
        let merged = self.merge(broken);
        let tips = connect::tips(&merged.refs, &merged.retained, &merged.roots);
        let graph = connect::connected(self.set, &tips, boundary, self.old.map(Arc::as_ref))?;
        Ok(Draft { merged, boundary: boundary.clone(), graph })
    }

    fn merge(&self, broken: &HashSet<ObjectId>) -> Merged {
        let Self { update, old, .. } = *self;
        let is_here = |oid: &ObjectId| self.set.contains(oid) && !broken.contains(oid);
        let (refs, unfetched) = merge::refs(old.map(|old| &*old.refs), &update.refs, is_here);
        let now = unix(update.now);
        let until = now.saturating_add(update.keep_superseded.as_secs());
        let before = old.map(|old| (&*old.refs, old.retained.as_slice()));
        let retained = merge::retained(before, &refs, now, until, update.keep_max);
        let roots = self.roots(update.roots.iter().copied().filter(is_here), now);
        Merged { refs, unfetched, retained, roots }
    }

    fn roots(&self, wanted: impl Iterator<Item = ObjectId>, now: u64) -> Vec<Retained> {
        let until = now.saturating_add(ROOT_LIFETIME.as_secs());
        let reads = lock(&self.mirror.reads);
        let before = self.old.map(|old| old.roots.as_slice()).unwrap_or_default();
        let before = before.iter().map(|root| Retained {
            until: reads.get(&root.oid).map_or(root.until, |&read| read.max(root.until)),
            ..*root
        });
        let wanted = wanted.map(|oid| Retained { oid, until });
        merge::latest(before.filter(|root| root.until > now).chain(wanted), self.mirror.limits.roots)
    }

    /// New tips that are here but aren't complete, each looked at alone.
    fn broken_tips(&self, boundary: &HashSet<ObjectId>) -> Result<HashSet<ObjectId>, Error> {
        let known = self.old.map(|old| connect::tips(&old.refs, &old.retained, &old.roots));
        let known: HashSet<ObjectId> = known.into_iter().flatten().collect();
        let tips = self.update.refs.eager_tips().into_iter().chain(self.update.roots.iter().copied());
        let suspects: HashSet<_> =
            tips.filter(|oid| self.set.contains(oid) && !known.contains(oid)).collect();
        let mut broken = HashSet::new();
        if suspects.len() > MOST_SUSPECTS {
            return Ok(broken);
        }
        for oid in suspects {
            match connect::connected(self.set, &[oid], boundary, self.old.map(Arc::as_ref)) {
                Ok(_) => {}
                Err(pack::Error::Missing { .. }) => {
                    broken.insert(oid);
                }
                Err(other) => return Err(other.into()),
            }
        }
        Ok(broken)
    }
}

impl Draft {
    fn says_what(&self, old: &Snapshot) -> bool {
        self.boundary == old.boundary && self.merged.says_what(old)
    }
}

impl Merged {
    /// Whether the snapshot says the same already, except for how long roots stay.
    fn says_what(&self, old: &Snapshot) -> bool {
        let oids = |list: &[Retained]| list.iter().map(|root| root.oid).collect::<Vec<_>>();
        self.refs == *old.refs && self.retained == old.retained && oids(&self.roots) == oids(&old.roots)
    }

    /// Whether nothing at all could be taken over.
    fn is_void(&self) -> bool {
        self.roots.is_empty() && self.refs.eager_tips().is_empty()
    }
}
