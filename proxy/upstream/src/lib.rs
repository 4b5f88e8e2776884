//! Room: upstream.
