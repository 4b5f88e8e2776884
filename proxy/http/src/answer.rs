//! Short answers in plain text, the form in which every client prints them.

use http::{
    HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
};
use std::time::Duration;

use crate::{Body, Outcome, Served, full};

/// A `text/plain` answer that names what failed and what to do. The text ends
/// with a newline; stock git prints it behind `remote: `.
pub fn text(status: StatusCode, outcome: impl Into<Served>, words: &str) -> Response<Body> {
    let mut response = Response::new(full(format!("{}\n", words.trim_end())));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    // No charset: git compares the type exactly where it looks at it.
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.extensions_mut().insert(outcome.into());
    response
}

/// Adds `WWW-Authenticate: Basic realm="<host>"`, so that a client asks for or
/// sends the credential of that host.
pub fn challenge(mut response: Response<Body>, realm: &str) -> Response<Body> {
    let quoted: String = realm.chars().filter(|c| !matches!(c, '"' | '\\')).collect();
    if let Ok(value) = HeaderValue::from_str(&format!("Basic realm=\"{quoted}\"")) {
        response.headers_mut().insert(WWW_AUTHENTICATE, value);
    }
    response
}

/// Adds `Retry-After` in whole seconds, at least 1.
pub fn retry_after(mut response: Response<Body>, wait: Duration) -> Response<Body> {
    let seconds = wait.as_millis().div_ceil(1000).max(1);
    response.headers_mut().insert(
        RETRY_AFTER,
        HeaderValue::from_str(&seconds.to_string()).unwrap_or(HeaderValue::from_static("1")),
    );
    response
}

/// A text answer of tidegate's own, outside any cache.
pub fn local(status: StatusCode, words: &str) -> Response<Body> {
    text(status, Outcome::Bypass, words)
}
