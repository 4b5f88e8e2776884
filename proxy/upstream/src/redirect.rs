//! Reads redirects: whether an answer is one, and where it leads. Whether we go
//! there is decided by who knows the configured upstreams.

use http::{HeaderMap, Method, StatusCode, Uri, header::LOCATION};
use tidegate_name::Upstream;

use crate::locate;

/// Most redirects that are followed for one request.
pub(crate) const HOPS: usize = 5;

/// What an answer means for the request that got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It is the answer.
    Answer,
    /// It leads here, with the same method and body.
    Follow(Uri),
    /// It leads somewhere, but must not be followed.
    Refuse(Refused),
}

/// A redirect that isn't followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The host it points to, for people.
    pub(crate) location: String,
    pub(crate) reason: &'static str,
}

/// Reads the answer to `method` at `from`.
pub(crate) fn read(from: &Uri, method: &Method, status: StatusCode, headers: &HeaderMap) -> Next {
    if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
        return Next::Answer;
    }
    let refuse = |location: &str, reason| Next::Refuse(Refused { location: location.to_owned(), reason });
    let Some(location) = headers.get(LOCATION) else {
        return refuse("nowhere", "it has no Location");
    };
    let Some(target) = location.to_str().ok().and_then(|text| resolve(from, text)) else {
        return refuse("an unreadable place", "its Location is no http or https URL");
    };
    let host = host_of(&target);
    let safe = matches!(*method, Method::GET | Method::HEAD);
    let kept = match status.as_u16() {
        307 | 308 => safe || *method == Method::POST,
        301..=303 => safe,
        _ => false,
    };
    if !kept {
        return refuse(&host, "it does not keep the method of the request");
    }
    if from.scheme_str() == Some("https") && target.scheme_str() != Some("https") {
        return refuse(&host, "it leads from https to http");
    }
    Next::Follow(target)
}

/// Host and port of a URL, for people: never its path or query.
pub(crate) fn host_of(uri: &Uri) -> String {
    locate::place(uri).map_or_else(|| "an unreadable place".to_owned(), |place| place.to_string())
}

/// Resolves a reference (RFC 3986 section 5.2) as far as servers use them: a
/// whole URL, `//host/path`, `/path`, `?query` or a path beside the current
/// one. `None` for all that is no good http or https URL.
fn resolve(from: &Uri, location: &str) -> Option<Uri> {
    let location = location.split('#').next().unwrap_or_default();
    let scheme = from.scheme_str()?;
    let authority = from.authority()?;
    let has_scheme = location.split(['/', '?']).next().is_some_and(|start| start.contains(':'));
    let absolute = if has_scheme {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else if location.starts_with('?') || location.is_empty() {
        format!("{scheme}://{authority}{}{location}", from.path())
    } else {
        let folder = from.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{scheme}://{authority}{folder}/{location}")
    };
    let uri: Uri = absolute.parse().ok()?;
    let good_scheme = matches!(uri.scheme_str(), Some("http" | "https"));
    // As strict as for names from clients: no user name, no escapes, no dot at
    // the end; so that what is checked is what is connected to.
    let good_place = uri.authority().is_some_and(|it| it.as_str().parse::<Upstream>().is_ok());
    (good_scheme && good_place).then_some(uri)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: &str = "https://git.test/org/app/info/refs?service=x";

    fn read_from(from: &str, method: &Method, status: u16, location: &str) -> Next {
        let mut headers = HeaderMap::new();
        headers.insert(LOCATION, location.parse().unwrap());
        read(&from.parse().unwrap(), method, StatusCode::from_u16(status).unwrap(), &headers)
    }

    #[test]
    fn every_form_of_location_is_resolved() {
        for (location, target) in [
            ("https://other.test/a?b#c", "https://other.test/a?b"),
            ("//other.test:8443/a", "https://other.test:8443/a"),
            ("/new/info/refs?service=x", "https://git.test/new/info/refs?service=x"),
            ("?service=y", "https://git.test/org/app/info/refs?service=y"),
            ("other?u=http://x", "https://git.test/org/app/info/other?u=http://x"),
        ] {
            let next = read_from(FROM, &Method::GET, 302, location);
            assert_eq!(next, Next::Follow(target.parse().unwrap()), "{location}");
        }
    }

    #[test]
    fn what_is_no_good_url_is_not_followed_and_not_printed() {
        for location in [
            "ftp://h/a",
            "javascript:alert(1)",
            "https://user:secret@h/",
            "https://h./a",
            "https://a%2eb/",
            "https://",
            "https:///a",
            "//",
            "https://h:99999/",
            "https://[::1/",
            "\\\\evil\\a b",
            "http://a b/",
            "mailto:x@y",
        ] {
            let Next::Refuse(refused) = read_from(FROM, &Method::GET, 302, location) else {
                panic!("{location} was followed");
            };
            assert!(!refused.location.contains("secret"), "{refused:?}");
        }
    }

    #[test]
    fn only_what_keeps_the_method_is_followed() {
        for (method, status, follows) in [
            (Method::GET, 301, true),
            (Method::HEAD, 302, true),
            (Method::GET, 303, true),
            (Method::GET, 307, true),
            (Method::GET, 308, true),
            (Method::GET, 300, false),
            (Method::GET, 305, false),
            (Method::POST, 301, false),
            (Method::POST, 302, false),
            (Method::POST, 303, false),
            (Method::POST, 307, true),
            (Method::POST, 308, true),
            (Method::PUT, 307, false),
            (Method::DELETE, 308, false),
        ] {
            let next = read_from(FROM, &method, status, "/a");
            assert_eq!(matches!(next, Next::Follow(_)), follows, "{method} {status}");
        }
    }

    #[test]
    fn not_modified_and_every_other_status_are_answers() {
        for status in [200, 203, 304, 401, 404, 500] {
            assert_eq!(read_from(FROM, &Method::GET, status, "/a"), Next::Answer, "{status}");
        }
    }

    #[test]
    fn nothing_leads_from_https_to_http_and_a_secret_in_the_query_stays_unprinted() {
        let Next::Refuse(refused) = read_from(FROM, &Method::GET, 302, "http://git.test/login?token=secret")
        else {
            panic!("followed");
        };
        assert_eq!(refused.location, "git.test");
    }
}
