//! A bug in a room ends one answer, not the server.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use http::{Request, StatusCode};
use tidegate_http::{Body, Outcome, RoomService, text};
use tower::service_fn;

use crate::ask::ask;

/// Turns a panic of `inner` into a 500. A panic of its body is caught where
/// the body is counted, and cuts the connection.
pub fn caught(inner: RoomService) -> RoomService {
    RoomService::new(service_fn(move |request: Request<Body>| {
        let inner = inner.clone();
        async move {
            let answer = AssertUnwindSafe(ask(inner, request)).catch_unwind();
            Ok(match answer.await {
                Ok(response) => response,
                // The panic hook has printed it.
                Err(_) => text(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    Outcome::Error,
                    "tidegate failed on this request; its log says where",
                ),
            })
        }
    }))
}

#[cfg(test)]
mod tests {
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn a_panic_becomes_a_500_with_words() {
        let broken = RoomService::new(service_fn(|_| async { panic!("a bug") }));
        let response = caught(broken).oneshot(Request::new(tidegate_http::empty())).await.unwrap();
        assert_eq!(response.status(), 500);
        let words = tidegate_http::collect(response.into_body(), 999).await.unwrap();
        assert!(words.starts_with(b"tidegate failed"));
    }
}
