//! How a request is answered, for every protocol: who may read ([`Access`]
//! makes the [`Grant`] that every read takes), whether a reference is still
//! fresh ([`Lifetime`]), collapsing equal requests ([`Collapse`]), and when to
//! look at the upstream again ([`Pace`]).
//!
//! What is looked at and what is served is a protocol room's business.

mod access;
mod collapse;
mod config;
mod freshness;
mod inspect;
mod lending;
mod meter;
mod metrics;
mod pace;
mod trial;

pub use access::{Access, Asked, Away, Caller, Grant, Refusal, Renewal, Standing};
pub use collapse::Collapse;
pub use config::AccessConfig;
pub use freshness::{Freshness, Lifetime};
pub use inspect::{Answer, Done, Inspect};
pub use lending::Loan;
pub use metrics::{Metrics, RefreshResult};
pub use pace::Pace;
pub use trial::Trial;
