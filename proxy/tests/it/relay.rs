//! The uncached way through, against a small upstream of our own.

use std::{
    io::{BufRead as _, BufReader, Read, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::mpsc::{Receiver, channel},
    thread,
};

use crate::program::{Server, ask, connect};

/// Answers every request with 200 and what it was sent; tells each head.
fn upstream() -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, heads) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let sender = sender.clone();
            thread::spawn(move || {
                while let Some(head) = answer(&stream) {
                    let _ = sender.send(head);
                }
            });
        }
    });
    (address, heads)
}

fn answer(mut stream: &TcpStream) -> Option<String> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let lower = head.to_ascii_lowercase();
    let mut body = Vec::new();
    if let Some(length) = lower.split("content-length: ").nth(1) {
        let length = length.split("\r\n").next()?.parse().ok()?;
        reader.take(length).read_to_end(&mut body).ok()?;
    } else if lower.contains("transfer-encoding: chunked") {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size).ok()?;
            let size = u64::from_str_radix(size.trim(), 16).ok()?;
            let mut chunk = Vec::new();
            Read::by_ref(&mut reader).take(size + 2).read_to_end(&mut chunk).ok()?;
            body.extend_from_slice(&chunk[..chunk.len().checked_sub(2)?]);
            if size == 0 {
                break;
            }
        }
    }
    let start = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(&[start.as_bytes(), &body].concat()).ok()?;
    Some(head)
}

fn start(upstream: SocketAddr) -> Server {
    Server::start(&format!(
        "listen: 127.0.0.1:0\nupstreams: [{{host: git.test, url: 'http://{upstream}/base', allow_private: true}}]\n"
    ))
}

#[test]
fn a_path_without_a_room_is_relayed_and_says_so() {
    let (upstream, heads) = upstream();
    let server = start(upstream);
    let answer = server.get("/git.test/org/app/releases?page=2");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("cache-status: tidegate; fwd=bypass; detail=relay"), "{answer}");
    assert!(heads.recv().unwrap().starts_with("GET /base/org/app/releases?page=2 HTTP/1.1"));
}

// K24: the expectation is met here and not passed on.
#[test]
fn a_body_that_waits_for_100_continue_is_asked_for() {
    let (upstream, heads) = upstream();
    let server = start(upstream);
    for (framing, body) in
        [("content-length: 5", "hello"), ("transfer-encoding: chunked", "5\r\nhello\r\n0\r\n\r\n")]
    {
        let mut stream = connect(server.clients);
        let head = format!(
            "POST /git.test/a.git/git-receive-pack HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\nconnection: close\r\n{framing}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut go_on = [0; 25];
        stream.read_exact(&mut go_on).unwrap();
        assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream.write_all(body.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"), "{answer}");
        assert!(!heads.recv().unwrap().to_ascii_lowercase().contains("expect:"));
    }
}

#[test]
fn an_upstream_that_is_down_is_a_gateway_error_with_its_name() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = start(closed);
    let answer = server.get("/git.test/org/app/releases");
    assert!(answer.starts_with("HTTP/1.1 502") && answer.contains("git.test"), "{answer}");
}

#[test]
fn a_credential_reaches_the_upstream_and_never_the_log() {
    let (upstream, heads) = upstream();
    let mut server = start(upstream);
    let request = "GET /git.test/a HTTP/1.1\r\nhost: t\r\nauthorization: Basic aHVudGVyMg==\r\nconnection: close\r\n\r\n";
    assert!(ask(server.clients, request).starts_with("HTTP/1.1 200"));
    assert!(heads.recv().unwrap().contains("Basic aHVudGVyMg=="));
    server.said(&["tidegate::request", "protocol=\"raw\"", "outcome=\"relay\""]);
    assert!(!server.everything().contains("aHVudGVyMg"));
}
