//! Which of the room's requests this is: (method, path, query) to an enum,
//! once. URLs: gitprotocol-http(5).

use http::{Method, request::Parts};
use tidegate_name::Destination;

/// A service of smart HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// Reading: clone and fetch.
    UploadPack,
    /// Writing: push.
    ReceivePack,
}

/// What a request asks of the git room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// `GET <repository>/info/refs?service=<service>`
    Advertise,
    /// `POST <repository>/<service>`
    Call,
}

/// A recognised request; `repository` is its path on the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint<'a> {
    pub(crate) verb: Verb,
    pub(crate) service: Service,
    /// The path before `/info/refs` or the service name, as written but for
    /// slashes at its ends.
    pub(crate) repository: &'a str,
}

impl<'a> Endpoint<'a> {
    /// Recognises smart HTTP; `None` is another room's request.
    pub(crate) fn of(method: &Method, destination: &'a Destination) -> Option<Self> {
        let path = destination.path.as_str();
        let found = |verb, service, repository: &'a str| {
            let repository = repository.trim_matches('/');
            (!repository.is_empty()).then_some(Self { verb, service, repository })
        };
        if method == Method::GET {
            let repository = path.strip_suffix("/info/refs")?;
            let service = match service_of(destination.query.as_deref()?)? {
                "git-upload-pack" => Service::UploadPack,
                "git-receive-pack" => Service::ReceivePack,
                _ => return None,
            };
            found(Verb::Advertise, service, repository)
        } else if method == Method::POST {
            if let Some(repository) = path.strip_suffix("/git-upload-pack") {
                found(Verb::Call, Service::UploadPack, repository)
            } else {
                found(Verb::Call, Service::ReceivePack, path.strip_suffix("/git-receive-pack")?)
            }
        } else {
            None
        }
    }

    /// Whether the git room answers this request.
    pub(crate) fn claims(parts: &Parts) -> bool {
        parts
            .extensions
            .get::<Destination>()
            .is_some_and(|destination| Endpoint::of(&parts.method, destination).is_some())
    }
}

fn service_of(query: &str) -> Option<&str> {
    query.split('&').find_map(|pair| pair.strip_prefix("service="))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destination(path: &str, query: Option<&str>) -> Destination {
        Destination::at("h".parse().unwrap(), path, query).unwrap()
    }

    #[test]
    fn the_four_requests_of_smart_http() {
        let refs = |service| destination("/org/app.git/info/refs", Some(service));
        for (method, destination, verb, service) in [
            (Method::GET, refs("service=git-upload-pack"), Verb::Advertise, Service::UploadPack),
            (Method::GET, refs("x=1&service=git-receive-pack"), Verb::Advertise, Service::ReceivePack),
            (
                Method::POST,
                destination("/org/app.git//git-upload-pack", None),
                Verb::Call,
                Service::UploadPack,
            ),
            (
                Method::POST,
                destination("/org/app.git/git-receive-pack", None),
                Verb::Call,
                Service::ReceivePack,
            ),
        ] {
            let endpoint = Endpoint::of(&method, &destination).unwrap();
            assert_eq!(endpoint, Endpoint { verb, service, repository: "org/app.git" });
        }
    }

    #[test]
    fn the_rest_is_another_rooms() {
        for (method, path, query) in [
            (Method::GET, "/org/app.git/info/refs", None),
            (Method::GET, "/org/app.git/info/refs", Some("service=git-lfs")),
            (Method::GET, "/org/app.git/HEAD", None),
            (Method::POST, "/org/app.git/info/lfs/objects/batch", None),
            (Method::POST, "/git-upload-pack", None),
            (Method::HEAD, "/org/app.git/info/refs", Some("service=git-upload-pack")),
        ] {
            assert_eq!(Endpoint::of(&method, &destination(path, query)), None, "{path}");
        }
    }
}
