//! Walks over trees with an explicit stack: names come from outside, and nest as deep as they like.

use gix_object::Kind;

use super::{
    Error, PackSet, Reader,
    bits::Bits,
    object::{self, EntryKind},
};

/// Reads trees and resolves their entries.
pub(super) struct TreeReader<'a> {
    reader: Reader<'a>,
    buffer: Vec<u8>,
}

impl<'a> TreeReader<'a> {
    /// A walker with `budget` bytes for unpacked trees.
    pub(super) fn new(set: &'a PackSet, budget: usize) -> Self {
        Self { reader: Reader::new(set, budget), buffer: Vec::new() }
    }

    /// The reader, for objects other than trees.
    pub(super) fn objects(&mut self) -> &mut Reader<'a> {
        &mut self.reader
    }

    /// Calls `entry` for each tree and blob in `tree`; submodules aren't followed.
    pub(super) fn entries(&mut self, tree: u32, mut entry: impl FnMut(EntryKind, u32)) -> Result<(), Error> {
        let set = self.reader.set();
        self.reader.read_as(tree, Kind::Tree, &mut self.buffer)?;
        for item in object::tree(&self.buffer, set.hash()) {
            let (kind, id) = item.map_err(|_| Error::Broken {
                oid: set.oid(tree).to_owned(),
                what: "not a tree git would take",
            })?;
            if kind != EntryKind::Link {
                entry(kind, set.require(id)?);
            }
        }
        Ok(())
    }

    /// Puts `root` and everything under it into `seen`, not entering what is there already.
    pub(super) fn mark(&mut self, root: u32, seen: &mut Bits) -> Result<(), Error> {
        let mut stack = vec![root];
        while let Some(tree) = stack.pop() {
            if !seen.insert(tree) {
                continue;
            }
            self.entries(tree, |kind, number| match kind {
                EntryKind::Tree if !seen.holds(number) => stack.push(number),
                EntryKind::Blob => {
                    seen.insert(number);
                }
                _ => {}
            })?;
        }
        Ok(())
    }
}
