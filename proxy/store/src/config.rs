//! The `store` table.

use bytesize::ByteSize;
use serde::Deserialize;

/// How much may be kept, and where.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)] // unknown keys are collected by the loader, with their paths
pub struct StoreConfig {
    /// The most that content and mirrors may take on disk.
    pub disk_limit: ByteSize,
    /// The most that small content may take in memory; 0 turns the tier off.
    pub memory_limit: ByteSize,
    /// Content up to this size is also kept in memory.
    pub memory_entry: ByteSize,
    /// Free space that is always left to others on the file system; the larger
    /// of 1 GiB and 5 % (but never more than a quarter) when not given.
    pub reserve: Option<ByteSize>,
    /// Bytes after which the disk plays full, for tests of exactly that.
    #[doc(hidden)]
    #[serde(skip)]
    pub write_limit: Option<u64>,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            disk_limit: ByteSize::gib(50),
            memory_limit: ByteSize::mib(256),
            memory_entry: ByteSize::kib(64),
            reserve: None,
            write_limit: None,
        }
    }
}

impl StoreConfig {
    /// Everything wrong with this table, in the operator's own words.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.disk_limit < ByteSize::mib(1) {
            problems.push(format!("store.disk_limit is {}; the least allowed is 1 MiB", self.disk_limit));
        }
        if self.memory_entry > ByteSize::mib(1) {
            problems.push(format!("store.memory_entry is {}; the most allowed is 1 MiB", self.memory_entry));
        }
        if self.memory_limit.as_u64() > 0 && self.memory_entry > self.memory_limit {
            problems.push("store.memory_entry must not be larger than store.memory_limit".into());
        }
        problems
    }

    /// The free space to leave on a file system of `total` bytes.
    pub(crate) fn reserve_of(&self, total: u64) -> u64 {
        match self.reserve {
            Some(reserve) => reserve.as_u64(),
            // A volume of a few GiB would otherwise never hold anything.
            None => (total / 20).max(ByteSize::gib(1).as_u64()).min(total / 4),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_sound() {
        assert_eq!(StoreConfig::default().problems(), Vec::<String>::new());
    }

    #[test]
    fn every_problem_is_reported_at_once() {
        let config = StoreConfig {
            disk_limit: ByteSize::kib(4),
            memory_limit: ByteSize::kib(1),
            memory_entry: ByteSize::gib(1),
            ..StoreConfig::default()
        };
        assert_eq!(
            config.problems(),
            [
                "store.disk_limit is 4.0 KiB; the least allowed is 1 MiB",
                "store.memory_entry is 1.0 GiB; the most allowed is 1 MiB",
                "store.memory_entry must not be larger than store.memory_limit",
            ]
        );
    }

    #[test]
    fn a_small_volume_keeps_most_of_its_room() {
        let config = StoreConfig::default();
        let gib = ByteSize::gib(1).as_u64();
        assert_eq!(config.reserve_of(100 * gib), 5 * gib);
        assert_eq!(config.reserve_of(10 * gib), gib);
        assert_eq!(config.reserve_of(gib), gib / 4);
    }
}
