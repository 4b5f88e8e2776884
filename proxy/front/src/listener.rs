//! Listening sockets: accept within the caps, serve, drain.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tidegate_http::{Client, RoomService};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

use crate::{
    Limits,
    admission::{Admission, Seat},
    connection::Connection,
    listen::{Listen, Tls},
    socket::ClientSocket,
    tls::{TlsError, TlsIdentity},
};

/// Clients that the kernel holds for us until we accept them.
const BACKLOG: i32 = 4_096;
/// How long an accepted connection waits for its turn among its address's.
const TURN: Duration = Duration::from_secs(60);
/// Unsent bytes the kernel holds: small, so that a slow reader is told from one
/// that stopped, and a dead one costs little.
const UNSENT: u32 = 64 << 10;

/// Why a listener can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address can't be had.
    #[error("cannot listen on {address}")]
    Bind {
        /// Which address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The certificate or key can't be used.
    #[error("cannot serve TLS on {address}")]
    Tls {
        /// Which address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: TlsError,
    },
}

/// An open listening socket.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<Arc<TlsIdentity>>,
}

/// What connections of all listeners share.
#[derive(Clone)]
pub struct Serving {
    /// Answers the requests.
    pub app: RoomService,
    /// The caps.
    pub limits: Arc<Limits>,
    /// The seats.
    pub admission: Arc<Admission>,
    /// Turns true when the server shuts down.
    pub shutdown: watch::Receiver<bool>,
}

impl Listener {
    /// Opens the socket and reads the certificate. Blocks briefly.
    pub fn open(listen: &Listen) -> Result<Self, ListenError> {
        let address = listen.address;
        let tls = match &listen.tls {
            Tls::Off => None,
            Tls::Own(files) => {
                Some(TlsIdentity::load(files).map_err(|source| ListenError::Tls { address, source })?)
            }
        };
        let socket = bind(address).map_err(|source| ListenError::Bind { address, source })?;
        let address = socket.local_addr().map_err(|source| ListenError::Bind { address, source })?;
        Ok(Self { socket, address, tls })
    }

    /// Where it listens, with the port it got.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its certificate, to be reloaded.
    pub fn tls(&self) -> Option<&Arc<TlsIdentity>> {
        self.tls.as_ref()
    }

    /// Serves until `shutdown` turns true, then lets running answers end for at
    /// most [`Limits::drain`].
    pub async fn serve(self, serving: Serving) -> Result<(), ListenError> {
        let address = self.address;
        let acceptor = match &self.tls {
            None => None,
            Some(identity) => {
                let config =
                    identity.server_config().map_err(|source| ListenError::Tls { address, source })?;
                Some(TlsAcceptor::from(config))
            }
        };
        let mut connections = JoinSet::new();
        let mut shutdown = serving.shutdown.clone();
        loop {
            tokio::select! {
                _ = shutdown.wait_for(|down| *down) => break,
                Some(_) = connections.join_next() => {}
                (stream, peer, seat) = self.accept(&serving.admission) => {
                    let connection = Serve { serving: serving.clone(), acceptor: acceptor.clone(), seat };
                    connections.spawn(connection.run(stream, peer));
                }
            }
        }
        drop(self.socket);
        let drained =
            timeout(serving.limits.drain, async { while connections.join_next().await.is_some() {} });
        if drained.await.is_err() {
            tracing::warn!(%address, cut = connections.len(), "the drain deadline passed");
        }
        Ok(())
    }

    /// The next connection that has a seat. Safe to cancel: nothing accepted is
    /// lost, since no await follows the accept.
    async fn accept(&self, admission: &Arc<Admission>) -> (TcpStream, SocketAddr, Seat) {
        loop {
            let total = admission.next().await;
            match self.socket.accept().await {
                Ok((stream, peer)) => {
                    tune(&stream);
                    if let Some(seat) = admission.sit(peer.ip(), total) {
                        return (stream, peer, seat);
                    }
                    tracing::debug!(%peer, "too many connections of this address wait already");
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    // Out of descriptors or memory: pause instead of spinning.
                    tracing::error!(%error, address = %self.address, "cannot accept connections");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

struct Serve {
    serving: Serving,
    acceptor: Option<TlsAcceptor>,
    seat: Seat,
}

impl Serve {
    async fn run(self, stream: TcpStream, peer: SocketAddr) {
        let Ok(_turn) = timeout(TURN, self.seat.turn()).await else { return };
        let address = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let client = Client { address, encrypted: self.acceptor.is_some() };
        let socket = ClientSocket::new(stream);
        let connection = Connection { serving: self.serving.clone(), client, socket: socket.clone() };
        match self.acceptor {
            None => connection.run(socket).await,
            Some(acceptor) => {
                let handshake = timeout(self.serving.limits.header_read, acceptor.accept(socket));
                match handshake.await {
                    Ok(Ok(stream)) => connection.run(stream).await,
                    Ok(Err(error)) => tracing::debug!(client = %address, %error, "the TLS handshake failed"),
                    Err(_) => tracing::debug!(client = %address, "the TLS handshake took too long"),
                }
            }
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        // [::] means both families, whatever net.ipv6.bindv6only says.
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Best effort: a socket without these still works.
fn tune(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(60));
    let tuned = socket
        .set_tcp_nodelay(true)
        .and_then(|()| socket.set_tcp_keepalive(&keepalive))
        .and_then(|()| socket.set_tcp_notsent_lowat(UNSENT));
    if let Err(error) = tuned {
        tracing::debug!(%error, "cannot tune a socket");
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}
