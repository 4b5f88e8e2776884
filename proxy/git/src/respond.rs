//! The shape of git's HTTP answers: media types and cache headers, exactly as
//! `git http-backend` writes them.

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Response,
    header::{CACHE_CONTROL, CONTENT_TYPE, EXPIRES, PRAGMA},
};
use tidegate_cache::Lifetime;
use tidegate_http::{Body, Outcome, Served, full};

use crate::live::View;

/// The media type of a refs advertisement.
pub(crate) const ADVERTISEMENT: &str = "application/x-git-upload-pack-advertisement";
/// The media type of an upload-pack request.
pub(crate) const REQUEST: &str = "application/x-git-upload-pack-request";
/// The media type of an upload-pack answer.
pub(crate) const RESULT: &str = "application/x-git-upload-pack-result";

/// What git's own server sends, so that no cache in between keeps an answer.
pub(crate) const NO_CACHE: [(HeaderName, &str); 3] = [
    (EXPIRES, "Fri, 01 Jan 1980 00:00:00 GMT"),
    (PRAGMA, "no-cache"),
    (CACHE_CONTROL, "no-cache, max-age=0, must-revalidate"),
];

/// A git answer with this media type and body.
pub(crate) fn git(media_type: &'static str, body: Body, served: Served) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    for (name, value) in NO_CACHE {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response.extensions_mut().insert(served);
    response
}

/// A git answer that is all there already.
pub(crate) fn whole(media_type: &'static str, bytes: impl Into<Bytes>, served: Served) -> Response<Body> {
    git(media_type, full(bytes), served)
}

/// How an answer made from refs came to be, with its age.
pub(crate) fn served(view: &View, outcome: Outcome, lifetime: Lifetime) -> Served {
    let age = view.age.unwrap_or(Duration::ZERO);
    Served {
        outcome,
        age: view.age,
        ttl: matches!(outcome, Outcome::Hit | Outcome::Stale).then(|| lifetime.ttl(age)),
        detail: None,
        // Refs of a repository without a mirror are of no generation yet.
        generation: Some(view.snapshot.as_ref().map_or(0, |snapshot| snapshot.generation)),
    }
}
