//! From a plan to objects: the trees and blobs of its commits that the client lacks.

use std::collections::HashMap;

use gix_object::Kind;

use super::{
    Error, Plan, View,
    bits::Bits,
    object::{self, EntryKind},
    sieve::Sieve,
    trees::TreeReader,
};

/// Memory for unpacked trees.
const CACHE: usize = 32 << 20;

/// The objects of one pack.
pub(super) struct Selection {
    /// Each once, in no order that matters.
    pub(super) objects: Vec<u32>,
    /// The same as a set.
    pub(super) chosen: Bits,
    /// Proven at the client: the plan's bases, their trees and blobs.
    pub(super) theirs: Bits,
}

/// Selects the objects of `plan`.
pub(super) fn select(view: &View<'_>, plan: &Plan) -> Result<Selection, Error> {
    let total = view.set.total();
    let mut selector = Selector {
        view: *view,
        trees: TreeReader::new(view.set, CACHE),
        sieve: Sieve::new(plan.filter.as_ref()),
        selection: Selection { objects: Vec::new(), chosen: Bits::new(total), theirs: Bits::new(total) },
        entered: Entered::Once(Bits::new(total)),
    };
    if selector.sieve.depth.is_some() {
        selector.entered = Entered::Nearest(HashMap::new());
    }
    selector.mark_theirs(plan)?;
    selector.take_named(plan)?;
    selector.take_commits(plan)?;
    selector.take_tags_along(plan)?;
    Ok(selector.selection)
}

struct Selector<'a> {
    view: View<'a>,
    trees: TreeReader<'a>,
    sieve: Sieve,
    selection: Selection,
    entered: Entered,
}

/// Which trees the walk has been in.
enum Entered {
    /// Once is enough.
    Once(Bits),
    /// With a depth filter a tree is entered again when it turns up nearer to a root.
    Nearest(HashMap<u32, u32>),
}

impl Entered {
    fn enter(&mut self, tree: u32, depth: u32) -> bool {
        match self {
            Self::Once(bits) => bits.insert(tree),
            Self::Nearest(depths) => {
                let nearest = depths.entry(tree).or_insert(u32::MAX);
                let nearer = depth < *nearest;
                *nearest = depth.min(*nearest);
                nearer
            }
        }
    }
}

impl Selection {
    fn take(&mut self, number: u32) {
        if self.chosen.insert(number) {
            self.objects.push(number);
        }
    }
}

impl Selector<'_> {
    fn mark_theirs(&mut self, plan: &Plan) -> Result<(), Error> {
        for &node in &plan.bases {
            self.selection.theirs.insert(self.view.graph.object(node));
            // With no tree to look into there is nothing to leave out.
            if self.sieve.reaches(0) || !plan.trees.is_empty() {
                self.trees.mark(self.view.graph.tree(node), &mut self.selection.theirs)?;
            }
        }
        Ok(())
    }

    /// What was wanted by name is sent, whatever the filter and the client's haves.
    fn take_named(&mut self, plan: &Plan) -> Result<(), Error> {
        plan.tags
            .iter()
            .chain(&plan.blobs)
            .chain(&plan.given)
            .for_each(|&number| self.selection.take(number));
        for &tree in &plan.trees {
            self.selection.take(tree);
            // Its content counts as at the top.
            let mut stack = Vec::new();
            self.open_tree(tree, 0, &mut stack)?;
            self.walk(stack)?;
        }
        Ok(())
    }

    fn take_commits(&mut self, plan: &Plan) -> Result<(), Error> {
        for &node in &plan.commits {
            if self.sieve.commits {
                self.selection.take(self.view.graph.object(node));
            }
            self.walk(vec![(self.view.graph.tree(node), 0)])?;
        }
        Ok(())
    }

    fn take_tags_along(&mut self, plan: &Plan) -> Result<(), Error> {
        let set = self.view.set;
        let mut buffer = Vec::new();
        for (tag, peeled) in &plan.include {
            if !set.number(peeled).is_some_and(|number| self.selection.chosen.holds(number)) {
                continue;
            }
            let mut next = *tag;
            while next != *peeled {
                let number = set.require(&next)?;
                self.trees.objects().read_as(number, Kind::Tag, &mut buffer)?;
                self.selection.take(number);
                next = object::tag_target(&buffer, set.hash())
                    .ok_or(Error::Broken { oid: next, what: "not a tag git would take" })?;
            }
        }
        Ok(())
    }

    /// Walks down from (tree, depth) pairs.
    fn walk(&mut self, mut stack: Vec<(u32, u32)>) -> Result<(), Error> {
        while let Some((tree, depth)) = stack.pop() {
            if self.selection.theirs.holds(tree)
                || !self.sieve.reaches(depth)
                || !self.entered.enter(tree, depth)
            {
                continue;
            }
            if self.sieve.trees {
                self.selection.take(tree);
            }
            self.open_tree(tree, depth + 1, &mut stack)?;
        }
        Ok(())
    }

    /// Takes a tree's blobs and stacks its trees, all of which are at `depth`.
    fn open_tree(&mut self, tree: u32, depth: u32, stack: &mut Vec<(u32, u32)>) -> Result<(), Error> {
        if !self.sieve.reaches(depth) {
            return Ok(());
        }
        let mut measured = Vec::new();
        let (sieve, selection) = (self.sieve, &mut self.selection);
        self.trees.entries(tree, |kind, number| match kind {
            _ if selection.theirs.holds(number) => {}
            EntryKind::Tree => stack.push((number, depth)),
            EntryKind::Blob if sieve.blobs && sieve.blob_limit.is_none() => selection.take(number),
            EntryKind::Blob if sieve.blobs && !selection.chosen.holds(number) => measured.push(number),
            _ => {}
        })?;
        for blob in measured {
            let limit = sieve.blob_limit.unwrap_or(u64::MAX);
            if self.trees.objects().size(blob)? < limit {
                self.selection.take(blob);
            }
        }
        Ok(())
    }
}
