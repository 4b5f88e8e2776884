//! How a room is attached to the front.

use std::convert::Infallible;

use http::{Request, Response, request::Parts};
use tower::util::BoxCloneSyncService;

use crate::Body;

/// A room's whole service, erased so that the front never sees its type.
pub type RoomService = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// A protocol, as the front sees it.
///
/// The request carries a `Destination`, a [`crate::Client`] and the original
/// URI in its extensions. Mounts are asked in order; the first that claims a
/// request answers it.
#[derive(Clone)]
pub struct Mount {
    /// Used in logs, metrics and the `protocol` label: `git`, `oci`.
    pub name: &'static str,
    /// Whether this protocol recognises the request as its own.
    pub claims: fn(&Parts) -> bool,
    /// Answers it. Errors are already responses here.
    pub service: RoomService,
}
