//! One open connection, plain or TLS, as hyper's pool sees it.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

/// Whether a connection has carried an answer before: only then may its death
/// be the idle timeout of the other side.
#[derive(Clone, Debug)]
pub(crate) struct Used(pub(super) Arc<AtomicBool>);

impl Used {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// An open connection.
pub(crate) struct Wire {
    stream: Stream,
    /// Whether an HTTP proxy reads the requests.
    proxied: bool,
    used: Used,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Wire {
    pub(super) fn plain(stream: TcpStream, proxied: bool, used: Used) -> Self {
        Self { stream: Stream::Plain(stream), proxied, used }
    }

    pub(super) fn tls(stream: TlsStream<TcpStream>, used: Used) -> Self {
        // What is said inside a tunnel, the proxy doesn't read.
        Self { stream: Stream::Tls(Box::new(stream)), proxied: false, used }
    }
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        let connected = Connected::new().proxy(self.proxied).extra(self.used.clone());
        match &self.stream {
            Stream::Tls(tls) if tls.get_ref().1.alpn_protocol() == Some(b"h2") => connected.negotiated_h2(),
            _ => connected,
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }
}
