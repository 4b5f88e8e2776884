//! Room: git.
pub mod pack;
