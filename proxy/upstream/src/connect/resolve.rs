//! Names into addresses, by the system's resolver.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use tokio::sync::Semaphore;

/// Most look-ups at a time, over all upstreams. A resolver that hangs holds a
/// thread of the pool that disk reads need too, whatever deadline we have.
const LOOKUPS: usize = 16;

/// The system's resolver, with a bound.
#[derive(Debug)]
pub(crate) struct Resolver {
    lookups: Arc<Semaphore>,
}

impl Default for Resolver {
    fn default() -> Self {
        Self { lookups: Arc::new(Semaphore::new(LOOKUPS)) }
    }
}

impl Resolver {
    /// All addresses of a host. An address is its own answer.
    pub(crate) async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![(address, port).into()]);
        }
        let lookups = Arc::clone(&self.lookups);
        let slot = lookups.acquire_owned().await.map_err(io::Error::other)?;
        let host = host.to_owned();
        // A task of its own, which keeps its slot until the look-up has really
        // ended, even if nobody waits for it any more.
        let lookup = tokio::spawn(async move {
            let _slot = slot;
            tokio::net::lookup_host((host, port)).await.map(Iterator::collect)
        });
        lookup.await.map_err(io::Error::other)?
    }
}
