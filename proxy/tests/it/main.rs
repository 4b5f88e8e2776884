//! The real program, started as an operator would and asked over the wire.
//!
//! What git clients see is in conformance/; here is what the house itself
//! promises: the command line, the configuration, listeners, reloads, the end.

#![expect(clippy::unwrap_used, reason = "a test that can't go on should stop")]

mod check;
mod program;
mod relay;
mod reload;
mod serve;
mod tls;
