//! Room: front.
