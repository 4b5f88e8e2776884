//! The last thing done for a request: its cache headers, and once its body has
//! ended its metric and its one log line.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version,
    header::{AGE, CONTENT_LENGTH},
};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tidegate_http::{Body, Client, Outcome, RoomService, Served};
use tokio::time::Instant;
use tower::service_fn;
use tracing::Instrument as _;

use crate::{
    Metrics,
    ask::ask,
    counted::{CountedIn, CountedOut, End},
    dispatch::{Asked, Protocol},
    plaintext::{Notice, Plaintext},
};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");
const GENERATION: HeaderName = HeaderName::from_static("tidegate-generation");
/// The longest path that is logged whole.
const PATH_LOGGED: usize = 512;

/// Reports every request that `inner` answers.
pub(crate) fn reported(inner: RoomService, metrics: Arc<Metrics>) -> RoomService {
    let reporter = Arc::new(Reporter {
        metrics,
        plaintext: Plaintext::default(),
        prefix: RandomState::new().build_hasher().finish(),
        count: AtomicU64::new(0),
    });
    RoomService::new(service_fn(move |request| {
        let (reporter, inner) = (Arc::clone(&reporter), inner.clone());
        async move { Ok(reporter.answer(inner, request).await) }
    }))
}

struct Reporter {
    metrics: Arc<Metrics>,
    plaintext: Plaintext,
    prefix: u64,
    count: AtomicU64,
}

impl Reporter {
    async fn answer(self: Arc<Self>, inner: RoomService, request: Request<Body>) -> Response<Body> {
        let started = Instant::now();
        let client = request.extensions().get::<Client>().copied();
        let id = self.request_id(request.headers());
        if let Some(client) = client {
            self.notice(client, request.headers());
        }
        let received = Arc::new(AtomicU64::new(0));
        let mut line = Line {
            id: id.clone(),
            client: client.map(|client| client.address),
            method: request.method().clone(),
            version: request.version(),
            host: None,
            path: loggable(request.uri().path()),
            protocol: "tidegate",
            served: Served::new(Outcome::Bypass),
            status: StatusCode::OK,
            first_byte: Duration::ZERO,
        };
        let counted = Arc::clone(&received);
        let request = request.map(|body| CountedIn { body, bytes: counted }.boxed_unsync());
        let span = tracing::debug_span!("request", id);
        let mut response = ask(inner, request).instrument(span.clone()).await;
        line.learn(&response);
        write_headers(&mut response, &line);
        line.first_byte = started.elapsed();
        let expected = expected(&line.method, &response);
        response.map(|body| {
            let finish = Box::new(move |sent, end| {
                let _entered = span.entered();
                let sent = if line.method == Method::HEAD { 0 } else { sent };
                let bytes = (received.load(Ordering::Relaxed), sent);
                let total = started.elapsed();
                line.write(bytes, total, end);
                self.metrics.request(line.protocol, line.served.outcome, line.status, total);
            });
            CountedOut::new(body, expected, finish).boxed_unsync()
        })
    }

    /// The client's own id if it is harmless, so that logs can be joined.
    fn request_id(&self, headers: &HeaderMap) -> String {
        let harmless = |id: &&str| {
            (1..=64).contains(&id.len())
                && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        };
        let theirs = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok()).filter(harmless);
        theirs.map_or_else(
            || format!("{:08x}-{}", self.prefix >> 32, self.count.fetch_add(1, Ordering::Relaxed)),
            str::to_owned,
        )
    }

    fn notice(&self, client: Client, headers: &HeaderMap) {
        let notice = self.plaintext.notice(client, headers);
        if notice != Notice::Fine {
            self.metrics.plaintext();
        }
        if notice == Notice::Tell {
            let words =
                "a credential came over plain HTTP; give this listener `tls`, or let clients use https";
            tracing::warn!(client = %client.address.ip(), "{words}");
        }
    }
}

/// What the log line says.
struct Line {
    id: String,
    client: Option<SocketAddr>,
    method: Method,
    version: Version,
    host: Option<String>,
    path: String,
    protocol: &'static str,
    served: Served,
    status: StatusCode,
    first_byte: Duration,
}

impl Line {
    fn learn(&mut self, response: &Response<Body>) {
        let extensions = response.extensions();
        self.status = response.status();
        if let Some(Protocol(name)) = extensions.get() {
            self.protocol = name;
        }
        if let Some(Asked(destination)) = extensions.get() {
            self.host = Some(destination.upstream.to_string());
            self.path = loggable(&destination.path);
        }
        // A room that left no word passed something through.
        let unsaid = if self.protocol == "tidegate" { Outcome::Bypass } else { Outcome::Relay };
        self.served = extensions.get().copied().unwrap_or(Served::new(unsaid));
    }

    fn write(&self, (bytes_in, bytes_out): (u64, u64), total: Duration, end: End) {
        tracing::info!(
            target: "tidegate::request",
            id = self.id,
            client = self.client.map(tracing::field::display),
            method = %self.method,
            version = ?self.version,
            host = self.host,
            path = self.path,
            protocol = self.protocol,
            outcome = self.served.outcome.as_str(),
            detail = self.served.detail,
            status = self.status.as_u16(),
            bytes_in,
            bytes_out,
            first_byte_ms = milliseconds(self.first_byte),
            total_ms = milliseconds(total),
            generation = self.served.generation,
            age_s = self.served.age.map(|age| age.as_secs()),
            end = match end {
                End::Complete => "complete",
                End::Broken => "broken",
                End::Abandoned => "abandoned",
            },
            "request"
        );
    }
}

fn write_headers(response: &mut Response<Body>, line: &Line) {
    let served = response.extensions().get::<Served>().copied();
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&line.id) {
        headers.insert(REQUEST_ID, id);
    }
    let Some(served) = served else { return };
    // Appended: the upstream may have been a cache itself (RFC 9211 section 2).
    headers.append(CACHE_STATUS, served.cache_status());
    if let Some(age) = served.age {
        headers.insert(AGE, age.as_secs().into());
    }
    if let Some(generation) = served.generation {
        headers.insert(GENERATION, generation.into());
    }
}

/// How many body bytes make the answer complete, where that is known.
fn expected(method: &Method, response: &Response<Body>) -> Option<u64> {
    if *method == Method::HEAD
        || matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
    {
        return Some(0);
    }
    let announced = response.headers().get(CONTENT_LENGTH);
    let announced = announced.and_then(|value| value.to_str().ok()).and_then(|text| text.parse().ok());
    announced.or_else(|| response.body().size_hint().exact())
}

/// A path for the log: no query comes here, and a first segment that may hold
/// a password (`user:secret@host`) is left out.
fn loggable(path: &str) -> String {
    let rest = path.trim_start_matches('/');
    let (first, rest) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let path = if first.contains(['@', '%']) { format!("/(refused){rest}") } else { path.to_owned() };
    let mut short: String = path.escape_debug().take(PATH_LOGGED).collect();
    if short.len() < path.len() && short.len() >= PATH_LOGGED {
        short.push_str("...");
    }
    short
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_the_first_segment_is_not_logged() {
        assert_eq!(loggable("/user:hunter2@github.com/a"), "/(refused)/a");
        assert_eq!(loggable("/user:hunter2%40github.com"), "/(refused)");
        assert_eq!(loggable("//u:p@h/a"), "/(refused)/a");
        assert_eq!(loggable("/github.com/a\u{7f}"), "/github.com/a\\u{7f}");
        assert_eq!(loggable(&format!("/h/{}", "a".repeat(9_999))).len(), PATH_LOGGED + 3);
    }
}
