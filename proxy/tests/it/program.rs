//! A running `tidegate` on free ports, with what it logs.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, SystemTime},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_tidegate");
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a command to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    command(PROGRAM).args(arguments).output().unwrap()
}

/// With nothing of the tester's environment.
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", "").env("HOME", "/nonexistent");
    command
}

/// A server; killed when dropped.
pub(crate) struct Server {
    pub(crate) dir: TempDir,
    pub(crate) clients: SocketAddr,
    pub(crate) admin: SocketAddr,
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Server {
    /// Starts with this configuration; `DIR` in it stands for the server's folder.
    pub(crate) fn start(config: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), config, &[])
    }

    /// The same in a folder that was prepared, under another program if wanted.
    pub(crate) fn start_in(dir: TempDir, config: &str, wrapper: &[&str]) -> Self {
        let file = dir.path().join("tidegate.yaml");
        write_config(&dir, config);
        let mut words = wrapper.to_vec();
        words.push(PROGRAM);
        let mut child = command(words[0])
            .args(&words[1..])
            .args(["serve", "--admin", "127.0.0.1:0", "--config"])
            .arg(file)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = child.stderr.take().unwrap();
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut server = Self { dir, clients: nowhere, admin: nowhere, child, lines, seen: Vec::new() };
        server.clients = server.listening();
        server.admin = server.listening();
        server.ready();
        server
    }

    /// Waits for the next line with all of these words.
    pub(crate) fn said(&mut self, words: &[&str]) -> String {
        loop {
            let Ok(line) = self.lines.recv_timeout(PATIENCE) else {
                panic!("{words:?} was not said, but\n{}", self.seen.join("\n"));
            };
            self.seen.push(line.clone());
            if words.iter().all(|word| line.contains(word)) {
                return line;
            }
        }
    }

    /// Everything it said that was waited for or passed by.
    pub(crate) fn everything(&mut self) -> String {
        self.seen.extend(self.lines.try_iter());
        self.seen.join("\n")
    }

    fn listening(&mut self) -> SocketAddr {
        // As text or as JSON: `address=127.0.0.1:80 `, `"address":"127.0.0.1:80"`.
        let line = self.said(&["listening", "address"]);
        let rest = line.split_once("address").unwrap().1;
        let ends = |c: char| c.is_whitespace() || c == '"';
        rest.trim_start_matches(['=', '"', ':']).split(ends).next().unwrap().parse().unwrap()
    }

    /// The rooms open after the listeners; clients wait in the backlog.
    fn ready(&self) {
        let answer = ask(self.admin, "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    pub(crate) fn configure(&self, config: &str) {
        write_config(&self.dir, config);
    }

    pub(crate) fn get(&self, path: &str) -> String {
        ask(self.clients, &format!("GET {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n"))
    }

    pub(crate) fn metrics(&self) -> String {
        ask(self.admin, "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid().unwrap(), signal).unwrap();
    }

    /// The server itself, which under another program is not our child: it
    /// writes its number into the lock that it holds.
    fn pid(&self) -> Option<Pid> {
        let number = fs::read_to_string(self.dir.path().join("data/lock")).ok()?;
        Pid::from_raw(number.parse().ok()?)
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.child.wait().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            if let Some(pid) = self.pid() {
                let _ = kill_process(pid, Signal::KILL);
            } else {
                let _ = self.child.kill();
            }
            let _ = self.child.wait();
        }
    }
}

fn write_config(dir: &TempDir, config: &str) {
    let text = config.replace("DIR", &dir.path().display().to_string());
    let text = format!("data: {}\n{text}", dir.path().join("data").display());
    // Whole or not at all, as the product may look at any moment.
    let fresh: PathBuf = dir.path().join("next.yaml");
    fs::write(&fresh, text).unwrap();
    fs::rename(fresh, dir.path().join("tidegate.yaml")).unwrap();
}

/// Sends bytes and reads the answer to its end.
pub(crate) fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A cut connection is an answer too.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Tries until it holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = SystemTime::now();
    while !holds() {
        assert!(started.elapsed().is_ok_and(|waited| waited < PATIENCE), "not in time: {what}");
        thread::yield_now();
    }
}
