//! Stock git, cut off from the machine's own configuration.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use tokio::time::Instant;

use crate::upstream::users::basic;

const LIMIT: Duration = Duration::from_secs(60);

/// How a run of a client ended.
#[derive(Clone, Debug)]
pub struct Run {
    /// The exit code; -1 if it was killed.
    pub code: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error as text.
    pub stderr: String,
    /// How long it took.
    pub took: Duration,
}

impl Run {
    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Fails the test unless the exit code is 0.
    pub fn ok(self) -> Self {
        assert!(self.code == 0, "exit {}: {}\n{}", self.code, self.stderr, self.text());
        self
    }

    /// Fails the test unless the exit code is something else.
    pub fn failed(self) -> Self {
        assert!(self.code != 0, "should have failed:\n{}\n{}", self.stderr, self.text());
        self
    }
}

/// A stock git as one user has it set up.
#[derive(Clone, Debug)]
pub struct Git {
    protocol: u8,
    config: Vec<String>,
    environment: Vec<(OsString, OsString)>,
    limit: Duration,
}

impl Default for Git {
    fn default() -> Self {
        Self { protocol: 2, config: Vec::new(), environment: Vec::new(), limit: LIMIT }
    }
}

impl Git {
    /// With protocol version 2.
    pub fn new() -> Self {
        Self::default()
    }

    /// With this protocol version.
    pub fn speaking(protocol: u8) -> Self {
        Self { protocol, ..Self::default() }
    }

    /// With one more `-c key=value`.
    pub fn config(mut self, setting: &str) -> Self {
        self.config.push(setting.to_owned());
        self
    }

    /// With one more environment variable.
    pub fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((key.into(), value.as_ref().to_owned()));
        self
    }

    /// With another limit than a minute.
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Sends Basic with the first request, as `http.extraHeader` does.
    pub fn sending(self, user: &str, password: &str) -> Self {
        self.config(&format!("http.extraHeader=Authorization: {}", basic(user, password)))
    }

    /// Asks a credential helper after a 401, as people at a terminal do.
    pub fn with_helper(self, user: &str, password: &str) -> Self {
        let script =
            format!("credential.helper=!f() {{ echo username={user}; echo password={password}; }}; f");
        self.config("credential.helper=").config(&script)
    }

    /// Trusts this root certificate.
    pub fn trusting(self, root: &Path) -> Self {
        self.config(&format!("http.sslCAInfo={}", root.display()))
    }

    /// Runs git in `folder`.
    pub fn run<S: AsRef<OsStr>>(&self, folder: &Path, arguments: &[S]) -> Run {
        let mut command = Command::new("git");
        command.arg("-c").arg(format!("protocol.version={}", self.protocol));
        for setting in &self.config {
            command.arg("-c").arg(setting);
        }
        command
            .args(arguments)
            .current_dir(folder)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", "/nonexistent")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/nonexistent/gitconfig")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_ASKPASS", "/bin/false")
            .env("LC_ALL", "C")
            .envs(self.environment.iter().map(|(key, value)| (key, value)));
        finish(command, self.limit)
    }

    /// `git clone <flags> URL DIR`; the folder it was made in.
    pub fn clone_into(&self, url: &str, folder: &Path, flags: &[&str]) -> Run {
        let mut arguments = vec!["clone", "--quiet"];
        arguments.extend(flags);
        arguments.push(url);
        let target = folder.to_string_lossy().into_owned();
        arguments.push(&target);
        self.run(Path::new("/"), &arguments)
    }

    /// A mirror clone, which holds everything the server lists.
    pub fn mirror(&self, url: &str, folder: &Path) -> Run {
        self.clone_into(url, folder, &["--mirror"])
    }

    /// `git ls-remote URL`.
    pub fn list(&self, url: &str) -> Run {
        self.run(Path::new("/"), &["ls-remote", url])
    }
}

/// Runs any client under a limit, with its output caught.
pub fn finish(mut command: Command, limit: Duration) -> Run {
    let started = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the client starts");
    let out = drain(child.stdout.take());
    let err = drain(child.stderr.take());
    let status = wait(&mut child, started + limit);
    let stderr = String::from_utf8_lossy(&err.join().unwrap_or_default()).into_owned();
    Run {
        code: status.and_then(|status| status.code()).unwrap_or(-1),
        stdout: out.join().unwrap_or_default(),
        stderr,
        took: started.elapsed(),
    }
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn wait(child: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().expect("the client can be waited for") {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(3));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// A folder for one client's work.
pub fn workplace(parent: &Path, name: &str) -> PathBuf {
    let folder = parent.join(name);
    std::fs::create_dir_all(&folder).expect("a folder for the client");
    folder
}
