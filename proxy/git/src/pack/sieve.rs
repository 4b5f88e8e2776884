//! A filter as a walk applies it: what is shown, and how deep.
//!
//! Parts of a combination each judge on their own and must all agree, so they
//! come down to the lowest limit, the least depth and the types all allow.

use gix_object::Kind;

use super::Filter;

/// What a filter lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sieve {
    pub(super) commits: bool,
    pub(super) trees: bool,
    pub(super) blobs: bool,
    /// Blobs of this size and more stay out.
    pub(super) blob_limit: Option<u64>,
    /// Trees and blobs this deep and deeper stay out; a commit's root tree is at 0.
    pub(super) depth: Option<u32>,
}

impl Sieve {
    pub(super) fn new(filter: Option<&Filter>) -> Self {
        let mut sieve = Self { commits: true, trees: true, blobs: true, blob_limit: None, depth: None };
        if let Some(filter) = filter {
            sieve.tighten(filter);
        }
        sieve
    }

    fn tighten(&mut self, filter: &Filter) {
        match filter {
            Filter::BlobNone => self.blobs = false,
            Filter::BlobLimit(limit) => {
                self.blob_limit = Some(self.blob_limit.map_or(*limit, |now| now.min(*limit)));
            }
            Filter::Tree(depth) => self.depth = Some(self.depth.map_or(*depth, |now| now.min(*depth))),
            Filter::ObjectType(kind) => {
                self.commits &= *kind == Kind::Commit;
                self.trees &= *kind == Kind::Tree;
                self.blobs &= *kind == Kind::Blob;
            }
            Filter::Combine(parts) => parts.iter().for_each(|part| self.tighten(part)),
        }
    }

    /// Whether any object at `depth` may be shown.
    pub(super) fn reaches(&self, depth: u32) -> bool {
        (self.trees || self.blobs) && self.depth.is_none_or(|limit| depth < limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_combination_lets_through_what_all_parts_let_through() {
        let parts = vec![Filter::BlobLimit(9), Filter::Tree(4), Filter::BlobLimit(5), Filter::Tree(2)];
        let sieve = Sieve::new(Some(&Filter::Combine(parts)));
        assert_eq!((sieve.blob_limit, sieve.depth), (Some(5), Some(2)));
        assert!(sieve.commits && sieve.reaches(1) && !sieve.reaches(2));
    }

    #[test]
    fn two_types_at_once_leave_nothing() {
        let parts = vec![Filter::ObjectType(Kind::Tree), Filter::ObjectType(Kind::Commit)];
        let sieve = Sieve::new(Some(&Filter::Combine(parts)));
        assert!(!sieve.commits && !sieve.trees && !sieve.blobs && !sieve.reaches(0));
    }
}
