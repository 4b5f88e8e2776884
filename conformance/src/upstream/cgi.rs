//! Stock `git http-backend` as the server behind every scripted upstream.

use std::io;
use std::path::Path;
use std::process::Stdio;

use bytes::Bytes;
use http::request::Parts;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdout, Command};

/// A started answer: its head, and its body still coming.
pub(super) struct Answer {
    /// From `Status:`, else 200.
    pub status: u16,
    /// The other header lines.
    pub headers: Vec<(String, String)>,
    first: Bytes,
    stdout: ChildStdout,
    child: Child,
}

/// What the request is, beyond its HTTP head.
pub(super) struct Call<'a> {
    /// Where the bare repositories are.
    pub root: &'a Path,
    /// `/plain.git/info/refs`.
    pub path: String,
    /// Configuration given to git for this one request.
    pub config: Vec<(&'static str, &'static str)>,
    /// Whether Git-Protocol is passed on.
    pub protocol: bool,
    /// Who the caller is.
    pub user: Option<String>,
}

/// Runs git and reads its answer up to the empty line after the headers.
pub(super) async fn run(call: Call<'_>, head: &Parts, body: &[u8]) -> io::Result<Answer> {
    let mut child = command(&call, head, body.len()).spawn()?;
    let mut stdin = child.stdin.take().ok_or_else(|| io::Error::other("git has no stdin"))?;
    let mut stdout = child.stdout.take().ok_or_else(|| io::Error::other("git has no stdout"))?;
    let body = body.to_vec();
    // git may stop reading early (an error in the request): that is its answer, not ours.
    tokio::spawn(async move {
        let _ = stdin.write_all(&body).await;
    });
    let mut read = Vec::new();
    let end = loop {
        let mut chunk = [0_u8; 8192];
        let count = stdout.read(&mut chunk).await?;
        read.extend_from_slice(&chunk[..count]);
        if let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if count == 0 {
            return Err(io::Error::other("git http-backend ended without headers"));
        }
    };
    let (status, headers) = parse(&String::from_utf8_lossy(&read[..end]));
    let first = Bytes::copy_from_slice(&read[end + 4..]);
    Ok(Answer { status, headers, first, stdout, child })
}

impl Answer {
    /// The next piece of the body; `None` at its end.
    pub(super) async fn next(&mut self) -> io::Result<Option<Bytes>> {
        if !self.first.is_empty() {
            return Ok(Some(std::mem::take(&mut self.first)));
        }
        let mut chunk = vec![0_u8; 32 * 1024];
        let count = self.stdout.read(&mut chunk).await?;
        chunk.truncate(count);
        if count == 0 {
            self.child.wait().await?;
            return Ok(None);
        }
        Ok(Some(Bytes::from(chunk)))
    }

    /// The whole body.
    pub(super) async fn whole(mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(piece) = self.next().await? {
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }
}

fn command(call: &Call<'_>, head: &Parts, length: usize) -> Command {
    let header = |name: &str| {
        head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    let mut command = Command::new("git");
    command
        .arg("http-backend")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/nonexistent/gitconfig")
        .env("HOME", "/nonexistent")
        .env("GIT_PROJECT_ROOT", call.root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("PATH_INFO", &call.path)
        .env("QUERY_STRING", head.uri.query().unwrap_or_default())
        .env("REQUEST_METHOD", head.method.as_str())
        .env("CONTENT_TYPE", header("content-type"))
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("REMOTE_ADDR", "127.0.0.1")
        .env("GIT_CONFIG_COUNT", call.config.len().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    if head.method == http::Method::POST {
        command.env("CONTENT_LENGTH", length.to_string());
    }
    if call.protocol {
        command.env("GIT_PROTOCOL", header("git-protocol"));
    }
    if let Some(user) = &call.user {
        command.env("REMOTE_USER", user);
    }
    for (index, (key, value)) in call.config.iter().enumerate() {
        command.env(format!("GIT_CONFIG_KEY_{index}"), key).env(format!("GIT_CONFIG_VALUE_{index}"), value);
    }
    command
}

fn parse(head: &str) -> (u16, Vec<(String, String)>) {
    let mut status = 200;
    let mut headers = Vec::new();
    for line in head.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        if name.eq_ignore_ascii_case("status") {
            status = value.split(' ').next().and_then(|code| code.parse().ok()).unwrap_or(500);
        } else {
            headers.push((name.to_owned(), value.to_owned()));
        }
    }
    (status, headers)
}
