//! The room for what has no room of its own: any path of an allowed upstream,
//! passed through with the caller's identity, streamed both ways, never kept.
//!
//! `receive-pack` comes this way too. What is passed on and what is stripped is
//! the `upstream` room's business; here an error becomes an answer.

mod rescue;

use std::sync::Arc;

use http::{Request, Response, StatusCode};
use tidegate_http::{Body, Identity, Mount, Outcome, RoomService, Served, local};
use tidegate_name::Destination;
use tidegate_upstream::{Kind, Upstreams};
use tower::service_fn;

/// The catch-all mount; it belongs at the end of the list.
pub fn mount(upstreams: Arc<Upstreams>) -> Mount {
    let service = RoomService::new(service_fn(move |request| {
        let upstreams = Arc::clone(&upstreams);
        async move { Ok(relay(&upstreams, request).await) }
    }));
    Mount { name: "raw", claims: |_| true, service }
}

async fn relay(upstreams: &Upstreams, mut request: Request<Body>) -> Response<Body> {
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
    match client.relay(request, &identity, kind(&destination)).await {
        Ok(mut response) => {
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
