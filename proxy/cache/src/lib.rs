//! How a request is answered: who may read ([`Grant`]), how fresh a reference
//! is, collapsing of equal requests, the refresh schedule.
mod inspect;
pub use inspect::{Answer, Done, Inspect};
