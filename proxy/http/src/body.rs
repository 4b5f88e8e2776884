//! The one body type that crosses rooms, and the ways to make one.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::{BodyExt as _, Empty, Full, StreamBody, combinators::UnsyncBoxBody};
use tokio::time::{Instant, Sleep, sleep_until};

/// Anything that may break while a body streams.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The one body type that crosses room boundaries.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// A body without bytes.
pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A body that is all there already.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body made of chunks that arrive over time. An error cuts the connection:
/// the client never takes what it has for a complete answer.
pub fn stream<S>(chunks: S) -> Body
where
    S: Stream<Item = Result<Bytes, BoxError>> + Send + 'static,
{
    StreamBody::new(chunks.map(|chunk| chunk.map(Frame::data))).boxed_unsync()
}

/// Reads a body to its end, or fails once it passes `limit` bytes.
pub async fn collect<B>(body: B, limit: usize) -> Result<Bytes, BoxError>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut body = std::pin::pin!(body);
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(Into::into)?.into_data() else { continue };
        if first.len() + rest.len() + data.len() > limit {
            return Err(format!("the body is longer than {limit} bytes").into());
        }
        // One chunk is by far the usual case and isn't copied.
        if first.is_empty() && rest.is_empty() {
            first = data;
        } else {
            if rest.is_empty() {
                rest.extend_from_slice(&std::mem::take(&mut first));
            }
            rest.extend_from_slice(&data);
        }
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

/// A body gave no byte for too long.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the body stalled for {} s", .after.as_secs())]
pub struct Stalled {
    /// How long nothing came.
    pub after: Duration,
}

/// Fails with [`Stalled`] when `body` gives nothing for `after`.
///
/// Only the time spent waiting for the body counts, not the time its reader
/// takes.
pub fn stall_after(body: Body, after: Duration) -> Body {
    StallBody { body, after, sleep: None }.boxed_unsync()
}

struct StallBody {
    body: Body,
    after: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl HttpBody for StallBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.sleep = None;
            return Poll::Ready(frame);
        }
        let after = self.after;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + after)));
        ready!(sleep.as_mut().poll(context));
        Poll::Ready(Some(Err(Stalled { after }.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_over_the_limit_is_refused() {
        assert!(collect(full("12345"), 4).await.is_err());
        assert_eq!(collect(full("12345"), 5).await.unwrap(), "12345");
    }

    #[tokio::test]
    async fn chunks_are_joined_in_order() {
        let chunks = ["ab", "", "cd"].map(|text| Ok(Bytes::from(text)));
        assert_eq!(collect(stream(futures_util::stream::iter(chunks)), 9).await.unwrap(), "abcd");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_body_is_cut_after_its_deadline() {
        let body = stall_after(stream(futures_util::stream::pending()), Duration::from_secs(60));
        let started = Instant::now();
        let error = collect(body, 9).await.unwrap_err();
        assert!(error.is::<Stalled>());
        assert_eq!(started.elapsed(), Duration::from_secs(60));
    }
}
