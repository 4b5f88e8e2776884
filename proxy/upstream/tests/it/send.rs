//! What goes out, and what comes back.

use std::time::Duration;

use futures_util::StreamExt as _;
use http::{HeaderMap, Response};
use http_body_util::BodyExt as _;
use tidegate_http::{Identity, stream};
use tidegate_upstream::{Ask, Error, Kind, Priority, Settings, UpstreamConfig, Upstreams};

use crate::fake::{Fake, ok, only, status, text};

#[tokio::test]
async fn an_ask_goes_to_the_base_url_with_its_credential_and_a_git_user_agent() {
    let fake = Fake::start(|_| ok("refs")).await;
    let config = UpstreamConfig { url: Some(format!("{}/git", fake.url())), ..fake.config("git.test") };
    let (_upstreams, client) = only(config);
    let mut ask = Ask::get(Kind::Refs, "/org/app.git/info/refs?service=git-upload-pack");
    ask.identity = Identity::basic("user", "secret");
    for (name, value) in
        [("user-agent", "go-git/5.x"), ("authorization", "Basic other"), ("git-protocol", "version=2")]
    {
        ask.headers.insert(name, value.parse().unwrap());
    }
    let response = client.send(ask).await.unwrap();
    assert_eq!(text(response).await, "refs");
    let seen = &fake.seen()[0];
    assert_eq!(seen.uri, "/git/org/app.git/info/refs?service=git-upload-pack");
    assert_eq!(seen.header("authorization"), Some("Basic dXNlcjpzZWNyZXQ="));
    assert_eq!(seen.header("host"), Some(fake.address.to_string().as_str()));
    assert_eq!(seen.header("git-protocol"), Some("version=2"));
    assert!(seen.header("user-agent").unwrap().starts_with("git/"));
}

#[tokio::test]
async fn any_status_is_an_answer() {
    let fake = Fake::start(|seen| status(seen.uri.path()[1..].parse().unwrap())).await;
    let (_upstreams, client) = fake.client();
    for code in [200, 203, 204, 304, 401, 403, 404, 500, 503] {
        let response = client.send(Ask::get(Kind::Other, format!("/{code}"))).await.unwrap();
        assert_eq!(response.status(), code);
    }
}

#[tokio::test]
async fn upstreams_on_ipv6_loopback_are_reached_by_address() {
    let fake = Fake::start_at("[::1]:0", None, |_| ok("six")).await;
    let (_upstreams, client) = fake.client();
    let response = client.send(Ask::get(Kind::Refs, "/")).await.unwrap();
    assert_eq!(text(response).await, "six");
}

#[tokio::test]
async fn a_name_is_resolved_and_every_address_it_has_is_guarded() {
    let fake = Fake::start(|_| ok("here")).await;
    let url = format!("http://localhost:{}", fake.address.port());
    let mut config = UpstreamConfig { url: Some(url), ..UpstreamConfig::new("git.test") };
    let (_upstreams, client) = only(config.clone());
    let error = client.send(Ask::get(Kind::Refs, "/")).await.unwrap_err();
    assert!(matches!(error, Error::Guard { .. }) && error.is_sick(), "{error}");
    assert_eq!(error.metric_status(), "guard");
    assert!(error.to_string().contains("allow_private: true"), "{error}");
    assert!(fake.seen().is_empty());
    config.allow_private = true;
    let (_upstreams, client) = only(config);
    assert_eq!(text(client.send(Ask::get(Kind::Refs, "/")).await.unwrap()).await, "here");
}

#[tokio::test]
async fn aliases_and_names_with_ports_find_the_same_client() {
    let fake = Fake::start(|_| ok("")).await;
    let config = UpstreamConfig { aliases: vec!["git".to_owned()], ..fake.config("git.test:8443") };
    let (upstreams, client) = only(config.clone());
    assert_eq!(upstreams.get(&"git".parse().unwrap()).unwrap().name(), client.name());
    assert!(upstreams.get(&"git.test".parse().unwrap()).is_none());
    let twice = Upstreams::new(vec![config.clone(), config], Settings::default()).err().unwrap();
    let paths: Vec<_> = twice.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(paths, ["upstreams[1].host", "upstreams[1].aliases[0]"]);
}

#[tokio::test]
async fn a_body_that_stalls_is_cut_and_its_room_comes_back() {
    let fake = Fake::start(|_| Response::new(stream(futures_util::stream::pending()))).await;
    let mut config = fake.config("git.test");
    config.budget.concurrent = 1;
    let (_upstreams, client) = only(config);
    let response = client.send(Ask::get(Kind::Fetch, "/")).await.unwrap();
    tokio::time::pause();
    let started = tokio::time::Instant::now();
    let error = tidegate_http::collect(response.into_body(), 10).await.unwrap_err();
    assert!(error.is::<tidegate_http::Stalled>(), "{error}");
    assert!(started.elapsed() >= Duration::from_secs(60));
    tokio::time::resume();
    assert!(client.send(Ask::get(Kind::Fetch, "/")).await.is_ok());
}

#[tokio::test]
async fn an_answer_takes_up_room_until_its_body_ends_or_is_dropped() {
    let fake = Fake::start(|seen| match seen.uri.path() {
        "/endless" => {
            let first = futures_util::stream::iter([Ok(bytes::Bytes::from_static(b"first"))]);
            Response::new(stream(first.chain(futures_util::stream::pending())))
        }
        _ => ok("whole"),
    })
    .await;
    let mut config = fake.config("git.test");
    config.budget.concurrent = 1;
    let (_upstreams, client) = only(config);
    let quick = || Ask { priority: Priority::Background, ..Ask::get(Kind::Refs, "/") };
    let mut endless = client.send(Ask::get(Kind::Fetch, "/endless")).await.unwrap();
    endless.body_mut().frame().await.unwrap().unwrap();
    assert!(matches!(client.send(quick()).await, Err(Error::Budget { .. })));
    drop(endless);
    let mut whole = client.send(quick()).await.unwrap();
    whole.body_mut().frame().await.unwrap().unwrap();
    assert!(whole.body_mut().frame().await.is_none());
    // Read to its end, but still held by its reader.
    assert!(client.send(quick()).await.is_ok());
}

#[tokio::test]
async fn an_upstream_that_accepts_and_says_nothing_is_a_timeout() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let config = UpstreamConfig { url: Some(url), allow_private: true, ..UpstreamConfig::new("git.test") };
    let (_upstreams, client) = only(config);
    let asking = tokio::spawn(async move { client.send(Ask::get(Kind::Refs, "/")).await.map(drop) });
    let (stream, _) = listener.accept().await.unwrap();
    stream.readable().await.unwrap();
    tokio::time::pause();
    let error = asking.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    assert_eq!(error.metric_status(), "timeout");
}

#[tokio::test]
async fn schemes_that_bind_a_connection_are_refused_with_the_reason() {
    let fake = Fake::start(|_| ok("")).await;
    let (_upstreams, client) = fake.client();
    let mut headers = HeaderMap::new();
    headers.insert("authorization", "NTLM TlRMTVNTUAAB".parse().unwrap());
    let ask = Ask { identity: Identity::from_headers(&headers), ..Ask::get(Kind::Refs, "/") };
    let error = client.send(ask).await.unwrap_err();
    assert!(matches!(error, Error::ConnectionBound { .. }) && !error.is_sick());
    assert!(fake.seen().is_empty());
}

#[tokio::test]
async fn an_endless_head_is_no_answer() {
    let fake = Fake::start(|_| {
        let mut response = ok("");
        for number in 0..500 {
            let name: http::HeaderName = format!("x-{number}").parse().unwrap();
            response.headers_mut().insert(name, "x".repeat(100).parse().unwrap());
        }
        response
    })
    .await;
    let (_upstreams, client) = fake.client();
    let error = client.send(Ask::get(Kind::Refs, "/")).await.unwrap_err();
    assert!(matches!(error, Error::Broken { .. }), "{error:?}");
    assert_eq!(fake.seen().len(), 1);
}

#[tokio::test]
async fn what_no_request_can_carry_is_refused() {
    let fake = Fake::start(|_| ok("")).await;
    let (_upstreams, client) = fake.client();
    for path in ["no-slash", "/a b", "/a\r\nHost: evil", "/\u{0}"] {
        let error = client.send(Ask::get(Kind::Other, path)).await.unwrap_err();
        assert!(matches!(error, Error::Unsendable { .. }), "{path:?}");
    }
    assert!(fake.seen().is_empty());
}
