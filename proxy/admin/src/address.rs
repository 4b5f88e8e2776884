//! What an operator writes for a repository, read as a destination.

use tidegate_name::{Destination, Upstream};

/// Takes `https://host/path`, `host/path` and `http://<tidegate>/host/path`.
pub(crate) fn read(text: &str, allowed: &dyn Fn(&Upstream) -> bool) -> Result<Destination, String> {
    let bare = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let rest = bare.unwrap_or(text).trim_start_matches('/');
    let (path, query) = match rest.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (rest, None),
    };
    let direct = prefixed(path, query);
    if matches!(&direct, Ok(destination) if allowed(&destination.upstream)) {
        return direct;
    }
    // A URL as clients of this tidegate write it has the upstream one further on.
    if bare.is_some()
        && let Some((_, further)) = path.split_once('/')
        && let Ok(destination) = prefixed(further, query)
        && allowed(&destination.upstream)
    {
        return Ok(destination);
    }
    direct
}

fn prefixed(path: &str, query: Option<&str>) -> Result<Destination, String> {
    Destination::from_prefixed(&format!("/{path}"), query).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_repository_is_the_same_destination() {
        let allowed = |upstream: &Upstream| upstream.as_str() == "github.com";
        for text in [
            "github.com/org/app",
            "/github.com/org/app",
            "https://github.com/org/app",
            "http://127.0.0.1:8080/github.com/org/app",
            "http://tidegate.svc/GitHub.com/org/app",
        ] {
            assert_eq!(read(text, &allowed).unwrap().to_string(), "github.com/org/app", "{text}");
        }
        assert_eq!(read("https://evil.test/x", &allowed).unwrap().to_string(), "evil.test/x");
        assert!(read("https://u:p@github.com/org/app", &allowed).is_err());
    }
}
