//! The room where clients arrive: listeners and TLS, the doors that turn a
//! request into a `Destination`, the caps and deadlines on clients, dispatch to
//! the mounts, and the one log line and metric per request.
//!
//! It knows no protocol, keeps nothing and never speaks to an upstream.

mod activity;
mod admission;
mod ask;
mod connection;
mod counted;
mod dispatch;
mod door;
mod limits;
mod listen;
mod listener;
mod metrics;
mod panic;
mod plaintext;
mod report;
mod socket;
#[cfg(test)]
mod tests;
mod tls;
mod watched;

use std::sync::Arc;

use tidegate_http::RoomService;

pub use admission::Admission;
pub use dispatch::Site;
pub use door::{Door, Entry, ForwardDoor, PrefixDoor};
pub use limits::Limits;
pub use listen::{Listen, ListenList, PemSource, Tls, TlsFiles};
pub use listener::{ListenError, Listener, Serving};
pub use metrics::Metrics;
pub use panic::caught;
pub use tls::{TlsError, TlsIdentity};

/// The whole front as one service: reported, its panics caught, dispatched.
pub fn app(site: Site, metrics: &Arc<Metrics>) -> RoomService {
    report::reported(caught(site.service()), Arc::clone(metrics))
}
