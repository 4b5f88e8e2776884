//! Doors: how a request says which upstream it is for.
//!
//! A door turns a request into a [`Destination`]; behind it nothing knows which
//! way the client came. The path prefix is the one door so far.

use http::{Method, StatusCode, Version, request::Parts};
use tidegate_name::{BadDestination, Destination};

/// What a door makes of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Entry {
    /// This is not its way in; ask the next door.
    NotMine,
    /// It is for this destination.
    For(Destination),
    /// It is for tidegate itself: a path under `/-/`.
    Own,
    /// It is for nobody, with the status and words to say so.
    Refused(StatusCode, String),
}

/// A way in.
pub trait Door: Send + Sync {
    /// Reads where the request wants to go.
    fn enter(&self, request: &Parts) -> Entry;
}

/// Requests in forms that only a forward proxy answers: none of them is
/// understood yet, and each is told so.
#[derive(Clone, Copy, Debug)]
pub struct ForwardDoor;

impl Door for ForwardDoor {
    fn enter(&self, request: &Parts) -> Entry {
        let words = if request.method == Method::CONNECT {
            "tidegate does not answer CONNECT: unset HTTPS_PROXY for it and write the URL as http://<tidegate>/<host>/<path>"
        } else if request.version != Version::HTTP_2 && request.uri.scheme().is_some() {
            "tidegate does not answer requests in absolute form: unset HTTP_PROXY for it and write the URL as http://<tidegate>/<host>/<path>"
        } else if !request.uri.path().starts_with('/') {
            "the request has no path"
        } else {
            return Entry::NotMine;
        };
        Entry::Refused(StatusCode::BAD_REQUEST, words.to_owned())
    }
}

/// `/<host>/<path>` is `https://<host>/<path>`; `/-/` is tidegate's own.
#[derive(Clone, Copy, Debug)]
pub struct PrefixDoor;

impl Door for PrefixDoor {
    fn enter(&self, request: &Parts) -> Entry {
        let path = request.uri.path();
        if path == "/" {
            let words = "this is tidegate: write the URL as /<host>/<path>, as in /github.com/org/app.git";
            return Entry::Refused(StatusCode::NOT_FOUND, words.to_owned());
        }
        if path.starts_with("/-/") {
            return Entry::Own;
        }
        match Destination::from_prefixed(path, request.uri.query()) {
            Ok(destination) => Entry::For(destination),
            Err(error @ (BadDestination::Host(_) | BadDestination::Path(_))) => {
                Entry::Refused(StatusCode::BAD_REQUEST, error.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(method: &str, uri: &str) -> Parts {
        Request::builder().method(method).uri(uri).body(()).unwrap().into_parts().0
    }

    #[test]
    fn the_prefix_door_reads_the_host_from_the_path() {
        let entry = PrefixDoor.enter(&parts("GET", "/GitHub.com/org/app.git/info/refs?service=x"));
        let Entry::For(destination) = entry else { panic!("{entry:?}") };
        assert_eq!(destination.to_string(), "github.com/org/app.git/info/refs");
        assert_eq!(PrefixDoor.enter(&parts("GET", "/-/healthz")), Entry::Own);
    }

    #[test]
    fn bad_hosts_and_paths_are_refused_with_words() {
        for path in
            ["/github.com/a/../b", "/github.com//a", "/git%68ub.com/a", "/u:p@github.com/a", "/github.com./a"]
        {
            let entry = PrefixDoor.enter(&parts("GET", path));
            assert!(matches!(entry, Entry::Refused(StatusCode::BAD_REQUEST, _)), "{path}: {entry:?}");
        }
    }

    #[test]
    fn forms_of_a_forward_proxy_are_told_what_to_do() {
        for (method, uri) in [("CONNECT", "github.com:443"), ("GET", "http://github.com/a"), ("OPTIONS", "*")]
        {
            let entry = ForwardDoor.enter(&parts(method, uri));
            assert!(matches!(entry, Entry::Refused(StatusCode::BAD_REQUEST, _)), "{method} {uri}: {entry:?}");
        }
        assert_eq!(ForwardDoor.enter(&parts("GET", "/github.com/a")), Entry::NotMine);
    }
}
