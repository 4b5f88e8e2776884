//! From a request to the room that answers it: doors, the list of allowed
//! upstreams, tidegate's own paths, mounts.

use std::sync::Arc;

use http::{Method, Request, Response, StatusCode, request::Parts};
use tidegate_http::{Body, Mount, Outcome, RoomService, local, text};
use tidegate_name::{Destination, Upstream};
use tower::service_fn;

use crate::ask::ask;
use crate::door::{Door, Entry};

/// What the front needs to know of the rest of the house.
pub struct Site {
    /// The ways in, asked in order.
    pub doors: Vec<Box<dyn Door>>,
    /// The protocols, asked in order.
    pub mounts: Vec<Mount>,
    /// Whether an upstream is configured.
    pub allowed: Box<dyn Fn(&Upstream) -> bool + Send + Sync>,
    /// Whether requests can be answered; a text that says why not.
    pub ready: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
}

/// Left in a response's extensions: the mount that answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Protocol(pub(crate) &'static str);

/// Left in a response's extensions: who was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Asked(pub(crate) Destination);

impl Site {
    /// The service that answers every request of the listeners.
    pub(crate) fn service(self) -> RoomService {
        let site = Arc::new(self);
        RoomService::new(service_fn(move |request| {
            let site = Arc::clone(&site);
            async move { Ok(site.answer(request).await) }
        }))
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        let destination = match self.enter(&parts) {
            Entry::For(destination) => destination,
            Entry::Own => return self.own(&parts),
            Entry::Refused(status, words) => return local(status, &words),
            Entry::NotMine => return local(StatusCode::BAD_REQUEST, "the request names no upstream"),
        };
        let mut response = if (self.allowed)(&destination.upstream) {
            parts.extensions.insert(destination.clone());
            let uri = parts.uri.clone();
            parts.extensions.insert(uri);
            self.mounted(Request::from_parts(parts, body)).await
        } else {
            unknown(&destination.upstream)
        };
        response.extensions_mut().insert(Asked(destination));
        response
    }

    fn enter(&self, parts: &Parts) -> Entry {
        let mut entries = self.doors.iter().map(|door| door.enter(parts));
        entries.find(|entry| *entry != Entry::NotMine).unwrap_or(Entry::NotMine)
    }

    async fn mounted(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let Some(mount) = self.mounts.iter().find(|mount| (mount.claims)(&parts)) else {
            return local(StatusCode::NOT_FOUND, "no room of this tidegate answers this path");
        };
        let mut response = ask(mount.service.clone(), Request::from_parts(parts, body)).await;
        response.extensions_mut().insert(Protocol(mount.name));
        response
    }

    fn own(&self, parts: &Parts) -> Response<Body> {
        let known = matches!(parts.uri.path(), "/-/healthz" | "/-/readyz");
        if known && !matches!(parts.method, Method::GET | Method::HEAD) {
            return local(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered here");
        }
        match parts.uri.path() {
            "/-/healthz" => local(StatusCode::OK, "ok"),
            "/-/readyz" => match (self.ready)() {
                Ok(()) => local(StatusCode::OK, "ready"),
                Err(why) => local(StatusCode::SERVICE_UNAVAILABLE, &format!("not ready: {why}")),
            },
            _ => local(StatusCode::NOT_FOUND, "tidegate has nothing at this path"),
        }
    }
}

fn unknown(upstream: &Upstream) -> Response<Body> {
    if upstream.is_address() {
        let words = format!("{upstream} is an address; only host names and configured addresses are served");
        return local(StatusCode::BAD_REQUEST, &words);
    }
    let words = format!(
        "{upstream}, the first segment of the path, is not an upstream of this tidegate. To allow it, add this to `upstreams` in its \
         configuration file (`builtin_upstreams: true` keeps the built-in ones):\n  - host: {upstream}"
    );
    text(StatusCode::FORBIDDEN, Outcome::Denied, &words)
}
