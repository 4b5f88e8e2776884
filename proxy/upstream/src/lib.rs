//! Speaking outward: which upstreams there are, where they really live, and one
//! [`Client`] for each with its guard, budget, breaker, retry and pool.
//!
//! No protocol lives here, and nothing is cached: an [`Ask`] goes out, an answer
//! or an [`Error`] that an operator can act on comes back. [`Client::relay`] is
//! the uncached way through for what has no room of its own.

mod ask;
mod body;
mod breaker;
mod budget;
mod client;
mod config;
mod connect;
mod egress;
mod error;
mod exchange;
mod guard;
mod headers;
mod known;
mod limits;
mod locate;
mod metrics;
mod redirect;
mod secret;
mod tls;
mod transport;
mod upstreams;

pub use ask::{Ask, AskBody, Kind, Priority, Redirected, Trust};
pub use client::Client;
pub use config::{
    Access, AddressFamily, BudgetConfig, CredentialConfig, NamesConfig, OnNotFound, Problem, ProxyUrl,
    UpstreamConfig,
};
pub use egress::ProxyEnvironment;
pub use error::{Cause, Error};
pub use known::builtin;
pub use limits::pause_asked;
pub use secret::{SecretError, SecretSource, SecretText};
pub use upstreams::{Deadlines, Settings, Upstreams};
