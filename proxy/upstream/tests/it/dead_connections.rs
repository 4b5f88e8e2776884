//! Connections that the upstream gave up while we still had them in the pool.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use http::{Method, Request};
use tidegate_http::{Identity, full};
use tidegate_upstream::{Ask, Client, Error, Kind, UpstreamConfig, Upstreams};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::fake::only;

/// A server that answers the first request of each connection and hangs up when
/// it has read the head of the second: the moment that no pool can see coming.
struct HangsUp {
    connections: Arc<AtomicUsize>,
    heads: Arc<Mutex<Vec<String>>>,
    client: Arc<Client>,
    _upstreams: Arc<Upstreams>,
}

impl HangsUp {
    async fn start(answers: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (connections, heads) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (counted, kept) = (Arc::clone(&connections), Arc::clone(&heads));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, answers, Arc::clone(&kept)));
            }
        });
        let config =
            UpstreamConfig { url: Some(url), allow_private: true, ..UpstreamConfig::new("git.test") };
        let (upstreams, client) = only(config);
        Self { connections, heads, client, _upstreams: upstreams }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    fn requests(&self, start: &str) -> usize {
        self.heads.lock().unwrap().iter().filter(|head| head.starts_with(start)).count()
    }
}

async fn serve(mut stream: TcpStream, answers: usize, heads: Arc<Mutex<Vec<String>>>) {
    for number in 0.. {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        let head = String::from_utf8(head).unwrap();
        let length = head
            .to_ascii_lowercase()
            .split_once("content-length: ")
            .map_or(0, |(_, rest)| rest.split("\r\n").next().unwrap().parse::<usize>().unwrap());
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        heads.lock().unwrap().push(head);
        if number >= answers {
            return;
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
    }
}

#[tokio::test]
async fn a_read_on_a_dead_pooled_connection_is_sent_once_more_on_a_new_one() {
    let server = HangsUp::start(1).await;
    for number in 1..=10 {
        for ask in [Ask::get(Kind::Refs, "/a"), Ask::post(Kind::Fetch, "/b", "0000")] {
            let response = server.client.send(ask).await.unwrap();
            let body = tidegate_http::collect(response.into_body(), 10).await.unwrap();
            assert_eq!(body, "ok", "{number}");
        }
    }
    assert!(server.connections() >= 10);
}

#[tokio::test]
async fn a_new_connection_that_dies_is_not_tried_again() {
    let server = HangsUp::start(0).await;
    let error = server.client.send(Ask::get(Kind::Refs, "/a")).await.unwrap_err();
    assert!(matches!(error, Error::Broken { .. }), "{error:?}");
    assert_eq!((server.connections(), server.requests("GET")), (1, 1));
}

#[tokio::test]
async fn a_push_is_never_sent_twice_and_never_on_a_used_connection() {
    let server = HangsUp::start(1).await;
    for number in 1..=5 {
        let response = server.client.send(Ask::get(Kind::Refs, "/a")).await.unwrap();
        tidegate_http::collect(response.into_body(), 10).await.unwrap();
        let request =
            Request::builder().method(Method::POST).uri("/git-receive-pack").body(full("push")).unwrap();
        let response = server.client.relay(request, &Identity::anonymous(), Kind::Push).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(server.requests("POST"), number);
    }
}

#[tokio::test]
async fn a_push_whose_connection_dies_fails_after_one_try() {
    let server = HangsUp::start(0).await;
    let request =
        Request::builder().method(Method::POST).uri("/git-receive-pack").body(full("push")).unwrap();
    let error = server.client.relay(request, &Identity::anonymous(), Kind::Push).await.unwrap_err();
    assert!(matches!(error, Error::Broken { .. }), "{error:?}");
    assert_eq!((server.connections(), server.requests("POST")), (1, 1));
}
