//! Watches a body go by, without hiding its length or its end.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tidegate_http::{Body, BoxError};

/// Calls `on_frame` for every frame of `body`. It is dropped, with all it holds,
/// as soon as the body ends or fails.
pub(crate) fn watch(body: Body, on_frame: impl FnMut() + Send + 'static) -> Body {
    Watched { body, on_frame: Some(on_frame) }.boxed_unsync()
}

struct Watched<F> {
    body: Body,
    on_frame: Option<F>,
}

// The body is boxed and the closure is never pinned.
impl<F> Unpin for Watched<F> {}

impl<F: FnMut()> HttpBody for Watched<F> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match (&frame, &mut self.on_frame) {
            (Some(Ok(_)), Some(on_frame)) => on_frame(),
            _ => self.on_frame = None,
        }
        if self.body.is_end_stream() {
            self.on_frame = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
