//! Calling a room.

use std::{future::Future, pin::Pin};

use futures_util::FutureExt as _;
use http::{Request, Response};
use tidegate_http::{Body, RoomService};
use tower::ServiceExt as _;

/// Calls a service that can't fail. No async block: the
/// compiler can't see that one which holds the erased future is `Send`.
pub(crate) fn ask(
    service: RoomService,
    request: Request<Body>,
) -> Pin<Box<dyn Future<Output = Response<Body>> + Send>> {
    Box::pin(service.oneshot(request).map(|answer| answer.unwrap_or_else(|never| match never {})))
}
