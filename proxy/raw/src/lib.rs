//! The room for what has no room of its own: any path of an allowed upstream,
//! passed through with the caller's identity, streamed both ways, never kept.
//!
//! `receive-pack` comes this way too. What is passed on and what is stripped is
//! the `upstream` room's business; here an error becomes an answer.

mod rescue;

use std::sync::Arc;

use http::{Request, Response, StatusCode};
use tidegate_cache::{Access, Asked};
use tidegate_http::{
    Body, Client as Peer, Identity, Mount, Outcome, RoomService, Served, local, retry_after, text,
};
use tidegate_name::{Destination, Folding, Repository};
use tidegate_upstream::{Kind, Upstreams};
use tower::service_fn;

/// The catch-all mount; it belongs at the end of the list.
pub fn mount(upstreams: Arc<Upstreams>, access: Arc<Access>) -> Mount {
    let service = RoomService::new(service_fn(move |request| {
        let (upstreams, access) = (Arc::clone(&upstreams), Arc::clone(&access));
        async move { Ok(relay(&upstreams, &access, request).await) }
    }));
    Mount { name: "raw", claims: |_| true, service }
}

async fn relay(upstreams: &Upstreams, access: &Access, mut request: Request<Body>) -> Response<Body> {
    let Some(destination) = request.extensions().get::<Destination>().cloned() else {
        return local(StatusCode::BAD_REQUEST, "the request names no upstream");
    };
    let Some(client) = upstreams.get(&destination.upstream) else {
        let words = format!("{} is no longer an upstream of this tidegate", destination.upstream);
        return local(StatusCode::FORBIDDEN, &words);
    };
    let Ok(uri) = destination.path_and_query().parse() else {
        return local(StatusCode::BAD_REQUEST, "the path and query are no URL");
    };
    *request.uri_mut() = uri;
    let identity = Identity::from_headers(request.headers());
    let repository = Repository::new(client.name().clone(), destination.path.as_str(), Folding::default());
    let caller = access.caller(&identity);
    let asked = Asked { spelled: repository.clone(), content: repository, caller };
    let from = request.extensions().get::<Peer>().map(|peer| peer.address.ip());
    if let Some(wait) = access.relay_must_wait(&asked, from) {
        let words = "too many refused logins; this credential is not tried at the upstream yet";
        return retry_after(text(StatusCode::TOO_MANY_REQUESTS, Outcome::Denied, words), wait);
    }
    match client.relay(request, &identity, kind(&destination)).await {
        Ok(mut response) => {
            // A 403 is an answer like any other here; a 401 is a failed login.
            if response.status() == StatusCode::UNAUTHORIZED {
                access.relay_refused(&asked, from);
            }
            let served = Served { detail: Some("relay"), ..Served::new(Outcome::Relay) };
            response.extensions_mut().insert(served);
            response
        }
        Err(error) => rescue::answer(&error),
    }
}

fn kind(destination: &Destination) -> Kind {
    let push = destination.path.ends_with("/git-receive-pack")
        || (destination.path.ends_with("/info/refs")
            && destination.query.as_deref().is_some_and(|query| query.contains("service=git-receive-pack")));
    if push { Kind::Push } else { Kind::Other }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_is_counted_as_one() {
        let kind_of = |path: &str, query| kind(&Destination::from_prefixed(path, query).unwrap());
        assert_eq!(kind_of("/h/a.git/git-receive-pack", None), Kind::Push);
        assert_eq!(kind_of("/h/a.git/info/refs", Some("service=git-receive-pack")), Kind::Push);
        assert_eq!(kind_of("/h/a.git/info/refs", Some("service=git-upload-pack")), Kind::Other);
        assert_eq!(kind_of("/h/a/releases", None), Kind::Other);
    }
}
