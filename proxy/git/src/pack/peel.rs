//! From a name to what it stands for: through tags of tags to a commit, tree or blob.

use gix_hash::oid;
use gix_object::Kind;

use super::{Error, Reader, View, object};

/// What is at the end of a chain of tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// A node of the graph.
    Commit(u32),
    /// A commit here that no root reaches.
    Stray,
    /// The number of a tree.
    Tree(u32),
    /// The number of a blob.
    Blob(u32),
}

/// Follows names to their ends; keeps its buffer between them.
pub(super) struct Peeler<'a> {
    view: View<'a>,
    reader: Reader<'a>,
    buffer: Vec<u8>,
}

impl<'a> Peeler<'a> {
    pub(super) fn new(view: View<'a>) -> Self {
        Self { view, reader: Reader::new(view.set, 0), buffer: Vec::new() }
    }

    /// The end of `id`, and the tags on the way pushed to `tags`; None if `id` itself isn't here.
    pub(super) fn peel(&mut self, id: &oid, tags: &mut Vec<u32>) -> Result<Option<End>, Error> {
        let set = self.view.set;
        let Some(mut number) = set.number(id) else { return Ok(None) };
        loop {
            if let Some(node) = self.view.graph.node(number) {
                return Ok(Some(End::Commit(node)));
            }
            // Only tags need their bytes, and a blob may be huge.
            match self.reader.kind(number)? {
                Kind::Commit => return Ok(Some(End::Stray)),
                Kind::Tree => return Ok(Some(End::Tree(number))),
                Kind::Blob => return Ok(Some(End::Blob(number))),
                Kind::Tag => {}
            }
            self.reader.read_as(number, Kind::Tag, &mut self.buffer)?;
            tags.push(number);
            let target = object::tag_target(&self.buffer, set.hash()).ok_or_else(|| Error::Broken {
                oid: set.oid(number).to_owned(),
                what: "not a tag git would take",
            })?;
            number = set.require(&target)?;
        }
    }
}
