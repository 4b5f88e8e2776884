//! What is passed through: untouched, once, and without what belongs to one
//! connection.

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{Method, Request, Version};
use tidegate_http::{Body, Identity, empty, full, stream};
use tidegate_upstream::{Ask, Error, Kind};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::{
    fake::{Fake, ok, redirect, status, text},
    tls::{Ca, config},
};

fn request(method: Method, path: &str, body: Body) -> Request<Body> {
    Request::builder().method(method).uri(path).body(body).unwrap()
}

#[tokio::test]
async fn what_belongs_to_one_connection_is_stripped_both_ways() {
    let fake = Fake::start(|_| {
        let mut response = ok("\u{1f}\u{8b}not really gzip");
        for (name, value) in [
            ("x-hop", "1"),
            ("keep-alive", "timeout=9"),
            ("proxy-authenticate", "Basic"),
            ("content-encoding", "gzip"),
            ("x-end", "1"),
        ] {
            response.headers_mut().insert(name, value.parse().unwrap());
        }
        response.headers_mut().insert("connection", "x-hop".parse().unwrap());
        response
    })
    .await;
    let (_upstreams, client) = fake.client();
    let mut request = request(Method::POST, "/org/app.git/git-receive-pack", full("push"));
    for (name, value) in [
        ("host", "tidegate.example"),
        ("connection", "close, x-secret"),
        ("x-secret", "1"),
        ("te", "trailers"),
        ("expect", "100-continue"),
        ("upgrade", "h2c"),
        ("proxy-authorization", "Basic eA=="),
        ("authorization", "Basic notthis"),
        ("content-encoding", "gzip"),
        ("user-agent", "go-git/5.x"),
        ("x-end", "1"),
    ] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    let identity = Identity::basic("user", "secret");
    let response = client.relay(request, &identity, Kind::Push).await.unwrap();
    for name in ["x-hop", "keep-alive", "proxy-authenticate", "connection"] {
        assert!(!response.headers().contains_key(name), "{name}");
    }
    assert_eq!(response.headers()["content-encoding"], "gzip");
    assert_eq!(text(response).await, "\u{1f}\u{8b}not really gzip");
    let seen = &fake.seen()[0];
    for name in ["connection", "x-secret", "te", "expect", "upgrade", "proxy-authorization"] {
        assert_eq!(seen.header(name), None, "{name}");
    }
    assert_eq!(seen.header("host"), Some(fake.address.to_string().as_str()));
    assert_eq!(seen.header("authorization"), Some("Basic dXNlcjpzZWNyZXQ="));
    assert_eq!(seen.header("content-encoding"), Some("gzip"));
    assert_eq!(seen.header("content-length"), Some("4"));
    assert_eq!(seen.header("x-end"), Some("1"));
    assert!(seen.header("user-agent").unwrap().starts_with("git/"));
    assert_eq!(seen.body, "push");
}

#[tokio::test]
async fn other_clients_keep_their_user_agent() {
    let fake = Fake::start(|_| ok("")).await;
    let (_upstreams, client) = fake.client();
    let mut request = request(Method::GET, "/api", empty());
    request.headers_mut().insert("user-agent", "curl/8".parse().unwrap());
    client.relay(request, &Identity::anonymous(), Kind::Rest).await.unwrap();
    assert_eq!(fake.seen()[0].header("user-agent"), Some("curl/8"));
}

#[tokio::test]
async fn bodies_stream_without_being_collected() {
    let (into, chunks) = mpsc::channel(1);
    let fake = Fake::start(|_| ok("")).await;
    let (_upstreams, client) = fake.client();
    let body = stream(ReceiverStream::new(chunks).map(Ok));
    let relaying = tokio::spawn(async move {
        let request = request(Method::POST, "/a/git-receive-pack", body);
        client.relay(request, &Identity::anonymous(), Kind::Push).await.map(drop)
    });
    // With room for one chunk, all of them fit only if they are passed on.
    for _ in 0..50 {
        into.send(Bytes::from_static(b"0123456789")).await.unwrap();
    }
    drop(into);
    relaying.await.unwrap().unwrap();
    assert_eq!(fake.seen()[0].body.len(), 500);
}

#[tokio::test]
async fn a_body_that_breaks_off_breaks_the_request_off() {
    let fake = Fake::start(|_| ok("taken")).await;
    let (_upstreams, client) = fake.client();
    let chunks = [Ok(Bytes::from_static(b"half")), Err("the client is gone".into())];
    let body = stream(futures_util::stream::iter(chunks));
    let request = request(Method::POST, "/a/git-receive-pack", body);
    let error = client.relay(request, &Identity::anonymous(), Kind::Push).await.unwrap_err();
    assert!(matches!(error, Error::Unsendable { .. }), "{error:?}");
}

#[tokio::test]
async fn clients_that_break_off_do_not_close_the_way_for_others() {
    let fake = Fake::start(|seen| status(if seen.uri == "/broken" { 500 } else { 200 })).await;
    let (_upstreams, client) = fake.client();
    let anonymous = Identity::anonymous();
    for _ in 0..6 {
        let chunks = [Ok(Bytes::from_static(b"half")), Err("the client is gone".into())];
        let body = stream(futures_util::stream::iter(chunks));
        let push = request(Method::POST, "/a/git-receive-pack", body);
        assert!(client.relay(push, &anonymous, Kind::Push).await.is_err());
        let page = request(Method::GET, "/broken", empty());
        assert_eq!(client.relay(page, &anonymous, Kind::Other).await.unwrap().status(), 500);
    }
    assert!(client.send(Ask::get(Kind::Refs, "/")).await.is_ok());
}

#[tokio::test]
async fn a_push_goes_over_http2_too() {
    let (ca, folder) = (Ca::new(), tempfile::tempdir().unwrap());
    let server = ca.server("127.0.0.1", &["h2"]);
    let fake = Fake::start_at("127.0.0.1:0", Some(server), |_| ok("pushed")).await;
    let (_upstreams, client) = crate::fake::only(config(&fake, "127.0.0.1", &ca, &folder));
    for number in 0..3 {
        let body = stream(futures_util::stream::iter((0..9).map(|_| Ok(Bytes::from(vec![7; 100_000])))));
        let push = request(Method::POST, "/a/git-receive-pack", body);
        let response = client.relay(push, &Identity::anonymous(), Kind::Push).await.unwrap();
        assert_eq!(text(response).await, "pushed");
        let seen = &fake.seen()[number];
        assert_eq!((seen.version, seen.body.len(), seen.connection), (Version::HTTP_2, 900_000, number));
    }
}

#[tokio::test]
async fn a_redirect_is_followed_for_reads_and_an_error_for_the_rest() {
    let fake = Fake::start(|seen| if seen.uri == "/a" { redirect(307, "/b") } else { ok("b") }).await;
    let (_upstreams, client) = fake.client();
    let anonymous = Identity::anonymous();
    let response = client.relay(request(Method::GET, "/a", empty()), &anonymous, Kind::Other).await.unwrap();
    assert_eq!(text(response).await, "b");
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
        let request = request(method.clone(), "/a", full("x"));
        let error = client.relay(request, &anonymous, Kind::Other).await.unwrap_err();
        assert!(matches!(error, Error::Redirect { .. }), "{method}: {error:?}");
    }
    assert_eq!(fake.seen().len(), 2 + 4);
}

#[tokio::test]
async fn not_modified_is_passed_on() {
    let fake = Fake::start(|_| status(304)).await;
    let (_upstreams, client) = fake.client();
    let request = request(Method::GET, "/a", empty());
    let response = client.relay(request, &Identity::anonymous(), Kind::Other).await.unwrap();
    assert_eq!(response.status(), 304);
}

#[tokio::test]
async fn slow_readers_of_relays_do_not_keep_asks_out() {
    let fake = Fake::start(|seen| match seen.uri.path() {
        "/slow" => http::Response::new(stream(futures_util::stream::pending())),
        _ => ok("quick"),
    })
    .await;
    let mut config = fake.config("git.test");
    config.budget.concurrent = 4;
    let (_upstreams, client) = crate::fake::only(config);
    let anonymous = Identity::anonymous();
    let mut held = Vec::new();
    for _ in 0..2 {
        let request = request(Method::GET, "/slow", empty());
        held.push(client.relay(request, &anonymous, Kind::Object).await.unwrap());
    }
    let ask = Ask::get(Kind::Refs, "/quick");
    assert_eq!(text(client.send(ask).await.unwrap()).await, "quick");
}
