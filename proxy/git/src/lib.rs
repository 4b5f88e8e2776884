//! Room: git.
