//! The listener of a scripted upstream: connections, the log, the switches.

use std::convert::Infallible;
use std::sync::{Arc, PoisonError};

use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Notify;
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
    let idle = Arc::new(Notify::new());
    let closing = Arc::clone(&idle);
    let service = service_fn(move |request| {
        let state = Arc::clone(&state);
        let closing = Arc::clone(&closing);
        async move { Ok::<_, Infallible>(one(&state, request, &closing).await) }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let served = builder.serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        _ = served => {}
        // Not a graceful end: the client finds out when it reuses the connection.
        () = async { idle.notified().await; tokio::time::sleep(IDLE).await } => {}
    }
}

async fn one(state: &Arc<State>, request: Request<Incoming>, closing: &Notify) -> Response<Body> {
    let (head, body) = request.into_parts();
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
    let response = match quirks(state, head.uri.path()) {
        None => text(404, "no such quirk\n"),
        Some((quirks, rest)) => {
            if quirks.contains(&Quirk::Idle) {
                closing.notify_one();
            }
            let kind = entry.kind;
            let asked = &entry.asked;
            let request = answer::Request { head: &head, body: &body, quirks, rest, kind, asked };
            answer::answer(state, request).await
        }
    };
    state.log.answered(entry.id, response.status().as_u16());
    response
}

fn quirks(state: &State, path: &str) -> Option<(Vec<Quirk>, String)> {
    let (segment, rest) = path.trim_start_matches('/').split_once('/')?;
    let mut quirks = Quirk::list(segment)?;
    quirks.extend(state.forced.lock().unwrap_or_else(PoisonError::into_inner).iter().copied());
    Some((quirks, format!("/{rest}")))
}
