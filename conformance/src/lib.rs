//! Black-box conformance.
