//! Where a request is for, whichever door it came through.

use std::fmt;

use crate::{BadPath, InvalidUpstream, Upstream, check_path};

/// An upstream and a path on it, as a direct client would have asked for it.
///
/// Every door makes one of these; behind the door nothing knows which way the
/// client came.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    /// Who is asked.
    pub upstream: Upstream,
    /// The path on the upstream, with its leading slash, escapes as written.
    pub path: String,
    /// The query without its question mark.
    pub query: Option<String>,
}

/// A path-prefix URL that names no destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDestination {
    /// The first segment is no host.
    #[error("the first segment of the path must be the upstream's host name: {0}")]
    Host(#[from] InvalidUpstream),
    /// The rest is no acceptable path.
    #[error("{0}")]
    Path(#[from] BadPath),
}

impl Destination {
    /// Reads the path-prefix door: `/<host>/<path>` is `https://<host>/<path>`.
    pub fn from_prefixed(path: &str, query: Option<&str>) -> Result<Self, BadDestination> {
        let rest = path.strip_prefix('/').unwrap_or(path);
        let at = rest.find('/').unwrap_or(rest.len());
        let upstream = rest[..at].parse()?;
        Self::at(upstream, &rest[at..], query)
    }

    /// A destination on a known upstream, as the Host and CONNECT doors make it.
    pub fn at(upstream: Upstream, path: &str, query: Option<&str>) -> Result<Self, BadDestination> {
        check_path(path)?;
        let path = if path.is_empty() { "/" } else { path };
        Ok(Self { upstream, path: path.to_owned(), query: query.map(str::to_owned) })
    }

    /// Path and query as they go on the request line.
    pub fn path_and_query(&self) -> String {
        match &self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        }
    }
}

/// Host and path; the query is left out, since it may carry a secret.
impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.upstream, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_segment_is_the_host() {
        let destination =
            Destination::from_prefixed("/GitHub.com/org/app.git/info/refs", Some("service=git-upload-pack"))
                .unwrap();
        assert_eq!(destination.upstream.as_str(), "github.com");
        assert_eq!(destination.path_and_query(), "/org/app.git/info/refs?service=git-upload-pack");
        assert_eq!(destination.to_string(), "github.com/org/app.git/info/refs");
    }

    #[test]
    fn a_bare_host_is_its_root() {
        assert_eq!(Destination::from_prefixed("/github.com", None).unwrap().path, "/");
    }

    #[test]
    fn tricks_in_host_and_path_are_refused() {
        for path in
            ["/", "//github.com/a", "/a%2eb/x", "/u@h/x", "/github.com/../x", "/github.com//x", "/h./x"]
        {
            assert!(Destination::from_prefixed(path, None).is_err(), "{path}");
        }
    }
}
