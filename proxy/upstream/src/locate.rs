//! Where an upstream really is, and which part of a URL says so.

use http::{Uri, uri::Authority};
use tidegate_name::Upstream;

use crate::config::UpstreamConfig;

/// An upstream's base URL: what its name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Base {
    https: bool,
    /// Host and, if it is written, port.
    place: Upstream,
    /// The path before all others, without a slash at its end.
    prefix: String,
}

impl Base {
    /// The configured `url`, else `https://<host>`.
    pub(crate) fn of(config: &UpstreamConfig) -> Result<Self, String> {
        let Some(url) = &config.url else {
            let place = config.host.parse().map_err(|error| format!("is no host name: {error}"))?;
            return Ok(Self { https: true, place, prefix: String::new() });
        };
        let (https, rest) = match url.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            _ => return Err("must start with https:// or http://".to_owned()),
        };
        if rest.contains(['?', '#']) {
            return Err("has a query or fragment; a base URL ends with its path".to_owned());
        }
        let at = rest.find('/').unwrap_or(rest.len());
        let place = rest[..at].parse().map_err(|error| {
            format!("has no usable host: {error}; user and password belong under `credential`")
        })?;
        let prefix = rest[at..].trim_end_matches('/').to_owned();
        tidegate_name::check_path(&prefix).map_err(|error| error.to_string())?;
        let base = Self { https, place, prefix };
        base.uri("/").map_err(str::to_owned)?;
        Ok(base)
    }

    /// The URL of what a client writes as `path_and_query` on the name.
    pub(crate) fn uri(&self, path_and_query: &str) -> Result<Uri, &'static str> {
        if !path_and_query.starts_with('/') {
            return Err("the path must start with a slash");
        }
        Uri::builder()
            .scheme(if self.https { "https" } else { "http" })
            .authority(self.place.as_str())
            .path_and_query(format!("{}{path_and_query}", self.prefix))
            .build()
            .map_err(|_| "the path or query has characters that no URL has")
    }

    /// The same for a URL on the upstream's public name, whose path may already
    /// carry the prefix.
    pub(crate) fn uri_of_public(&self, path_and_query: &str) -> Result<Uri, &'static str> {
        self.uri(self.strip_prefix(path_and_query))
    }

    /// What a client would write for this URL of the upstream.
    pub(crate) fn client_path(&self, uri: &Uri) -> String {
        self.strip_prefix(path_and_query(uri)).to_owned()
    }

    /// Name or address, without brackets.
    pub(crate) fn host(&self) -> &str {
        self.place.host()
    }

    /// Whether the URL is at this scheme, host and port.
    pub(crate) fn is_origin_of(&self, uri: &Uri) -> bool {
        let https = uri.scheme_str() == Some("https");
        let own = self.place.port().unwrap_or(if self.https { 443 } else { 80 });
        https == self.https && own == port(uri) && bare_host(uri).eq_ignore_ascii_case(self.host())
    }

    fn strip_prefix<'a>(&self, path_and_query: &'a str) -> &'a str {
        path_and_query
            .strip_prefix(self.prefix.as_str())
            .filter(|rest| rest.starts_with('/'))
            .unwrap_or(path_and_query)
    }
}

/// The host of an absolute URL, without brackets.
pub(crate) fn bare_host(uri: &Uri) -> &str {
    uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
}

/// Its port, written or implied.
pub(crate) fn port(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or(if uri.scheme_str() == Some("http") { 80 } else { 443 })
}

/// Whether two URLs share scheme, host and port.
pub(crate) fn same_origin(one: &Uri, other: &Uri) -> bool {
    one.scheme() == other.scheme()
        && port(one) == port(other)
        && bare_host(one).eq_ignore_ascii_case(bare_host(other))
}

/// The path and query of a URL as they go on the request line.
pub(crate) fn path_and_query(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str)
}

/// The URL's place as a configured name would be written: a port that the
/// scheme implies is left out.
pub(crate) fn place(uri: &Uri) -> Option<Upstream> {
    let authority = uri.authority().map(Authority::as_str)?;
    let implied = if uri.scheme_str() == Some("http") { ":80" } else { ":443" };
    authority.strip_suffix(implied).unwrap_or(authority).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(host: &str, url: Option<&str>) -> Result<Base, String> {
        Base::of(&UpstreamConfig { url: url.map(str::to_owned), ..UpstreamConfig::new(host) })
    }

    #[test]
    fn a_base_path_goes_before_every_path_and_comes_off_again() {
        let base = base("git.test", Some("http://10.0.0.5:3000/git/")).unwrap();
        let uri = base.uri("/org/app.git/info/refs?service=x").unwrap();
        assert_eq!(uri, "http://10.0.0.5:3000/git/org/app.git/info/refs?service=x");
        assert_eq!(base.client_path(&uri), "/org/app.git/info/refs?service=x");
        assert_eq!(base.uri_of_public("/git/a").unwrap(), base.uri("/a").unwrap());
        assert_eq!(base.uri_of_public("/gitea/a").unwrap(), base.uri("/gitea/a").unwrap());
    }

    #[test]
    fn addresses_and_ports_are_places_too() {
        let uri = base("[::1]:3000", None).unwrap().uri("/").unwrap();
        assert_eq!((bare_host(&uri), port(&uri)), ("::1", 3000));
        let github = base("GitHub.com", None).unwrap();
        assert!(github.is_origin_of(&"https://github.com:443/a".parse().unwrap()));
        for other in ["http://github.com/", "https://github.com:8443/", "https://github.com.evil/"] {
            assert!(!github.is_origin_of(&other.parse().unwrap()), "{other}");
        }
    }

    #[test]
    fn a_base_url_that_says_more_or_less_than_a_place_is_refused() {
        for url in
            ["ftp://h", "h", "https://u:p@h/", "https://h/?a", "https://h/#a", "https:///a", "http://h/../a"]
        {
            assert!(base("h", Some(url)).is_err(), "{url}");
        }
    }
}
