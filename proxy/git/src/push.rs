//! Pushes: passed through untouched, with the pusher's own credential. What
//! was pushed is looked for when the next reader comes.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use std::{
    pin::Pin,
    task::{Context, Poll},
};
use tidegate_http::{Body, BoxError, Outcome, Served};
use tidegate_upstream::{Client, Kind};

use crate::{endpoint::Verb, error::Error, git::Git, live::Live, refresh::Who};

/// Passes a push, or the advertisement before it, through.
pub(crate) async fn push(
    git: &Arc<Git>,
    request: Request<Body>,
    who: &Who,
    client: &Client,
    verb: Verb,
) -> Result<Response<Body>, Error> {
    let mut response = git.relay(request, who, client, Kind::Push).await?;
    response.extensions_mut().insert(Served { detail: Some("relay"), ..Served::new(Outcome::Relay) });
    if verb == Verb::Call
        && response.status().is_success()
        && let Some(live) = git.known(&who.asked.content)
    {
        // Now, and again when the upstream has said its last word: the refs
        // may move at any time in between.
        live.expire();
        return Ok(response.map(|body| ExpireAfter { body, live }.boxed_unsync()));
    }
    Ok(response)
}

struct ExpireAfter {
    body: Body,
    live: Arc<Live>,
}

impl HttpBody for ExpireAfter {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if polled.is_ready() {
            // Before the client can see that it is over.
            self.live.expire();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ExpireAfter {
    fn drop(&mut self) {
        self.live.expire();
    }
}
