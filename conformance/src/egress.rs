//! A forward proxy as companies have one: CONNECT and absolute-form requests,
//! counted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

const LONGEST_HEAD: usize = 64 << 10;

/// A running forward proxy.
pub struct Egress {
    address: SocketAddr,
    seen: Arc<AtomicUsize>,
    runtime: Option<Runtime>,
}

impl Egress {
    /// On a loopback port. Every name leads to `upstream`, as in a network without outside DNS.
    pub fn start(upstream: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime for the proxy");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port for the proxy");
        let address = listener.local_addr().expect("a bound listener has an address");
        let seen = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&seen);
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let counter = Arc::clone(&counter);
                tokio::spawn(async move {
                    counter.fetch_add(1, Ordering::Relaxed);
                    let _ = relay(client, upstream).await;
                });
            }
        });
        Self { address, seen, runtime: Some(runtime) }
    }

    /// `http://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How many connections it has carried.
    pub fn seen(&self) -> usize {
        self.seen.load(Ordering::Relaxed)
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn relay(mut client: TcpStream, upstream: SocketAddr) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < LONGEST_HEAD {
        head.push(client.read_u8().await?);
    }
    let mut server = TcpStream::connect(upstream).await?;
    if head.starts_with(b"CONNECT ") {
        client.write_all(b"HTTP/1.1 200 connected\r\n\r\n").await?;
    } else {
        server.write_all(&origin_form(&head)).await?;
    }
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

/// `GET http://host/path` becomes `GET /path`; one request per connection.
fn origin_form(head: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(head);
    let (first, rest) = text.split_once("\r\n").unwrap_or((&text, "\r\n"));
    let mut words = first.splitn(3, ' ');
    let (method, url) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = url.splitn(4, '/').nth(3).unwrap_or_default();
    format!("{method} /{path} HTTP/1.1\r\nConnection: close\r\n{rest}").into_bytes()
}
