//! The pool of one upstream, and what its failures mean.

use std::{
    error::Error as StdError,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use http::{Extensions, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, Error as PoolError},
    rt::{TokioExecutor, TokioTimer},
};
use tidegate_http::Body;
use tidegate_name::Upstream;
use tokio::time::{Instant, timeout_at};

use crate::{
    body::watch,
    connect::{ConnectError, Connector, Used, Way},
    error::{Cause, Error},
};

/// Shorter than what servers usually allow, so that they seldom hang up on us.
const IDLE: Duration = Duration::from_secs(30);
/// Longest head of an HTTP/1 answer, and its most header fields.
const HEAD: usize = 64 * 1024;
const HEADERS: usize = 128;
/// HTTP/2 flow control: what one body, and all of a connection, may run ahead.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

/// Sends requests and nothing else.
pub(crate) struct Transport {
    pooled: Client<Connector, Body>,
    /// The same way, but a new connection for every request.
    fresh: Client<Connector, Body>,
    pub(crate) way: Arc<Way>,
}

/// A request that got no answer.
pub(crate) struct Failure {
    kind: FailureKind,
    /// Whether a used connection died before the first byte of an answer: most
    /// likely the server had just given it up.
    pub(crate) lost: bool,
}

enum FailureKind {
    Guard(IpAddr),
    Connect(Cause),
    Tls(Cause),
    Timeout(Duration),
    Broken(Cause),
}

/// How long an answer may take; a streamed body that still moves moves the
/// deadline.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    start: Instant,
    /// Milliseconds from `start` to the last sign of life.
    last: Arc<AtomicU64>,
    after: Duration,
    /// Whether the streamed body failed, which is its sender's fault.
    body_failed: Arc<AtomicBool>,
}

impl Transport {
    pub(crate) fn new(way: Way, idle_per_host: usize) -> Self {
        let way = Arc::new(way);
        let client = |idle| {
            Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .timer(TokioTimer::new())
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(idle)
                .http1_max_buf_size(HEAD)
                .http1_max_headers(HEADERS)
                .http2_max_header_list_size(64 * 1024)
                .http2_initial_stream_window_size(STREAM_WINDOW)
                .http2_initial_connection_window_size(CONNECTION_WINDOW)
                .http2_keep_alive_interval(Duration::from_secs(20))
                .http2_keep_alive_timeout(Duration::from_secs(10))
                // Only what was never put on the wire; the rest is ours to judge.
                .retry_canceled_requests(true)
                .build(Connector::new(Arc::clone(&way)))
        };
        Self { pooled: client(idle_per_host), fresh: client(0), way }
    }

    /// Sends a request; the answer's body is still to come.
    pub(crate) async fn call(
        &self,
        mut request: Request<Body>,
        fresh: bool,
        pace: &Pace,
    ) -> Result<Response<Incoming>, Failure> {
        if request.uri().scheme_str() == Some("http")
            && let Some(proxy) = self.way.egress.proxy(request.uri())
            && let Some(authorization) = &proxy.authorization
        {
            request.headers_mut().insert(http::header::PROXY_AUTHORIZATION, authorization.clone());
        }
        let client = if fresh { &self.fresh } else { &self.pooled };
        match pace.limit(client.request(request)).await {
            Ok(Ok(response)) => {
                if let Some(used) = response.extensions().get::<Used>() {
                    used.set();
                }
                Ok(response)
            }
            Ok(Err(error)) => Err(Failure::from(&error)),
            Err(after) => Err(Failure { kind: FailureKind::Timeout(after), lost: false }),
        }
    }
}

impl Pace {
    pub(crate) fn new(after: Duration) -> Self {
        Self { start: Instant::now(), last: Arc::default(), after, body_failed: Arc::default() }
    }

    /// Lets every part of `body` that is sent move the deadline.
    pub(crate) fn follow(&self, body: Body) -> Body {
        let failed = Arc::clone(&self.body_failed);
        let body = body.map_err(move |error| {
            failed.store(true, Ordering::Relaxed);
            error
        });
        let pace = self.clone();
        watch(body.boxed_unsync(), move || {
            let elapsed = pace.start.elapsed().as_millis();
            pace.last.store(u64::try_from(elapsed).unwrap_or(0), Ordering::Relaxed);
        })
    }

    /// Whether the body that is sent broke off by itself.
    pub(crate) fn body_failed(&self) -> bool {
        self.body_failed.load(Ordering::Relaxed)
    }

    async fn limit<T>(&self, answer: impl Future<Output = T>) -> Result<T, Duration> {
        let mut answer = std::pin::pin!(answer);
        loop {
            let deadline = self.deadline();
            match timeout_at(deadline, &mut answer).await {
                Ok(answer) => return Ok(answer),
                Err(_) if self.deadline() > deadline => {}
                Err(_) => return Err(self.after),
            }
        }
    }

    fn deadline(&self) -> Instant {
        self.start + Duration::from_millis(self.last.load(Ordering::Relaxed)) + self.after
    }
}

impl Failure {
    pub(crate) fn into_error(self, upstream: Upstream) -> Error {
        match self.kind {
            FailureKind::Guard(address) => Error::Guard { upstream, address },
            FailureKind::Connect(source) => Error::Connect { upstream, source },
            FailureKind::Tls(source) => Error::Tls { upstream, source },
            FailureKind::Timeout(after) => Error::Timeout { upstream, after },
            FailureKind::Broken(source) => Error::Broken { upstream, source },
        }
    }
}

impl From<&PoolError> for Failure {
    fn from(error: &PoolError) -> Self {
        let kind = match find::<ConnectError>(error) {
            Some(ConnectError::Guard(address)) => FailureKind::Guard(*address),
            Some(fault @ (ConnectError::Tls(_) | ConnectError::TlsTimeout(_))) => {
                FailureKind::Tls(cause(fault.to_string()))
            }
            Some(fault) => FailureKind::Connect(cause(fault.to_string())),
            None => FailureKind::Broken(cause(chain(error))),
        };
        let mut extensions = Extensions::new();
        if let Some(connection) = error.connect_info() {
            connection.get_extras(&mut extensions);
        }
        let used = extensions.get::<Used>().is_some_and(Used::get);
        // An answer that is no HTTP would be none the second time either.
        let answered = find::<hyper::Error>(error).is_some_and(hyper::Error::is_parse);
        Self { lost: matches!(kind, FailureKind::Broken(_)) && used && !answered, kind }
    }
}

fn find<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a T> {
    std::iter::successors(Some(error), |&error| error.source()).find_map(|error| error.downcast_ref())
}

/// The causes below the pool's own words, which say nothing.
fn chain(error: &PoolError) -> String {
    let causes = std::iter::successors(error.source(), |&error| error.source());
    let mut texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.dedup();
    texts.join(": ")
}

fn cause(text: String) -> Cause {
    Cause::from(Box::<dyn StdError + Send + Sync>::from(text))
}
