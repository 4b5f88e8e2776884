//! The upstream room against small servers of its own, on loopback.
#![expect(clippy::unwrap_used, reason = "a test that can't go on must fail")]

mod dead_connections;
mod egress;
mod fake;
mod health;
mod redirects;
mod relay;
mod secrets;
mod send;
mod tls;
