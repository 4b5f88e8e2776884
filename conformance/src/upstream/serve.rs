//! The listener of a scripted upstream: connections, the log, the switches.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::State;
use super::answer::{self, Body, text};
use super::quirk::{IDLE, Quirk};
use super::users;

const LARGEST_BODY: usize = 256 << 20;

/// Serves until the runtime ends.
pub(super) async fn accept(listener: TcpListener, state: Arc<State>, secure: Option<TlsAcceptor>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let state = Arc::clone(&state);
        let secure = secure.clone();
        tokio::spawn(async move {
            match secure {
                None => connection(stream, state).await,
                Some(acceptor) => {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        connection(stream, state).await;
                    }
                }
            }
        });
    }
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, state: Arc<State>) {
    let turns = Arc::new(watch::Sender::new(0));
    let watched = turns.subscribe();
    let service = service_fn(move |request| {
        let state = Arc::clone(&state);
        let turns = Arc::clone(&turns);
        async move { Ok::<_, Infallible>(one(&state, request, turns).await) }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let served = builder.serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        _ = served => {}
        // Not a graceful end: the client finds out when it reuses the connection.
        () = idled(watched) => {}
    }
}

/// Counts the beginnings and the ends of requests on one `idle` connection: odd while one is answered.
type Turns = Arc<watch::Sender<u64>>;

/// Returns when an `idle` connection has had nothing to do for long enough.
async fn idled(mut turns: watch::Receiver<u64>) {
    loop {
        let turn = *turns.borrow_and_update();
        if turn == 0 || turn % 2 == 1 {
            if turns.changed().await.is_err() {
                return std::future::pending().await;
            }
        } else if timeout(IDLE, turns.changed()).await.is_err() {
            return;
        }
    }
}

async fn one(state: &Arc<State>, request: Request<Incoming>, turns: Turns) -> Response<Body> {
    let (head, body) = request.into_parts();
    let quirks = quirks(state, head.uri.path());
    let idle = quirks.as_ref().is_some_and(|(quirks, _)| quirks.contains(&Quirk::Idle));
    if idle {
        turns.send_modify(|turn| *turn += 1);
    }
    let Ok(body) = Limited::new(body, LARGEST_BODY).collect().await else {
        return text(413, "the body is too large or broke off\n");
    };
    let body = body.to_bytes();
    let entry = state.log.arrived(&head, users::user(&head.headers), &body);
    let mut stalled = state.stalled.subscribe();
    let _ = stalled.wait_for(|stalled| !stalled).await;
    let delay = *state.delay.lock().unwrap_or_else(PoisonError::into_inner);
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    let response = match quirks {
        None => text(404, "no such quirk\n"),
        Some((quirks, rest)) => {
            let kind = entry.kind;
            let asked = &entry.asked;
            let request = answer::Request { head: &head, body: &body, quirks, rest, kind, asked };
            answer::answer(state, request).await
        }
    };
    state.log.answered(entry.id, response.status().as_u16());
    if idle { response.map(|body| Answered { body, turns }.boxed()) } else { response }
}

/// A body that counts a turn when it was handed over to its last byte.
struct Answered {
    body: Body,
    turns: Turns,
}

impl hyper::body::Body for Answered {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        self.turns.send_modify(|turn| *turn += 1);
    }
}

fn quirks(state: &State, path: &str) -> Option<(Vec<Quirk>, String)> {
    let (segment, rest) = path.trim_start_matches('/').split_once('/')?;
    let mut quirks = Quirk::list(segment)?;
    quirks.extend(state.forced.lock().unwrap_or_else(PoisonError::into_inner).iter().copied());
    Some((quirks, format!("/{rest}")))
}
