//! Opens connections: resolve, guard, connect to what was checked, TLS.
//!
//! Every address a name has is checked before any is connected to, and only
//! checked addresses are connected to, so a name can't change its mind in
//! between. Each stage has its own deadline.

mod resolve;
mod tunnel;
mod wire;

use std::{
    future::Future,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{Arc, atomic::AtomicBool},
    task::{Context, Poll},
    time::Duration,
};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use http::Uri;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_rustls::TlsConnector;
use tower::Service;

pub(crate) use self::{
    resolve::Resolver,
    wire::{Used, Wire},
};
use crate::{
    config::AddressFamily,
    egress::{Egress, Proxy},
    guard, locate,
    upstreams::Deadlines,
};

/// The head start of each address before the next is tried (RFC 8305).
const STAGGER: Duration = Duration::from_millis(250);
/// Most addresses of one name that are tried.
const ADDRESSES: usize = 16;

/// Everything that decides how a connection is opened.
pub(crate) struct Way {
    pub(crate) tls: TlsConnector,
    pub(crate) allow_private: bool,
    pub(crate) family: AddressFamily,
    pub(crate) egress: Egress,
    pub(crate) deadlines: Deadlines,
    pub(crate) resolver: Arc<Resolver>,
}

/// Opens connections for hyper's pool.
#[derive(Clone)]
pub(crate) struct Connector {
    way: Arc<Way>,
}

/// A connection that could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("{0} is no public address")]
    Guard(IpAddr),
    #[error("its name does not resolve: {0}")]
    Resolve(std::io::Error),
    #[error("its name did not resolve within {} s", .0.as_secs())]
    ResolveTimeout(Duration),
    #[error("it has no address of the configured family")]
    NoAddress,
    #[error("{0}")]
    Tcp(std::io::Error),
    #[error("no connection within {} s", .0.as_secs())]
    TcpTimeout(Duration),
    #[error("the egress proxy {0}")]
    Proxy(String),
    #[error("{0}")]
    Tls(std::io::Error),
    #[error("no TLS session within {} s", .0.as_secs())]
    TlsTimeout(Duration),
}

impl Connector {
    pub(crate) fn new(way: Arc<Way>) -> Self {
        Self { way }
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Wire>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let way = Arc::clone(&self.way);
        Box::pin(async move { way.open(&uri).await.map(TokioIo::new) })
    }
}

impl Way {
    async fn open(&self, uri: &Uri) -> Result<Wire, ConnectError> {
        let https = uri.scheme_str() == Some("https");
        let (host, port) = (locate::bare_host(uri), locate::port(uri));
        let proxy = self.egress.proxy(uri);
        let stream = match proxy {
            Some(proxy) => self.open_through(proxy, host, port, https).await?,
            None => self.open_tcp(host, port, self.allow_private).await?,
        };
        prepare(&stream);
        let used = Used(Arc::new(AtomicBool::new(false)));
        if !https {
            return Ok(Wire::plain(stream, proxy.is_some(), used));
        }
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| ConnectError::Tls(std::io::Error::other("the name can't be in a certificate")))?;
        let deadline = self.deadlines.tls;
        match timeout(deadline, self.tls.connect(name, stream)).await {
            Ok(Ok(stream)) => Ok(Wire::tls(stream, used)),
            Ok(Err(error)) => Err(ConnectError::Tls(error)),
            Err(_) => Err(ConnectError::TlsTimeout(deadline)),
        }
    }

    /// A connection to the proxy, for https with a tunnel through it.
    async fn open_through(
        &self,
        proxy: &Proxy,
        host: &str,
        port: u16,
        https: bool,
    ) -> Result<TcpStream, ConnectError> {
        // The proxy resolves the name, so that only addresses can be checked
        // here. Where the proxy itself is, the operator decides.
        if let Ok(address) = host.parse::<IpAddr>()
            && !guard::allowed(address, self.allow_private)
        {
            return Err(ConnectError::Guard(address));
        }
        let place = |error: ConnectError| ConnectError::Proxy(format!("can't be reached: {error}"));
        let mut stream = self.open_tcp(&proxy.host, proxy.port, true).await.map_err(place)?;
        if https {
            let deadline = self.deadlines.tls;
            timeout(deadline, tunnel::open(&mut stream, proxy, host, port))
                .await
                .unwrap_or_else(|_| Err(format!("did not answer within {} s", deadline.as_secs())))
                .map_err(ConnectError::Proxy)?;
        }
        Ok(stream)
    }

    async fn open_tcp(&self, host: &str, port: u16, allow_private: bool) -> Result<TcpStream, ConnectError> {
        let deadline = self.deadlines.resolve;
        let addresses = match timeout(deadline, self.resolver.resolve(host, port)).await {
            Ok(addresses) => addresses.map_err(ConnectError::Resolve)?,
            Err(_) => return Err(ConnectError::ResolveTimeout(deadline)),
        };
        // All of them, before any is used: one bad address among good ones is
        // how a name is made to point inside.
        for address in &addresses {
            if !guard::allowed(address.ip(), allow_private) {
                return Err(ConnectError::Guard(address.ip()));
            }
        }
        let addresses = in_order(addresses, self.family);
        let deadline = self.deadlines.connect;
        match timeout(deadline, race(addresses)).await {
            Ok(stream) => stream,
            Err(_) => Err(ConnectError::TcpTimeout(deadline)),
        }
    }
}

/// IPv6 and IPv4 in turn, IPv6 first, so that a broken family costs one head
/// start only.
fn in_order(addresses: Vec<SocketAddr>, family: AddressFamily) -> Vec<SocketAddr> {
    let (six, four): (Vec<_>, Vec<_>) = addresses.into_iter().partition(SocketAddr::is_ipv6);
    let (six, four) = match family {
        AddressFamily::Any => (six, four),
        AddressFamily::V4 => (Vec::new(), four),
        AddressFamily::V6 => (six, Vec::new()),
    };
    let (mut six, mut four) = (six.into_iter(), four.into_iter());
    let mut ordered = Vec::new();
    loop {
        let before = ordered.len();
        ordered.extend(six.next());
        ordered.extend(four.next());
        if ordered.len() == before || ordered.len() >= ADDRESSES {
            return ordered;
        }
    }
}

/// Happy eyeballs (RFC 8305): the next address is tried when the last failed or
/// had its head start; the first connection wins.
async fn race(addresses: Vec<SocketAddr>) -> Result<TcpStream, ConnectError> {
    let mut waiting = addresses.into_iter();
    let mut trying = FuturesUnordered::new();
    let Some(first) = waiting.next() else { return Err(ConnectError::NoAddress) };
    trying.push(TcpStream::connect(first));
    let mut left = waiting.len();
    loop {
        tokio::select! {
            tried = trying.next() => match tried {
                Some(Ok(stream)) => return Ok(stream),
                Some(Err(error)) => match waiting.next() {
                    Some(address) => {
                        left = waiting.len();
                        trying.push(TcpStream::connect(address));
                    }
                    None if trying.is_empty() => return Err(ConnectError::Tcp(error)),
                    None => {}
                },
                None => return Err(ConnectError::NoAddress),
            },
            () = sleep(STAGGER), if left > 0 => {
                trying.extend(waiting.next().map(TcpStream::connect));
                left = waiting.len();
            }
        }
    }
}

/// Small writes leave at once, and a peer that vanished is noticed while idle.
fn prepare(stream: &TcpStream) {
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(30))
        .with_interval(Duration::from_secs(10));
    // Neither is needed for a right answer.
    let _ = stream.set_nodelay(true);
    let _ = socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(addresses: &[&str], family: AddressFamily) -> Vec<String> {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        in_order(addresses, family).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn families_take_turns_and_ipv6_goes_first() {
        let all = ["1.1.1.1:1", "2.2.2.2:1", "3.3.3.3:1", "[2::1]:1", "[2::2]:1"];
        assert_eq!(
            ordered(&all, AddressFamily::Any),
            ["[2::1]:1", "1.1.1.1:1", "[2::2]:1", "2.2.2.2:1", "3.3.3.3:1"]
        );
        assert_eq!(ordered(&all, AddressFamily::V6), ["[2::1]:1", "[2::2]:1"]);
        assert_eq!(ordered(&all[3..], AddressFamily::V4), [""; 0]);
    }

    #[tokio::test]
    async fn a_dead_address_costs_nothing_when_another_answers() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let alive = listener.local_addr().unwrap();
        let dead = {
            let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            gone.local_addr().unwrap()
        };
        assert_eq!(race(vec![dead, alive]).await.unwrap().peer_addr().unwrap(), alive);
        assert!(matches!(race(vec![dead]).await, Err(ConnectError::Tcp(_))));
        assert!(matches!(race(vec![]).await, Err(ConnectError::NoAddress)));
    }
}
