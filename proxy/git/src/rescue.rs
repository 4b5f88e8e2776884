//! Which answer a client gets for which error: one table.
//!
//! Stock git prints a `text/plain` body behind `remote: ` for any status but
//! 401; go-git shows the status. So the reason is in the status and the advice
//! in the text. Where git expects an `ERR` packet it gets one.

use http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE};
use tidegate_http::{Body, Outcome, challenge, full, retry_after, text};

use crate::{
    error::{Error, Sick},
    respond::{NO_CACHE, RESULT},
    wire::pkt,
};

/// Turns an error into the answer.
pub(crate) fn rescue(error: &Error) -> Response<Body> {
    if let Error::Internal(why) = error {
        tracing::error!(%why, "git request failed");
    }
    if error.speaks_git() {
        return err_packet(error);
    }
    match error {
        Error::Refused { upstream, refusal } => {
            let said = refusal.text.trim();
            let words = if said.is_empty() { format!("tidegate: {error}") } else { said.to_owned() };
            let response = text(refusal.status, Outcome::Denied, &words);
            if refusal.status == StatusCode::UNAUTHORIZED {
                challenge(response, upstream.as_str())
            } else {
                response
            }
        }
        Error::Metered { wait, .. } => retry_after(
            text(StatusCode::TOO_MANY_REQUESTS, Outcome::Denied, &format!("tidegate: {error}")),
            *wait,
        ),
        Error::Challenge { upstream } => challenge(
            text(StatusCode::UNAUTHORIZED, Outcome::Denied, &format!("tidegate: {error}")),
            upstream.as_str(),
        ),
        Error::Away { sick, .. } => away(error, sick),
        Error::BadRequest(_) | Error::Cut(_) => local(StatusCode::BAD_REQUEST, error),
        Error::TooLarge => local(StatusCode::PAYLOAD_TOO_LARGE, error),
        Error::Busy { wait } => retry_after(local(StatusCode::SERVICE_UNAVAILABLE, error), *wait),
        Error::Scheme => local(StatusCode::FORBIDDEN, error),
        _ => local(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}

/// The same bytes whether the repository is cached, uncached or absent: the
/// text names the upstream's state only.
fn away(error: &Error, sick: &Sick) -> Response<Body> {
    let status = if sick.limited { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::SERVICE_UNAVAILABLE };
    let response = text(status, Outcome::Error, &format!("tidegate: {error}"));
    match sick.wait {
        Some(wait) => retry_after(response, wait),
        None => response,
    }
}

fn local(status: StatusCode, error: &Error) -> Response<Body> {
    text(status, Outcome::Error, &format!("tidegate: {error}"))
}

fn err_packet(error: &Error) -> Response<Body> {
    let mut body = Vec::new();
    pkt::error(&mut body, &error.to_string());
    let mut response = Response::new(full(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(RESULT));
    headers.extend(NO_CACHE.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))));
    response.extensions_mut().insert(tidegate_http::Served::new(Outcome::Error));
    response
}
