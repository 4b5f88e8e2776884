//! Header fields that belong to one connection and are never passed on
//! (RFC 9110 section 7.6.1), and the user agent.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE,
        EXPECT, HOST, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
        RANGE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, USER_AGENT,
    },
};

/// Removes what belongs to one connection, the fields that `Connection` names
/// among it.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in [CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE]
    {
        headers.remove(name);
    }
    for name in ["keep-alive", "proxy-connection"] {
        headers.remove(name);
    }
}

/// Makes a client's or room's headers fit to be sent upstream: nothing of the
/// other connection, no `Host` (ours is made from the URL), no `Expect` (our
/// server side has answered it).
pub(crate) fn prepare(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    headers.remove(HOST);
    headers.remove(EXPECT);
}

/// Keeps only what is known to hold no secret: for a redirect to another origin.
/// Forges and registries take tokens in headers of their own names.
pub(crate) fn keep_harmless(headers: &mut HeaderMap) {
    const HARMLESS: [HeaderName; 12] = [
        ACCEPT,
        ACCEPT_ENCODING,
        ACCEPT_LANGUAGE,
        CONTENT_ENCODING,
        CONTENT_LENGTH,
        CONTENT_TYPE,
        IF_MODIFIED_SINCE,
        IF_NONE_MATCH,
        IF_RANGE,
        RANGE,
        USER_AGENT,
        HeaderName::from_static("git-protocol"),
    ];
    let named: Vec<HeaderName> = headers.keys().filter(|name| !HARMLESS.contains(name)).cloned().collect();
    for name in named {
        headers.remove(name);
    }
}

/// Sets our user agent where there is none, or where a git client must be seen
/// and `git/` isn't what it starts with.
pub(crate) fn set_user_agent(headers: &mut HeaderMap, ours: &HeaderValue, must_be_git: bool) {
    let present = headers.get(USER_AGENT);
    let is_git = present.is_some_and(|agent| agent.as_bytes().starts_with(b"git/"));
    if present.is_none() || (must_be_git && !is_git) {
        headers.insert(USER_AGENT, ours.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_connection_names_goes_with_it() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Secret"),
            ("connection", "x-other"),
            ("x-secret", "1"),
            ("x-other", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authorization", "Basic eA=="),
            ("content-encoding", "gzip"),
            ("x-kept", "1"),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        strip_hop_by_hop(&mut headers);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["content-encoding", "x-kept"]);
    }

    #[test]
    fn a_forge_always_sees_a_git_client() {
        let ours = HeaderValue::from_static("git/2.0 tidegate");
        for (theirs, git, seen) in [
            (None, true, "git/2.0 tidegate"),
            (Some("go-git/5.x"), true, "git/2.0 tidegate"),
            (Some("git/2.39.0"), true, "git/2.39.0"),
            (Some("crane/1"), false, "crane/1"),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(theirs) = theirs {
                headers.insert(USER_AGENT, HeaderValue::from_static(theirs));
            }
            set_user_agent(&mut headers, &ours, git);
            assert_eq!(headers[USER_AGENT], seen);
        }
    }
}
