//! Servers to ask: what they answer is a function, what they were asked is kept.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tidegate_http::{Body, empty, full};
use tidegate_upstream::{Client, Settings, UpstreamConfig, Upstreams};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};

/// One request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The number of the connection it came on.
    pub(crate) connection: usize,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// A server on loopback.
#[derive(Clone)]
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Fake {
    /// Answers in plain HTTP on 127.0.0.1.
    pub(crate) async fn start(answer: impl Fn(&Seen) -> Response<Body> + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0", None, answer).await
    }

    /// Answers at this address, with TLS if there is a config for it.
    pub(crate) async fn start_at(
        address: &str,
        tls: Option<Arc<rustls::ServerConfig>>,
        answer: impl Fn(&Seen) -> Response<Body> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let fake = Self { address: listener.local_addr().unwrap(), seen: Arc::default() };
        let (seen, answer) = (Arc::clone(&fake.seen), Arc::new(answer));
        tokio::spawn(async move {
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                let tls = tls.clone();
                tokio::spawn(async move {
                    let Some(tls) = tls else { return serve(stream, connection, seen, answer).await };
                    let Ok(stream) = tokio_rustls::TlsAcceptor::from(tls).accept(stream).await else {
                        return;
                    };
                    serve(stream, connection, seen, answer).await;
                });
            }
        });
        fake
    }

    /// All requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Its address as a base URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A config for it under a name.
    pub(crate) fn config(&self, host: &str) -> UpstreamConfig {
        UpstreamConfig { url: Some(self.url()), allow_private: true, ..UpstreamConfig::new(host) }
    }

    /// The client for it alone, as `git.test`.
    pub(crate) fn client(&self) -> (Arc<Upstreams>, Arc<Client>) {
        only(self.config("git.test"))
    }
}

async fn serve<S, F>(stream: S, connection: usize, seen: Arc<Mutex<Vec<Seen>>>, answer: Arc<F>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(&Seen) -> Response<Body> + Send + Sync + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let request = Seen {
                method: parts.method,
                uri: parts.uri,
                version: parts.version,
                headers: parts.headers,
                body,
                connection,
            };
            let response = answer(&request);
            seen.lock().unwrap().push(request);
            Ok::<_, Infallible>(response)
        }
    });
    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}

/// The client of the only upstream there is.
pub(crate) fn only(config: UpstreamConfig) -> (Arc<Upstreams>, Arc<Client>) {
    with_settings(config, Settings::default())
}

pub(crate) fn with_settings(config: UpstreamConfig, settings: Settings) -> (Arc<Upstreams>, Arc<Client>) {
    let name = config.host.parse().unwrap();
    let upstreams = Upstreams::new(vec![config], settings).unwrap();
    let client = upstreams.get(&name).unwrap();
    (upstreams, client)
}

pub(crate) fn status(status: u16) -> Response<Body> {
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

pub(crate) fn ok(text: &str) -> Response<Body> {
    Response::new(full(text.to_owned()))
}

pub(crate) fn redirect(code: u16, location: &str) -> Response<Body> {
    let mut response = status(code);
    response.headers_mut().insert("location", location.parse().unwrap());
    response
}

pub(crate) async fn text(response: Response<Body>) -> String {
    let body = tidegate_http::collect(response.into_body(), 1 << 20).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}
