//! Who may ask the admin listener what.
//!
//! On loopback everybody on the machine may, but no web page: a foreign `Host`
//! (DNS rebinding) or an `Origin` is refused. Beyond loopback everything but
//! `/metrics` needs the token.

use std::net::IpAddr;

use http::{
    HeaderMap, Response, StatusCode,
    header::{AUTHORIZATION, HOST, ORIGIN},
    request::Parts,
};
use tidegate_http::{Body, Outcome, challenge, text};
use tidegate_name::{Digest, Upstream};

/// The admin listener's guard.
pub struct Gate {
    /// Whether the listener is bound to a loopback address.
    pub loopback: bool,
    /// The token as it is now; it may change while we run.
    pub token: Box<dyn Fn() -> Option<String> + Send + Sync>,
}

impl Gate {
    /// Lets a request in, or answers it.
    pub(crate) fn admits(&self, request: &Parts) -> Result<(), Box<Response<Body>>> {
        let refuse = |status, words| Err(Box::new(text(status, Outcome::Denied, words)));
        if self.loopback && !host_is_loopback(request) {
            return refuse(
                StatusCode::FORBIDDEN,
                "this listener is local: ask it as localhost or by a loopback address",
            );
        }
        if request.headers.contains_key(ORIGIN) {
            return refuse(StatusCode::FORBIDDEN, "web pages may not ask this listener");
        }
        if request.uri.path() == "/metrics" {
            return Ok(());
        }
        match (self.token)() {
            Some(token) if bearer(&request.headers).is_some_and(|shown| equal(shown, token.as_bytes())) => {
                Ok(())
            }
            Some(_) => {
                let words = "the admin token is needed: Authorization: Bearer <admin_token>";
                Err(Box::new(challenge(
                    text(StatusCode::UNAUTHORIZED, Outcome::Denied, words),
                    "tidegate admin",
                )))
            }
            None if self.loopback => Ok(()),
            None => refuse(
                StatusCode::FORBIDDEN,
                "beyond loopback only /metrics is answered without `admin_token`; set it in the configuration",
            ),
        }
    }
}

fn host_is_loopback(request: &Parts) -> bool {
    let asked = request.uri.authority().map(http::uri::Authority::as_str);
    let asked = asked.or_else(|| request.headers.get(HOST).and_then(|value| value.to_str().ok()));
    let Some(Ok(name)) = asked.map(str::parse::<Upstream>) else { return false };
    name.host() == "localhost" || name.host().parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Compares digests, so that the time taken tells nothing of the secret.
fn equal(one: &[u8], other: &[u8]) -> bool {
    let (one, other) = (Digest::of(one), Digest::of(other));
    let pairs = one.as_bytes().iter().zip(other.as_bytes());
    pairs.fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}
