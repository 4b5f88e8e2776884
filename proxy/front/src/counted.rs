//! Bodies that count their bytes. The one that leaves also tells when it ended,
//! catches a panic of what it wraps, and knows whether it was complete.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tidegate_http::{Body, BoxError};

/// A request's body; the count is read by the log line.
pub(crate) struct CountedIn {
    pub(crate) body: Body,
    pub(crate) bytes: Arc<AtomicU64>,
}

impl HttpBody for CountedIn {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            self.bytes.fetch_add(length(frame), Ordering::Relaxed);
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

/// How an answer's body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All of it was handed to the connection.
    Complete,
    /// It broke, and the connection was cut.
    Broken,
    /// The client went away before the end.
    Abandoned,
}

/// An answer's body; calls `finish` once, when it is over.
pub(crate) struct CountedOut {
    body: Body,
    sent: u64,
    expected: Option<u64>,
    end: End,
    finish: Option<Box<dyn FnOnce(u64, End) + Send>>,
}

impl CountedOut {
    /// `expected` is how many bytes make it complete, where that is known.
    pub(crate) fn new(body: Body, expected: Option<u64>, finish: Box<dyn FnOnce(u64, End) + Send>) -> Self {
        Self { body, sent: 0, expected, end: End::Abandoned, finish: Some(finish) }
    }
}

impl HttpBody for CountedOut {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let body = &mut self.body;
        let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(body).poll_frame(context)));
        let frame = match polled {
            Ok(polled) => ready!(polled),
            Err(_) => Some(Err("a room failed while its answer was sent".into())),
        };
        match &frame {
            Some(Ok(frame)) => self.sent += length(frame),
            Some(Err(error)) => {
                tracing::warn!(error = %chain(&**error), "an answer broke off");
                self.end = End::Broken;
            }
            None => self.end = End::Complete,
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

impl Drop for CountedOut {
    fn drop(&mut self) {
        // hyper stops asking once it has all the bytes that were announced.
        let all = self.body.is_end_stream() || self.expected == Some(self.sent);
        let end = if self.end == End::Abandoned && all { End::Complete } else { self.end };
        if let Some(finish) = self.finish.take() {
            finish(self.sent, end);
        }
    }
}

fn length(frame: &Frame<Bytes>) -> u64 {
    frame.data_ref().map_or(0, |data| data.len() as u64)
}

/// An error with its causes, on one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
