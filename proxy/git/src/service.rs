//! The room's service: one request from its recognition to its answer.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use gix_hash::Kind as Hash;
use http::{Request, Response};
use tidegate_http::{Body, Mount, Outcome, Served};
use tidegate_name::Destination;
use tidegate_upstream::Kind;
use tokio::time::Instant;
use tower::{service_fn, util::BoxCloneSyncService};

use crate::{
    advertise::advertise,
    endpoint::{Endpoint, Service, Verb},
    error::Error,
    fetch::Fetch,
    git::{Admitted, Git},
    intake,
    list::list,
    push::push,
    rescue::rescue,
    respond,
    speak::Scope,
    wire::{
        RequestError,
        fetch::{self, FetchRequest},
        ls_refs,
        protocol::Version,
        request::{self, Command},
    },
};

/// Bodies longer than this are parsed off the async threads.
const PARSE_INLINE: usize = 256 << 10;

/// What an upload-pack request asks.
enum Call {
    /// Nothing: a client tries out its credential.
    Nothing,
    List(ls_refs::Request),
    Fetch(FetchRequest),
}

impl Git {
    /// The room as the front sees it.
    pub fn mount(self: &Arc<Self>) -> Mount {
        let git = Arc::clone(self);
        let service = service_fn(move |request| {
            let git = Arc::clone(&git);
            async move { Ok::<_, Infallible>(git.answer(request).await) }
        });
        Mount { name: "git", claims: Endpoint::claims, service: BoxCloneSyncService::new(service) }
    }

    async fn answer(self: Arc<Self>, request: Request<Body>) -> Response<Body> {
        self.try_answer(request).await.unwrap_or_else(|error| rescue(&error))
    }

    async fn try_answer(self: &Arc<Self>, request: Request<Body>) -> Result<Response<Body>, Error> {
        let since = Instant::now();
        let (head, body) = request.into_parts();
        let Some(destination) = head.extensions.get::<Destination>().cloned() else {
            return Err(Error::internal("a request without a destination"));
        };
        let Some(endpoint) = Endpoint::of(&head.method, &destination) else {
            return Err(Error::internal("a request that is no git request"));
        };
        let (who, client) = self.who(&head, &endpoint)?;
        if endpoint.service == Service::ReceivePack {
            let request = Request::from_parts(head, body);
            return push(self, request, &who, &client, endpoint.verb).await;
        }
        let version = Version::from_header(head.headers.get("git-protocol").map(http::HeaderValue::as_bytes));
        let lists = endpoint.verb == Verb::Advertise && version != Version::V2;
        let reads = if lists { Scope::All } else { Scope::Verdict };
        let admitted = self.admit(who, Arc::clone(&client), reads).await?;
        if admitted.grant.is_none() {
            // Its upstream judges every request; nothing of it is kept.
            let request = Request::from_parts(head, body);
            let kind = if endpoint.verb == Verb::Advertise { Kind::Refs } else { Kind::Fetch };
            let mut response = self.relay(request, &admitted.who, &client, kind).await?;
            response.extensions_mut().insert(Served { detail: Some("relay"), ..Served::new(Outcome::Relay) });
            return Ok(response);
        }
        match endpoint.verb {
            Verb::Advertise => advertise(self, &admitted, version, since).await,
            Verb::Call => {
                let body = intake::read(&head.headers, body, &self.caps).await?;
                self.call(&admitted, version, body, since).await
            }
        }
    }

    async fn call(
        self: &Arc<Self>,
        admitted: &Admitted,
        version: Version,
        body: Bytes,
        since: Instant,
    ) -> Result<Response<Body>, Error> {
        let call = if body.len() > PARSE_INLINE {
            let parsed = tokio::task::spawn_blocking(move || parse(&body, version)).await;
            parsed.map_err(Error::internal)?
        } else {
            parse(&body, version)
        };
        match call.map_err(|error| Error::BadFetch(error.to_string()))? {
            Call::Nothing => Ok(respond::whole(respond::RESULT, "", Served::new(Outcome::Bypass))),
            Call::List(request) => list(self, admitted, &request, since).await,
            Call::Fetch(request) => Fetch { git: self, admitted, version, since }.answer(request).await,
        }
    }
}

fn parse(body: &[u8], version: Version) -> Result<Call, RequestError> {
    if version != Version::V2 {
        return Ok(fetch::parse_v0(body, Hash::Sha1)?.map_or(Call::Nothing, Call::Fetch));
    }
    let Some(mut request) = request::parse(body, Hash::Sha1)? else { return Ok(Call::Nothing) };
    match request.command {
        Command::LsRefs => Ok(Call::List(ls_refs::Request::parse(&mut request.args)?)),
        Command::Fetch => Ok(Call::Fetch(fetch::parse_v2(&mut request.args, request.agent, Hash::Sha1)?)),
    }
}
