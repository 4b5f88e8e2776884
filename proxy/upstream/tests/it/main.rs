//! The upstream room against small servers of its own, on loopback.

mod dead_connections;
mod egress;
mod fake;
mod health;
mod redirects;
mod relay;
mod secrets;
mod send;
mod tls;
