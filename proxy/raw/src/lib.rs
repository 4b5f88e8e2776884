//! Room: raw.
