//! What the admin listener answers, and to whom.

use http::Request;
use tidegate_cache::{Answer, Done};
use tidegate_http::{collect, empty};
use tidegate_name::Destination;
use tower::ServiceExt as _;

use super::*;

struct FakeGit;

impl Inspect for FakeGit {
    fn protocol(&self) -> &'static str {
        "git"
    }

    fn explain<'a>(&'a self, destination: &'a Destination) -> Answer<'a, Option<serde_json::Value>> {
        let known = destination.path.starts_with("/org/").then(|| serde_json::json!({ "age_seconds": 7 }));
        Box::pin(async move { known })
    }

    fn purge<'a>(&'a self, _: &'a Destination) -> Answer<'a, Done> {
        Box::pin(async { Done { repositories: 1, bytes: 42, problems: Vec::new() } })
    }

    fn fsck(&self) -> Answer<'_, Done> {
        Box::pin(async { Done { problems: vec!["a pack is gone".into()], ..Done::default() } })
    }

    fn warm<'a>(&'a self, _: &'a Destination) -> Answer<'a, Done> {
        Box::pin(async { Done { repositories: 1, ..Done::default() } })
    }
}

fn admin(loopback: bool, token: Option<&'static str>) -> RoomService {
    let mut registry = Registry::with_prefix("tidegate");
    let tier = TierStatus { tier: "disk", bytes: 9, evictions: 2 };
    let tiers = vec![tier];
    registry.register_collector(Box::new(Tiers::new(move || tiers.clone())));
    Admin {
        gate: Gate { loopback, token: Box::new(move || token.map(str::to_owned)) },
        registry,
        rooms: vec![Arc::new(FakeGit)],
        upstream: Box::new(|name| {
            (name.as_str() == "github.com").then(|| serde_json::json!({ "credential": "the caller's own" }))
        }),
        status: Box::new(|| Status { version: "0.1.0".into(), ..Status::default() }),
    }
    .service()
}

async fn ask(service: &RoomService, method: &str, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = service.clone().oneshot(request.body(empty()).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let body = collect(response.into_body(), 1 << 20).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

const LOCAL: (&str, &str) = ("host", "127.0.0.1:8081");

#[tokio::test]
async fn the_store_is_in_the_metrics() {
    let (status, page) = ask(&admin(true, None), "GET", "/metrics", &[LOCAL]).await;
    assert_eq!(status, 200);
    assert!(page.contains("tidegate_store_bytes{tier=\"disk\"} 9"), "{page}");
    assert!(page.contains("tidegate_store_evictions_total{tier=\"disk\"} 2"), "{page}");
    assert!(page.ends_with("# EOF\n"));
}

#[tokio::test]
async fn a_web_page_cannot_reach_the_local_listener() {
    let admin = admin(true, None);
    for host in ["evil.test", "evil.test:8081", "192.0.2.1:8081", "127.0.0.1.evil.test", ""] {
        assert_eq!(ask(&admin, "GET", "/status", &[("host", host)]).await.0, 403, "{host}");
    }
    for host in ["localhost", "localhost:8081", "127.0.0.1", "[::1]:8081"] {
        assert_eq!(ask(&admin, "GET", "/status", &[("host", host)]).await.0, 200, "{host}");
    }
    let origin = ("origin", "http://evil.test");
    assert_eq!(ask(&admin, "POST", "/api/v1/purge?url=github.com/org/app", &[LOCAL, origin]).await.0, 403);
}

#[tokio::test]
async fn beyond_loopback_everything_but_metrics_needs_the_token() {
    let open = [("host", "tidegate.svc:8081")];
    let admin_with_token = admin(false, Some("s3cret"));
    assert_eq!(ask(&admin_with_token, "GET", "/metrics", &open).await.0, 200);
    for shown in ["", "Bearer wrong", "Bearer s3cre", "Basic s3cret", "s3cret"] {
        let headers = [open[0], ("authorization", shown)];
        assert_eq!(ask(&admin_with_token, "GET", "/status", &headers).await.0, 401, "{shown}");
    }
    let headers = [open[0], ("authorization", "bearer s3cret")];
    assert_eq!(ask(&admin_with_token, "GET", "/status", &headers).await.0, 200);
    let (status, words) = ask(&admin(false, None), "GET", "/status", &open).await;
    assert!(status == 403 && words.contains("admin_token"), "{words}");
}

#[tokio::test]
async fn routes_are_exact_and_have_their_method() {
    let admin = admin(true, None);
    for (method, path, status) in [
        ("GET", "/metrics/", 404),
        ("GET", "/api/v1/purge/x", 404),
        ("GET", "/api/v1/purge?url=github.com/org/app", 405),
        ("POST", "/metrics", 405),
        ("GET", "/api/v1/explain", 400),
        ("GET", "/api/v1/explain?url=evil.test/a", 403),
        ("GET", "/api/v1/explain?url=https%3A%2F%2Fgithub.com%2Forg%2F..%2Fapp", 400),
    ] {
        assert_eq!(ask(&admin, method, path, &[LOCAL]).await.0, status, "{method} {path}");
    }
}

#[tokio::test]
async fn the_rooms_are_asked() {
    let admin = admin(true, None);
    let (_, known) =
        ask(&admin, "GET", "/api/v1/explain?url=https%3A%2F%2Fgithub.com%2Forg%2Fapp", &[LOCAL]).await;
    let known: serde_json::Value = serde_json::from_str(&known).unwrap();
    assert_eq!(known["room"], "git");
    assert_eq!(known["upstream"]["credential"], "the caller's own");
    assert_eq!(known["known"]["age_seconds"], 7);
    let (_, relayed) = ask(&admin, "GET", "/api/v1/explain?url=github.com/else", &[LOCAL]).await;
    assert!(relayed.contains("\"raw\""), "{relayed}");
    let (status, purged) = ask(&admin, "POST", "/api/v1/purge?url=github.com/org/app", &[LOCAL]).await;
    assert!(status == 200 && purged.contains("42"), "{purged}");
    let (_, audit) = ask(&admin, "POST", "/api/v1/fsck", &[LOCAL]).await;
    assert!(audit.contains("a pack is gone"), "{audit}");
    assert_eq!(ask(&admin, "POST", "/api/v1/warm?url=github.com/else", &[LOCAL]).await.0, 404);
}
