//! The front over real sockets: what a client on the wire sees.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use prometheus_client::registry::Registry;
use tidegate_http::{Body, Mount, Outcome, RoomService, Served, full, stream, text};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::watch,
    task::JoinHandle,
    time::timeout,
};
use tower::service_fn;

use crate::{Admission, ForwardDoor, Limits, Listen, Listener, Metrics, PrefixDoor, Serving, Site, app};

struct Front {
    address: SocketAddr,
    shutdown: watch::Sender<bool>,
    served: JoinHandle<()>,
    metrics: Arc<Metrics>,
}

impl Front {
    fn start(limits: Limits) -> Self {
        let listener = Listener::open(&Listen::plain(([127, 0, 0, 1], 0).into())).unwrap();
        let address = listener.address();
        let (shutdown, receiver) = watch::channel(false);
        let metrics = Arc::new(Metrics::default());
        let admission = Admission::new(limits.connections, limits.connections_per_address);
        let app = app(site(), &metrics);
        let serving = Serving { app, limits: Arc::new(limits), admission, shutdown: receiver };
        let served = tokio::spawn(async move { listener.serve(serving).await.unwrap() });
        Self { address, shutdown, served, metrics }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn ask(&self, request: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    async fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n")).await
    }

    fn scrape(&self) -> String {
        let mut registry = Registry::with_prefix("tidegate");
        self.metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }
}

fn site() -> Site {
    let service = RoomService::new(service_fn(|request| async move { Ok(room(request).await) }));
    Site {
        doors: vec![Box::new(ForwardDoor), Box::new(PrefixDoor)],
        mounts: vec![Mount { name: "echo", claims: |_| true, service }],
        allowed: Box::new(|upstream| matches!(upstream.as_str(), "git.test" | "127.0.0.1:3000")),
        ready: Box::new(|| Ok(())),
    }
}

async fn room(request: Request<Body>) -> Response<Body> {
    let path = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    match path.as_str() {
        "echo" => {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            Response::new(full(body))
        }
        "unread" => text(StatusCode::UNAUTHORIZED, Outcome::Denied, "no"),
        "panic" => panic!("a bug"),
        "cut" => {
            let chunks = vec![Ok(Bytes::from("half")), Err("the upstream broke off".into())];
            Response::new(stream(futures_util::stream::iter(chunks)))
        }
        "stale" => {
            let age = Some(Duration::from_secs(150));
            let served = Served { age, ttl: Some(-30), generation: Some(7), ..Served::new(Outcome::Stale) };
            let mut response = Response::new(full("old"));
            response.extensions_mut().insert(served);
            response
        }
        "never" => {
            let () = std::future::pending().await;
            unreachable!()
        }
        _ => Response::new(full(path)),
    }
}

#[tokio::test]
async fn what_the_cache_did_is_in_the_headers_and_the_metric() {
    let front = Front::start(Limits::default());
    let answer = front.get("/git.test/a/stale").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    for line in
        ["cache-status: tidegate; hit; ttl=-30", "age: 150", "tidegate-generation: 7", "x-request-id: "]
    {
        assert!(answer.contains(line), "{line} is not in {answer}");
    }
    let metrics = front.scrape();
    let line = "tidegate_requests_total{protocol=\"echo\",outcome=\"stale\",status=\"200\"} 1";
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test]
async fn every_bad_request_gets_its_status_and_words() {
    let front = Front::start(Limits::default());
    for (path, status, words) in [
        ("/evil.test/a", "403", "- host: evil.test"),
        ("/127.0.0.1/a", "400", "127.0.0.1 is an address"),
        ("/2130706433/a", "400", "is an address"),
        ("/[::1]/a", "400", ""),
        ("/u:p@git.test/a", "400", "no user name"),
        ("/git.test./a", "400", "trailing dot"),
        ("/git%2etest/a", "400", "never escaped"),
        ("/git.test/a/../b", "400", "`.` or `..`"),
        ("/git.test/a/%2e%2E/b", "400", "`.` or `..`"),
        ("/git.test//a", "400", "empty segment"),
        ("/git.test/a%2fb", "400", "escaped slash"),
        ("/git.test/a%00", "400", "NUL"),
        ("http://git.test/a", "400", "absolute form"),
        ("/-/nothing", "404", ""),
        ("/", "404", "/<host>/<path>"),
        ("/127.0.0.1:3000/a/x", "200", "x"),
        ("/GIT.test/a/x", "200", "x"),
        ("/-/healthz", "200", "ok"),
        ("/-/readyz", "200", "ready"),
    ] {
        let answer = front.get(path).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
        assert!(answer.contains(words), "{path}: {answer}");
    }
    let answer =
        front.ask("CONNECT git.test:443 HTTP/1.1\r\nhost: git.test:443\r\nconnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
}

// K24, with a length and chunked.
#[tokio::test]
async fn a_client_that_expects_100_is_told_to_go_on() {
    let front = Front::start(Limits::default());
    for (framing, body) in
        [("content-length: 5", "hello"), ("transfer-encoding: chunked", "5\r\nhello\r\n0\r\n\r\n")]
    {
        let mut stream = front.connect().await;
        let head = format!(
            "POST /git.test/echo HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\nconnection: close\r\n{framing}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut go_on = [0; 25];
        timeout(Duration::from_secs(1), stream.read_exact(&mut go_on)).await.unwrap().unwrap();
        assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream.write_all(body.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"), "{answer}");
    }
}

#[tokio::test]
async fn a_client_that_expects_100_may_get_its_final_answer_at_once() {
    let front = Front::start(Limits::default());
    let mut stream = front.connect().await;
    let head =
        b"POST /git.test/unread HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n";
    stream.write_all(head).await.unwrap();
    let mut start = [0; 12];
    timeout(Duration::from_secs(1), stream.read_exact(&mut start)).await.unwrap().unwrap();
    assert_eq!(&start, b"HTTP/1.1 401");
}

#[tokio::test]
async fn a_panic_is_a_500_and_the_next_request_is_answered() {
    let front = Front::start(Limits::default());
    assert!(front.get("/git.test/panic").await.starts_with("HTTP/1.1 500"));
    assert!(front.get("/git.test/x").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_broken_answer_is_cut_and_never_looks_complete() {
    let front = Front::start(Limits::default());
    let answer = front.get("/git.test/cut").await;
    assert!(!answer.ends_with("0\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn a_head_has_no_body_and_a_length() {
    let front = Front::start(Limits::default());
    let answer = front.ask("HEAD /git.test/abc HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n").await;
    assert!(answer.contains("content-length: 3") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn too_many_or_too_large_headers_are_431() {
    let front = Front::start(Limits::default());
    let many = "a: b\r\n".repeat(65);
    let large = format!("a: {}\r\n", "x".repeat(20 << 10));
    for headers in [many, large] {
        let answer = front.ask(&format!("GET /-/healthz HTTP/1.1\r\nhost: t\r\n{headers}\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    }
}

#[tokio::test]
async fn a_head_that_never_ends_is_cut() {
    let limits = Limits { header_read: Duration::from_millis(200), ..Limits::default() };
    let front = Front::start(limits);
    for start in ["", "P", "GET /-/healthz HT"] {
        assert_eq!(front.ask(start).await, "", "{start:?}");
    }
}

#[tokio::test]
async fn the_connection_over_the_cap_waits_and_is_then_served() {
    let front = Front::start(Limits { connections_per_address: 1, ..Limits::default() });
    let mut first = front.connect().await;
    first.write_all(b"GET /git.test/x HTTP/1.1\r\nhost: t\r\n\r\n").await.unwrap();
    let mut start = [0; 12];
    first.read_exact(&mut start).await.unwrap();
    let mut second = front.connect().await;
    second.write_all(b"GET /git.test/x HTTP/1.1\r\nhost: t\r\n\r\n").await.unwrap();
    assert!(timeout(Duration::from_millis(100), second.read_exact(&mut start)).await.is_err());
    drop(first);
    timeout(Duration::from_secs(9), second.read_exact(&mut start)).await.unwrap().unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
}

#[tokio::test]
async fn a_drain_ends_idle_connections_at_once_and_stuck_ones_at_its_deadline() {
    let front = Front::start(Limits { drain: Duration::from_millis(300), ..Limits::default() });
    let mut idle = front.connect().await;
    idle.write_all(b"GET /git.test/x HTTP/1.1\r\nhost: t\r\n\r\n").await.unwrap();
    let mut start = [0; 12];
    idle.read_exact(&mut start).await.unwrap();
    let mut stuck = front.connect().await;
    stuck.write_all(b"GET /git.test/never HTTP/1.1\r\nhost: t\r\n\r\n").await.unwrap();
    front.shutdown.send(true).unwrap();
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).await.unwrap();
    timeout(Duration::from_secs(9), front.served).await.unwrap().unwrap();
    assert!(TcpStream::connect(front.address).await.is_err());
}

#[tokio::test]
async fn a_connection_that_is_cut_is_reset() {
    let front = Front::start(Limits { header_read: Duration::from_millis(100), ..Limits::default() });
    let mut stream = front.connect().await;
    stream.write_all(b"GET /-/heal").await.unwrap();
    let error = stream.read(&mut [0; 9]).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}
