//! The real program: started with a file, on ports of its own, with an empty
//! PATH, and killed by its process id.

use std::env;
use std::ffi::OsString;
use std::fmt::Write;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::client::raw::{Answer, Request};
use crate::upstream::Upstream;
use crate::wait::eventually;
use crate::{metrics, ports};

/// The host name under which scenes reach their upstream.
pub const HOST: &str = "git.test";

const START: Duration = Duration::from_secs(30);

/// What a tidegate is to be started with.
pub struct Setup {
    upstreams: Vec<String>,
    tables: Vec<String>,
    environment: Vec<(OsString, OsString)>,
    scheme: &'static str,
    listen: Option<String>,
}

impl Setup {
    /// In front of `upstream`, as `git.test`, with a budget no test runs into.
    pub fn of(upstream: &Upstream) -> Self {
        let nothing = Vec::new;
        let setup = Self {
            upstreams: nothing(),
            tables: nothing(),
            environment: Vec::new(),
            scheme: "http",
            listen: None,
        };
        setup.upstream(HOST, &upstream.base())
    }

    /// One more upstream.
    pub fn upstream(mut self, host: &str, url: &str) -> Self {
        let mut entry = format!("  - host: {host}\n    url: {url}\n    allow_private: true\n");
        entry.push_str("    budget: {per_minute: 60000, concurrent: 200, per_credential: 60000}\n");
        self.upstreams.push(entry);
        self
    }

    /// One more line for the last upstream, such as `names: {ignore_case: true}`.
    pub fn line(mut self, line: &str) -> Self {
        let last = self.upstreams.last_mut().expect("there is an upstream");
        let key = line.split(':').next().unwrap_or_default();
        // a later `budget:` takes the place of the generous one
        *last = last.lines().filter(|old| old.trim_start().split(':').next() != Some(key)).fold(
            String::new(),
            |mut text, old| {
                let _ = writeln!(text, "{old}");
                text
            },
        );
        let _ = writeln!(last, "    {line}");
        self
    }

    /// The `git` table, such as `refresh_every: 1s`.
    pub fn git(self, keys: &str) -> Self {
        self.table(&format!("git: {{{keys}}}"))
    }

    /// Any other top-level line.
    pub fn table(mut self, line: &str) -> Self {
        self.tables.push(line.to_owned());
        self
    }

    /// One environment variable.
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.environment.push((key.into(), value.into()));
        self
    }

    /// Serves HTTPS with the certificate and key in `folder` (`cert.pem`, `key.pem`).
    pub fn tls(mut self, folder: &Path) -> Self {
        let file = |name: &str| folder.join(name).display().to_string();
        let (cert, key) = (file("cert.pem"), file("key.pem"));
        self.listen = Some(format!("{{cert: {{from_file: {cert}}}, key: {{from_file: {key}}}}}"));
        self.scheme = "https";
        self
    }

    /// Starts it and waits until it is ready.
    pub fn start(self) -> Tidegate {
        let folder = tempfile::tempdir().expect("a folder for tidegate");
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let (listen, admin) = (local(ports::free()), local(ports::free()));
        let mut tidegate = Tidegate {
            setup: self,
            folder,
            listen,
            admin,
            child: None,
            program: program(),
            wrapper: Vec::new(),
        };
        tidegate.write_config();
        tidegate.restart();
        tidegate
    }
}

/// A running tidegate; killed when dropped.
pub struct Tidegate {
    setup: Setup,
    folder: TempDir,
    listen: SocketAddr,
    admin: SocketAddr,
    child: Option<Child>,
    program: PathBuf,
    wrapper: Vec<OsString>,
}

impl Tidegate {
    fn write_config(&self) {
        fs::write(self.config(), self.config_text()).expect("the configuration is written");
    }

    fn config_text(&self) -> String {
        let data = self.data();
        let mut text = match &self.setup.listen {
            None => format!("listen: {}\n", self.listen),
            Some(tls) => format!("listen:\n  - address: {}\n    tls: {tls}\n", self.listen),
        };
        let _ = write!(text, "admin: {}\ndata: {}\nupstreams:\n", self.admin, data.display());
        text.push_str(&self.setup.upstreams.concat());
        for table in &self.setup.tables {
            let _ = writeln!(text, "{table}");
        }
        text
    }

    /// The configuration file.
    pub fn config(&self) -> PathBuf {
        self.folder.path().join("tidegate.yaml")
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Everything it has said so far, over all starts.
    pub fn said(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Starts it under another program, such as strace, at the next start.
    pub fn wrap(&mut self, words: &[OsString]) {
        self.wrapper = words.to_vec();
    }

    /// Starts it again on the same data, ports and configuration, and waits until it is ready.
    pub fn restart(&mut self) {
        self.spawn();
        self.wait_until_ready(START);
    }

    /// Starts it without waiting.
    pub fn spawn(&mut self) {
        self.kill();
        let log = File::options().append(true).create(true).open(self.folder.path().join("log"));
        let log = log.expect("the log file");
        let mut words = self.wrapper.clone();
        words.push(self.program.clone().into());
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .arg("serve")
            .arg("--config")
            .arg(self.config())
            .env_clear()
            .env("PATH", "")
            .env("HOME", "/nonexistent")
            .env("RUST_BACKTRACE", "1")
            .envs(self.setup.environment.iter().map(|(key, value)| (key, value)))
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle of the log"))
            .stderr(log);
        self.child = Some(command.spawn().expect("tidegate starts"));
    }

    /// Waits for `/-/readyz`.
    pub fn wait_until_ready(&mut self, limit: Duration) {
        let folder = self.folder.path().join("log");
        let address = self.listen;
        let secure = self.setup.scheme == "https";
        let admin = self.admin;
        let child = self.child.as_mut().expect("tidegate was started");
        eventually(limit, "tidegate is ready", || {
            if let Ok(Some(status)) = child.try_wait() {
                let said = fs::read_to_string(&folder).unwrap_or_default();
                panic!("tidegate ended at its start ({status}):\n{said}");
            }
            let (address, path) = if secure { (admin, "/metrics") } else { (address, "/-/readyz") };
            // a refused connection must not end the wait
            std::net::TcpStream::connect(address).ok()?;
            (Request::get(path).send(address).status == 200).then_some(())
        });
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// SIGTERM; the exit status after the drain.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        let mut child = self.child.take().expect("tidegate runs");
        eventually(Duration::from_secs(30), "tidegate has drained", || {
            child.try_wait().expect("tidegate can be waited for")
        })
    }

    /// Any signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("tidegate takes a signal");
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        let child = self.child.as_ref().expect("tidegate runs");
        Pid::from_child(child)
    }

    /// Its peak resident memory, in KiB.
    pub fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid().as_raw_nonzero()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
        line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.listen
    }

    /// Where `/metrics` is.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// What stands before an upstream path: `http://127.0.0.1:<port>/git.test`.
    pub fn base(&self) -> String {
        format!("{}://{}/{HOST}", self.setup.scheme, self.listen)
    }

    /// The URL of `ok/plain.git` through it.
    pub fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.base())
    }

    /// The request path of `ok/plain.git`.
    pub fn path(path: &str) -> String {
        format!("/{HOST}/{path}")
    }

    /// Sends a raw request.
    pub fn send(&self, request: &Request) -> Answer {
        request.send(self.listen)
    }

    /// What `/metrics` says now.
    pub fn metrics(&self) -> String {
        Request::get("/metrics").send(self.admin).text()
    }

    /// The sum of a metric's samples with these labels.
    pub fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        metrics::sum(&self.metrics(), name, labels)
    }

    /// Runs another verb of the command with this configuration.
    pub fn verb(&self, arguments: &[&str]) -> std::process::Output {
        Command::new(&self.program)
            .args(arguments)
            .arg("--config")
            .arg(self.config())
            .env_clear()
            .env("PATH", "")
            .output()
            .expect("tidegate runs")
    }

    /// Replaces a piece of the configuration file, at once and whole.
    pub fn edit_config(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.config()).expect("the configuration is read");
        assert!(text.contains(from), "{from} is not in\n{text}");
        let next = self.config().with_extension("next");
        fs::write(&next, text.replace(from, to)).expect("the next configuration is written");
        fs::rename(next, self.config()).expect("the next configuration takes its place");
    }
}

impl Drop for Tidegate {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let said = self.said();
            let from = said.len().saturating_sub(6000);
            let tail = said.get(from..).unwrap_or(&said);
            eprintln!("--- configuration\n{}--- tidegate said\n{tail}\n---", self.config_text());
        }
    }
}

/// The program: `TIDEGATE_BIN`, else the one built beside this test.
pub fn program() -> PathBuf {
    if let Some(path) = env::var_os("TIDEGATE_BIN") {
        return path.into();
    }
    let test = env::current_exe().expect("a test knows its own file");
    let profile = test.parent().and_then(Path::parent).expect("tests lie in target/<profile>/deps");
    let program = profile.join("tidegate");
    let advice = "build it first (cargo build -p tidegate) or set TIDEGATE_BIN";
    assert!(program.is_file(), "{} is missing: {advice}", program.display());
    program
}
