//! Limits that the upstream sets, and the breaker.

use std::{
    sync::Arc,
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use tidegate_http::Identity;
use tidegate_upstream::{Ask, Error, Kind, Priority, UpstreamConfig};

use crate::fake::{Fake, ok, only, status};

fn asked_by(identity: &Identity) -> Ask {
    Ask { identity: identity.clone(), ..Ask::get(Kind::Refs, "/") }
}

#[tokio::test]
async fn a_429_keeps_its_credential_away_and_only_that() {
    let fake = Fake::start(|seen| match seen.header("authorization") {
        Some("Basic bGltaXRlZDo=") => {
            let mut response = status(429);
            response.headers_mut().insert("retry-after", "120".parse().unwrap());
            response
        }
        _ => ok(""),
    })
    .await;
    let (_upstreams, client) = fake.client();
    let (limited, other) = (Identity::basic("limited", ""), Identity::basic("other", ""));
    assert_eq!(client.send(asked_by(&limited)).await.unwrap().status(), 429);
    let error = client.send(asked_by(&limited)).await.unwrap_err();
    assert!(matches!(error, Error::Limited { .. }) && error.is_sick());
    let wait = error.retry_after().unwrap();
    assert!(wait > Duration::from_secs(110) && wait <= Duration::from_secs(120), "{wait:?}");
    assert!(client.send(asked_by(&other)).await.is_ok());
    assert_eq!(fake.seen().len(), 2);
    client.report_limit(&other, Duration::from_secs(5));
    // The second within ten seconds: it is the upstream that limits.
    assert!(client.send(Ask::get(Kind::Refs, "/")).await.is_err());
    assert_eq!(fake.seen().len(), 2);
}

#[tokio::test]
async fn a_403_about_a_rate_is_a_limit_and_a_plain_one_is_not() {
    let fake = Fake::start(|seen| {
        let mut response = status(403);
        let left = if seen.uri == "/rate" { "0" } else { "9" };
        response.headers_mut().insert("x-ratelimit-remaining", left.parse().unwrap());
        response
    })
    .await;
    let (_upstreams, client) = fake.client();
    for path in ["/plain", "/plain", "/rate"] {
        assert_eq!(client.send(Ask::get(Kind::Rest, path)).await.unwrap().status(), 403);
    }
    assert!(matches!(client.send(Ask::get(Kind::Rest, "/plain")).await, Err(Error::Limited { .. })));
}

#[tokio::test]
async fn five_sick_answers_open_the_breaker_for_asks_and_relays_and_a_probe_closes_it() {
    let code = Arc::new(AtomicU16::new(503));
    let answers = Arc::clone(&code);
    let fake = Fake::start(move |_| status(answers.load(Ordering::SeqCst))).await;
    let (_upstreams, client) = fake.client();
    for _ in 0..5 {
        assert_eq!(client.send(Ask::get(Kind::Refs, "/")).await.unwrap().status(), 503);
    }
    let error = client.send(Ask::get(Kind::Refs, "/")).await.unwrap_err();
    assert!(matches!(error, Error::Breaker { .. }) && error.retry_after().is_some(), "{error:?}");
    let request = http::Request::new(tidegate_http::empty());
    let error = client.relay(request, &Identity::anonymous(), Kind::Other).await.unwrap_err();
    assert!(matches!(error, Error::Breaker { .. }), "{error:?}");
    assert_eq!(fake.seen().len(), 5);
    code.store(401, Ordering::SeqCst);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(1)).await;
    tokio::time::resume();
    for _ in 0..2 {
        assert_eq!(client.send(Ask::get(Kind::Refs, "/")).await.unwrap().status(), 401);
    }
}

#[tokio::test]
async fn one_broken_repository_is_left_alone_and_its_neighbours_are_asked() {
    let fake = Fake::start(|seen| status(if seen.uri.path().starts_with("/sick") { 500 } else { 200 })).await;
    let (_upstreams, client) = fake.client();
    let sick = |path| Ask { part: Some("/sick".into()), ..Ask::get(Kind::Refs, path) };
    for path in ["/sick/info/refs", "/sick/git-upload-pack"].iter().cycle().take(5) {
        assert_eq!(client.send(sick(*path)).await.unwrap().status(), 500);
    }
    assert!(matches!(client.send(sick("/sick/info/refs")).await, Err(Error::Breaker { .. })));
    assert_eq!(client.send(Ask::get(Kind::Refs, "/well/info/refs")).await.unwrap().status(), 200);
    assert!(matches!(client.send(sick("/sick/info/refs")).await, Err(Error::Breaker { .. })));
}

#[tokio::test]
async fn refusals_are_answers_and_open_nothing() {
    let fake = Fake::start(|_| status(404)).await;
    let (_upstreams, client) = fake.client();
    for _ in 0..10 {
        assert_eq!(client.send(Ask::get(Kind::Refs, "/")).await.unwrap().status(), 404);
    }
}

#[tokio::test]
async fn nobody_there_is_sick_with_a_connect_error_and_then_left_alone() {
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let config = UpstreamConfig {
        url: Some(format!("http://{gone}")),
        allow_private: true,
        ..UpstreamConfig::new("git.test")
    };
    let (_upstreams, client) = only(config);
    for _ in 0..5 {
        let error = client.send(Ask::get(Kind::Refs, "/")).await.unwrap_err();
        assert!(matches!(error, Error::Connect { .. }) && error.is_sick(), "{error:?}");
    }
    assert!(matches!(client.send(Ask::get(Kind::Refs, "/")).await, Err(Error::Breaker { .. })));
}

#[tokio::test]
async fn without_budget_the_background_fails_at_once_and_says_when_to_come_back() {
    let fake = Fake::start(|_| ok("")).await;
    let mut config = fake.config("git.test");
    config.budget.per_minute = 10;
    let (_upstreams, client) = only(config);
    let background = || Ask { priority: Priority::Background, ..Ask::get(Kind::Refs, "/") };
    client.send(background()).await.unwrap();
    let error = client.send(background()).await.unwrap_err();
    assert!(matches!(error, Error::Budget { .. }) && error.metric_status() == "budget");
    assert!(error.retry_after().unwrap() > Duration::from_secs(1));
}
