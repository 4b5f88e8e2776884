//! Which redirects are followed, and what goes along.

use std::sync::Arc;

use tidegate_http::Identity;
use tidegate_upstream::{Ask, Error, Kind, Redirected, Settings, Trust, UpstreamConfig, Upstreams};

use crate::fake::{Fake, ok, redirect, text};

fn with_credential(path: &str) -> Ask {
    Ask { identity: Identity::basic("user", "secret"), ..Ask::get(Kind::Refs, path) }
}

#[tokio::test]
async fn a_renamed_repository_is_followed_with_the_credential() {
    let fake = Fake::start(|seen| match seen.uri.path() {
        "/old/info/refs" => redirect(301, "/new/info/refs?service=git-upload-pack"),
        _ => ok("new"),
    })
    .await;
    let (_upstreams, client) = fake.client();
    let mut ask = with_credential("/old/info/refs?service=git-upload-pack");
    ask.must_end_with = Some("/info/refs?service=git-upload-pack".to_owned());
    let response = client.send(ask).await.unwrap();
    let redirected = response.extensions().get::<Redirected>().unwrap();
    assert_eq!(
        *redirected,
        Redirected {
            host_changed: false,
            final_host: "git.test".to_owned(),
            path_and_query: "/new/info/refs?service=git-upload-pack".to_owned(),
        }
    );
    assert_eq!(text(response).await, "new");
    assert!(fake.seen().iter().all(|seen| seen.header("authorization").is_some()));
}

#[tokio::test]
async fn a_login_page_is_never_taken_for_the_answer() {
    let fake = Fake::start(|_| redirect(302, "/users/sign_in?token=hunter2")).await;
    let (_upstreams, client) = fake.client();
    let mut ask = with_credential("/a/info/refs?service=git-upload-pack");
    ask.must_end_with = Some("/info/refs?service=git-upload-pack".to_owned());
    let error = client.send(ask).await.unwrap_err();
    let Error::Redirect { status, location, .. } = &error else { panic!("{error:?}") };
    assert_eq!((status.as_u16(), location), (302, &fake.address.to_string()));
    assert!(!format!("{error} {error:?}").contains("hunter2"));
    assert!(!error.is_sick());
    assert_eq!(fake.seen().len(), 1);
}

#[tokio::test]
async fn another_upstream_is_followed_without_the_credential() {
    let other = Fake::start(|_| ok("other")).await;
    let target = format!("{}/moved", other.url());
    let first = Fake::start(move |_| redirect(302, &target)).await;
    let configs = vec![first.config("first.test"), other.config("other.test")];
    let upstreams = Upstreams::new(configs, Settings::default()).unwrap();
    let client = upstreams.get(&"first.test".parse().unwrap()).unwrap();
    let mut ask = with_credential("/a");
    for (name, value) in [("cookie", "o=s3cret"), ("private-token", "s3cret"), ("git-protocol", "version=2")]
    {
        ask.headers.insert(name, value.parse().unwrap());
    }
    let response = client.send(ask).await.unwrap();
    let redirected = response.extensions().get::<Redirected>().unwrap();
    assert!(redirected.host_changed);
    assert_eq!(
        (redirected.final_host.as_str(), redirected.path_and_query.as_str()),
        ("other.test", "/moved")
    );
    assert_eq!(first.seen()[0].header("cookie"), None);
    let seen = &other.seen()[0];
    assert_eq!((seen.header("authorization"), seen.header("cookie")), (None, None));
    assert_eq!((seen.header("private-token"), seen.header("git-protocol")), (None, Some("version=2")));
}

#[tokio::test]
async fn a_public_name_leads_to_where_the_upstream_really_is() {
    let fake = Fake::start(|seen| match seen.uri.path() {
        "/git/old" => redirect(301, "https://git.test/git/new"),
        "/git/older" => redirect(301, "https://git.test/new"),
        _ => ok("new"),
    })
    .await;
    let config = UpstreamConfig { url: Some(format!("{}/git", fake.url())), ..fake.config("git.test") };
    let (_upstreams, client) = crate::fake::only(config);
    for path in ["/old", "/older"] {
        let response = client.send(with_credential(path)).await.unwrap();
        let redirected = response.extensions().get::<Redirected>().unwrap().clone();
        assert_eq!((redirected.host_changed, redirected.path_and_query.as_str()), (false, "/new"));
    }
    assert!(fake.seen().iter().all(|seen| seen.header("authorization").is_some()));
}

#[tokio::test]
async fn an_unknown_host_is_followed_only_where_it_is_listed() {
    let stranger = Fake::start_at("127.0.0.2:0", None, |_| ok("stranger")).await;
    let target = format!("{}/x?sig=hunter2", stranger.url());
    let fake = Fake::start(move |_| redirect(307, &target)).await;
    for trust in [Trust::Mutable, Trust::Verified] {
        let (_upstreams, client) = fake.client();
        let error = client.send(Ask { trust, ..with_credential("/a") }).await.unwrap_err();
        assert!(matches!(error, Error::Redirect { .. }), "{error:?}");
        assert!(error.to_string().contains("redirects_to") && !error.to_string().contains("hunter2"));
    }
    assert!(stranger.seen().is_empty());
    let mut config = fake.config("git.test");
    config.redirects_to = vec![stranger.address.to_string()];
    let (_upstreams, client) = crate::fake::only(config);
    let response = client.send(with_credential("/a")).await.unwrap();
    assert!(response.extensions().get::<Redirected>().unwrap().host_changed);
    assert_eq!(text(response).await, "stranger");
    assert_eq!(stranger.seen()[0].header("authorization"), None);
}

#[tokio::test]
async fn verified_content_may_go_to_public_hosts_and_never_inside() {
    // These names resolve to loopback: what may be followed is stopped by the
    // guard, what may not is never resolved.
    for (location, guarded) in [
        ("https://localhost/x", true),
        ("https://localhost:8443/x", false),
        ("http://localhost/x", false),
        ("https://127.0.0.2/x", false),
        ("https://169.254.169.254/latest/meta-data", false),
        ("https://[::ffff:127.0.0.2]/x", false),
        ("https://0x7f.2/x", false),
    ] {
        let fake = Fake::start(move |_| redirect(307, location)).await;
        let (_upstreams, client) = fake.client();
        let ask = Ask { trust: Trust::Verified, ..Ask::get(Kind::Object, "/a") };
        let error = client.send(ask).await.unwrap_err();
        assert_eq!(matches!(error, Error::Guard { .. }), guarded, "{location}: {error:?}");
        assert_eq!(matches!(error, Error::Redirect { .. }), !guarded, "{location}: {error:?}");
    }
}

#[tokio::test]
async fn a_post_is_sent_again_by_307_and_308_only() {
    let fake = Fake::start(|seen| match seen.uri.path() {
        "/done" => ok("done"),
        path => redirect(path[1..].parse().unwrap(), "/done"),
    })
    .await;
    let (_upstreams, client) = fake.client();
    for (code, follows) in [(301, false), (302, false), (303, false), (307, true), (308, true)] {
        let answer = client.send(Ask::post(Kind::Fetch, format!("/{code}"), "wants")).await;
        assert_eq!(answer.is_ok(), follows, "{code}");
    }
    let seen = fake.seen();
    let done: Vec<_> = seen.iter().filter(|seen| seen.uri == "/done").collect();
    assert_eq!(done.len(), 2);
    assert!(done.iter().all(|seen| seen.method == "POST" && seen.body == "wants"));
}

#[tokio::test]
async fn a_loop_ends_after_five_hops() {
    let fake = Fake::start(|_| redirect(302, "/again")).await;
    let (_upstreams, client) = fake.client();
    let error = client.send(Ask::get(Kind::Refs, "/")).await.unwrap_err();
    assert!(matches!(error, Error::Redirect { .. }));
    assert_eq!(fake.seen().len(), 6);
}

#[tokio::test]
async fn another_port_of_the_same_host_gets_no_credential() {
    let other = Fake::start(|_| ok("other port")).await;
    let target = other.url();
    let fake = Fake::start(move |_| redirect(302, &target)).await;
    let (_upstreams, client) = fake.client();
    let response = client.send(with_credential("/")).await.unwrap();
    assert!(response.extensions().get::<Redirected>().unwrap().host_changed);
    assert_eq!(other.seen()[0].header("authorization"), None);
}

#[tokio::test]
async fn hops_are_paid_from_the_budget_and_counted() {
    let fake = Fake::start(|seen| if seen.uri == "/a" { redirect(302, "/b") } else { ok("") }).await;
    let (upstreams, client) = fake.client();
    let before = client.budget_remaining();
    client.send(Ask::get(Kind::Rest, "/a")).await.unwrap();
    assert_eq!(client.budget_remaining(), before - 2);
    let mut registry = prometheus_client::registry::Registry::default();
    Arc::clone(&upstreams).register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        "tidegate_upstream_requests_total{upstream=\"git.test\",kind=\"rest\",status=\"302\"} 1",
        "tidegate_upstream_requests_total{upstream=\"git.test\",kind=\"rest\",status=\"200\"} 1",
        "tidegate_budget_remaining{upstream=\"git.test\"} 298",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
}
