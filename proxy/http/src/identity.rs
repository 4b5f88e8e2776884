//! Who asks: the client's connection and the secrets it presents.

use std::{fmt, net::SocketAddr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{
    HeaderMap, HeaderValue,
    header::{AUTHORIZATION, COOKIE},
};

/// The connection a request came on. The front puts it into the request's
/// extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// The peer's address.
    pub address: SocketAddr,
    /// Whether the connection is TLS.
    pub encrypted: bool,
}

/// What a caller shows of itself, taken together: changing any part makes
/// another identity.
///
/// Its `Debug` never prints a secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Identity {
    authorization: Option<HeaderValue>,
    cookie: Option<HeaderValue>,
}

impl Identity {
    /// Shows nothing.
    pub fn anonymous() -> Self {
        Self::default()
    }

    /// Takes `Authorization` and `Cookie` from a request. Repeated cookie
    /// headers (HTTP/2 splits them) are joined as RFC 9113 8.2.3 says.
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let mut cookies = headers.get_all(COOKIE).iter();
        let cookie = cookies.next().map(|first| {
            cookies.fold(first.clone(), |joined, next| {
                let both = [joined.as_bytes(), b"; ", next.as_bytes()].concat();
                HeaderValue::from_bytes(&both).unwrap_or(joined)
            })
        });
        Self { authorization: headers.get(AUTHORIZATION).cloned().map(secret), cookie: cookie.map(secret) }
    }

    /// HTTP Basic with this user name and password. A value that no header
    /// can carry makes an identity that no upstream accepts.
    pub fn basic(username: &str, password: &str) -> Self {
        let encoded = STANDARD.encode(format!("{username}:{password}"));
        let value = HeaderValue::from_str(&format!("Basic {encoded}")).ok();
        Self { authorization: value.map(secret), cookie: None }
    }

    /// A bearer token; `None` if it has bytes that no header can carry.
    pub fn bearer(token: &str) -> Option<Self> {
        let value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
        Some(Self { authorization: Some(secret(value)), cookie: None })
    }

    /// Whether it shows nothing at all.
    pub fn is_anonymous(&self) -> bool {
        self.authorization.is_none() && self.cookie.is_none()
    }

    /// Whether its scheme authenticates the TCP connection, not the request
    /// (NTLM, Negotiate): such an identity can be neither pooled nor cached.
    pub fn binds_connection(&self) -> bool {
        let Some(value) = &self.authorization else { return false };
        let scheme = value.as_bytes().split(|byte| *byte == b' ').next().unwrap_or_default();
        scheme.eq_ignore_ascii_case(b"ntlm") || scheme.eq_ignore_ascii_case(b"negotiate")
    }

    /// Adds the identity to a request for the upstream.
    pub fn apply(&self, headers: &mut HeaderMap) {
        headers.remove(AUTHORIZATION);
        headers.remove(COOKIE);
        if let Some(value) = &self.authorization {
            headers.insert(AUTHORIZATION, value.clone());
        }
        if let Some(value) = &self.cookie {
            headers.insert(COOKIE, value.clone());
        }
    }

    /// The parts to hash, in fixed order: (authorization, cookie).
    pub fn parts(&self) -> [Option<&[u8]>; 2] {
        [
            self.authorization.as_ref().map(HeaderValue::as_bytes),
            self.cookie.as_ref().map(HeaderValue::as_bytes),
        ]
    }
}

fn secret(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_anonymous() { "anonymous" } else { "credential(redacted)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_printed() {
        let identity = Identity::basic("user", "hunter2");
        assert_eq!(format!("{identity:?}"), "credential(redacted)");
        let mut headers = HeaderMap::new();
        identity.apply(&mut headers);
        assert!(!format!("{headers:?}").contains("hunter2") && !format!("{headers:?}").contains("Basic"));
    }

    #[test]
    fn split_cookies_are_one_identity() {
        let mut split = HeaderMap::new();
        split.append(COOKIE, HeaderValue::from_static("a=1"));
        split.append(COOKIE, HeaderValue::from_static("b=2"));
        let mut joined = HeaderMap::new();
        joined.insert(COOKIE, HeaderValue::from_static("a=1; b=2"));
        assert_eq!(Identity::from_headers(&split), Identity::from_headers(&joined));
    }

    #[test]
    fn connection_schemes_are_known_in_any_case() {
        for (value, binds) in
            [("NTLM abc", true), ("negotiate x", true), ("Basic abc", false), ("Bearer n", false)]
        {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_static(value));
            assert_eq!(Identity::from_headers(&headers).binds_connection(), binds, "{value}");
        }
    }
}
