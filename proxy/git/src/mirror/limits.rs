//! How much of anything a mirror takes from an upstream.

/// The caps of one mirror; the defaults suit the largest public repositories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one pack.
    pub pack_bytes: u64,
    /// Objects in one pack.
    pub pack_objects: u32,
    /// Bytes of one object, inflated.
    pub object_bytes: u64,
    /// Bytes of all objects of one pack, inflated and with deltas applied.
    pub inflated_bytes: u64,
    /// Deltas on top of one another.
    pub delta_depth: u32,
    /// References of one repository.
    pub refs: usize,
    /// Wants accepted beyond the refs, kept as roots.
    pub roots: usize,
    /// Commits in the boundary.
    pub boundary: usize,
    /// Threads that index one pack.
    pub index_threads: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            pack_bytes: 4 << 30,
            pack_objects: 50_000_000,
            object_bytes: 2 << 30,
            inflated_bytes: 1 << 40,
            delta_depth: 4_096,
            refs: 2_000_000,
            roots: 10_000,
            boundary: 1_000_000,
            index_threads: 2,
        }
    }
}
