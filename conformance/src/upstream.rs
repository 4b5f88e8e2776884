//! A scripted upstream: stock `git http-backend` on a loopback port, with
//! quirks by path, switches at run time and a log of every request.
//!
//! `http://127.0.0.1:<port>/<quirks>/<repository>.git`; see [`quirk::Quirk`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::repository::Repository;

mod answer;
mod cgi;
pub mod log;
pub mod quirk;
mod serve;
pub mod tls;
pub mod users;

pub use log::{Entry, Kind, RequestLog};
pub use quirk::Quirk;
pub use users::Users;

/// A running upstream; stops when dropped.
pub struct Upstream {
    address: SocketAddr,
    state: Arc<State>,
    secure: Option<tls::Authority>,
    running: Mutex<Option<Runtime>>,
}

/// What the requests of an upstream share.
struct State {
    repositories: TempDir,
    log: RequestLog,
    users: Users,
    stalled: watch::Sender<bool>,
    forced: Mutex<Vec<Quirk>>,
    delay: Mutex<Duration>,
    elsewhere: Mutex<String>,
}

impl Upstream {
    /// Plain HTTP on 127.0.0.1.
    pub fn start() -> Self {
        Self::bind(IpAddr::V4(Ipv4Addr::LOCALHOST), false)
    }

    /// Plain HTTP on `[::1]`.
    pub fn start_v6() -> Self {
        Self::bind(IpAddr::V6(Ipv6Addr::LOCALHOST), false)
    }

    /// HTTPS (h2 and HTTP/1.1) on 127.0.0.1, for `localhost` and `git.test`, by a CA of its own.
    pub fn start_tls() -> Self {
        Self::bind(IpAddr::V4(Ipv4Addr::LOCALHOST), true)
    }

    fn bind(ip: IpAddr, secure: bool) -> Self {
        let state = State {
            repositories: tempfile::tempdir().expect("a temporary folder for repositories"),
            log: RequestLog::default(),
            users: Users::default(),
            stalled: watch::Sender::new(false),
            forced: Mutex::new(Vec::new()),
            delay: Mutex::new(Duration::ZERO),
            elsewhere: Mutex::new(String::new()),
        };
        let mut upstream = Self {
            address: SocketAddr::new(ip, 0),
            state: Arc::new(state),
            secure: secure.then(|| tls::Authority::new(&["localhost", "git.test", "127.0.0.1"])),
            running: Mutex::new(None),
        };
        upstream.address = upstream.listen();
        upstream
    }

    fn listen(&self) -> SocketAddr {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime for the upstream");
        let listener = runtime.block_on(TcpListener::bind(self.address)).expect("the upstream's port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let secure = self.secure.as_ref().map(tls::Authority::acceptor);
        runtime.spawn(serve::accept(listener, Arc::clone(&self.state), secure));
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(runtime);
        address
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:<port>`.
    pub fn base(&self) -> String {
        let scheme = if self.secure.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The URL of a path such as `ok/plain.git`.
    pub fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.base())
    }

    /// The authority behind [`Upstream::start_tls`].
    pub fn authority(&self) -> &tls::Authority {
        self.secure.as_ref().expect("this upstream speaks TLS")
    }

    /// The folder of the bare repositories.
    pub fn repositories(&self) -> &Path {
        self.state.repositories.path()
    }

    /// An empty bare repository, served at once as `<any quirk>/<name>.git`.
    pub fn repository(&self, name: &str) -> Repository {
        Repository::create(&self.repository_path(name))
    }

    /// Where a repository lies on disk.
    pub fn repository_path(&self, name: &str) -> PathBuf {
        self.repositories().join(format!("{name}.git"))
    }

    /// What it was asked.
    pub fn log(&self) -> &RequestLog {
        &self.state.log
    }

    /// Who may read, where the path says `auth`.
    pub fn users(&self) -> &Users {
        &self.state.users
    }

    /// Closes the port and every connection: "connection refused" from now on.
    pub fn stop(&self) {
        let runtime = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(runtime) = runtime {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }

    /// Undoes [`Upstream::stop`], on the same port.
    pub fn resume(&self) {
        self.listen();
    }

    /// Accepts requests and answers none until told otherwise.
    pub fn stall(&self, stalled: bool) {
        self.state.stalled.send_replace(stalled);
    }

    /// Adds these quirks to every path, in place of those added before.
    pub fn force(&self, quirks: &[Quirk]) {
        *self.state.forced.lock().unwrap_or_else(PoisonError::into_inner) = quirks.to_vec();
    }

    /// Where `/elsewhere/` paths are redirected to: `http://127.0.0.1:<port>`.
    pub fn send_elsewhere(&self, base: &str) {
        base.clone_into(&mut self.state.elsewhere.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Delays every answer.
    pub fn delay(&self, pause: Duration) {
        *self.state.delay.lock().unwrap_or_else(PoisonError::into_inner) = pause;
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        if let Some(runtime) = self.running.lock().unwrap_or_else(PoisonError::into_inner).take() {
            runtime.shutdown_background();
        }
    }
}
