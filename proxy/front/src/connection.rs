//! One connection: HTTP/1.1 or HTTP/2 by its first bytes, with its deadlines.

use std::{
    convert::Infallible,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Version};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use tidegate_http::{Body, BoxError, Client, stall_after};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, sleep},
};

use crate::{
    Limits, Serving,
    activity::{Activity, Running, Verdict},
    ask::ask,
    socket::ClientSocket,
    watched::Watched,
};

/// How much later than ours hyper's own timer ends an idle connection.
const BACKSTOP: Duration = Duration::from_secs(5);
/// HTTP/2 pings find dead peers; they must answer within the same time.
const PING: Duration = Duration::from_secs(20);
/// HTTP/2 bytes a client may send before we read them, over all its streams.
const CONNECTION_WINDOW: u32 = 1 << 20;

/// A connection about to be served.
pub(crate) struct Connection {
    pub(crate) serving: Serving,
    pub(crate) client: Client,
    pub(crate) socket: ClientSocket,
}

impl Connection {
    /// Serves requests until either side has enough.
    pub(crate) async fn run<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { serving, client, socket } = self;
        let Serving { app, limits, mut shutdown, .. } = serving;
        let activity = Activity::new(Arc::clone(&limits), client.address.ip().is_loopback());
        let io = TokioIo::new(Watched::new(stream, Arc::clone(&activity)));
        let service = {
            let (activity, limits) = (Arc::clone(&activity), Arc::clone(&limits));
            service_fn(move |request: Request<Incoming>| {
                let running = activity.begin(request.version() == Version::HTTP_2);
                let request = incoming(request, client, limits.body_stall);
                let answer = ask(app.clone(), request);
                async move {
                    let response = answer.await;
                    Ok::<_, Infallible>(response.map(|body| WatchedBody { body, running }))
                }
            })
        };
        let builder = builder(&limits);
        let mut connection = pin!(builder.serve_connection(io, service));
        let mut draining = false;
        let mut goodbye = false;
        let mut timer = pin!(sleep(limits.header_read));
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(client = %client.address, error, "a connection broke");
                    }
                    return;
                }
                _ = shutdown.wait_for(|down| *down), if !draining => {
                    draining = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = timer.as_mut() => {
                    let wait = match activity.judge() {
                        Verdict::Keep(wait) => { goodbye = false; wait }
                        Verdict::Close if !goodbye => {
                            goodbye = true;
                            connection.as_mut().graceful_shutdown();
                            // The end of an answer may still be on its way to a slow reader.
                            limits.response_stall
                        }
                        Verdict::Close => return,
                        Verdict::Cut(why) => {
                            tracing::info!(client = %client.address, why, "cut a connection");
                            socket.cut();
                            return;
                        }
                    };
                    timer.as_mut().reset(Instant::now() + wait);
                }
            }
        }
    }
}

fn incoming(request: Request<Incoming>, client: Client, stall: Duration) -> Request<Body> {
    let mut request = request.map(|body| stall_after(body.map_err(BoxError::from).boxed_unsync(), stall));
    request.extensions_mut().insert(client);
    request
}

fn builder(limits: &Limits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // The head's own deadline is in `activity`; this one also runs between
        // requests and is the backstop there.
        .header_read_timeout(limits.idle + BACKSTOP)
        .max_headers(limits.headers)
        // The buffer bounds the head; hyper wants at least 8 KiB.
        .max_buf_size(limits.header_bytes.max(8 << 10));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.h2_streams)
        .max_send_buf_size(limits.h2_send_buffer)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_pending_accept_reset_streams(20)
        .max_local_error_reset_streams(128)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    builder
}

/// A response's body on its way out; the request runs until it is dropped.
struct WatchedBody {
    body: Body,
    running: Running,
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.running.asked();
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            self.running.gave(frame.data_ref().map_or(0, Bytes::len));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
