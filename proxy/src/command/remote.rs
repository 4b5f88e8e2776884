//! The commands that a running tidegate carries out: they are put to its admin
//! listener, and its answer is shown.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, anyhow, bail};
use http::{
    Method, Request, StatusCode,
    header::{AUTHORIZATION, HOST},
};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};

use super::{Exit, complain, load, runtime, say};
use crate::config::{Config, Source};

const CONNECT: Duration = Duration::from_secs(5);
/// An audit reads every byte of the store.
const ANSWER: Duration = Duration::from_secs(6 * 3600);
const ANSWER_BYTES: usize = 64 << 20;

pub(super) fn explain(source: &Source, url: &str, json: bool) -> anyhow::Result<Exit> {
    let path = format!("/api/v1/explain?url={}", escaped(url));
    call(source, &Method::GET, &path, |answer| {
        if json {
            say(&format!("{answer:#}"));
        } else {
            show(answer, 0);
        }
        Exit::Ok
    })
}

pub(super) fn fsck(source: &Source) -> anyhow::Result<Exit> {
    call(source, &Method::POST, "/api/v1/fsck", |rooms| tell("checked", rooms))
}

pub(super) fn purge(source: &Source, repository: &str) -> anyhow::Result<Exit> {
    let path = format!("/api/v1/purge?url={}", escaped(repository));
    call(source, &Method::POST, &path, |rooms| tell("removed", rooms))
}

pub(super) fn warm(source: &Source, url: &str) -> anyhow::Result<Exit> {
    let path = format!("/api/v1/warm?url={}", escaped(url));
    call(source, &Method::POST, &path, |rooms| tell("fetched", rooms))
}

/// Shows what each room `did`; problems make the command fail.
pub(super) fn tell(did: &str, rooms: &Value) -> Exit {
    let mut exit = Exit::Ok;
    for (room, done) in rooms.as_object().into_iter().flatten() {
        let number = |key: &str| done.get(key).and_then(Value::as_u64).unwrap_or_default();
        let repositories = match number("repositories") {
            0 => String::new(),
            1 => "1 repository, ".into(),
            many => format!("{many} repositories, "),
        };
        say(&format!("{room}: {did} {repositories}{} bytes", number("bytes")));
        for problem in done.get("problems").and_then(Value::as_array).into_iter().flatten() {
            say(&format!("{room}: {}", problem.as_str().unwrap_or_default()));
            exit = Exit::Problems;
        }
    }
    exit
}

fn call(
    source: &Source,
    method: &Method,
    path: &str,
    show: impl FnOnce(&Value) -> Exit,
) -> anyhow::Result<Exit> {
    let config = match load(source) {
        Ok(config) => config,
        Err(exit) => return Ok(exit),
    };
    let (status, page) = runtime()?.block_on(ask(&config, method, path))?;
    if status != StatusCode::OK {
        complain(&format!("{} ({})", page.trim_end(), status.as_u16()));
        return Ok(Exit::Problems);
    }
    let answer = serde_json::from_str(&page).context("the server's answer is no JSON")?;
    Ok(show(&answer))
}

async fn ask(config: &Config, method: &Method, path: &str) -> anyhow::Result<(StatusCode, String)> {
    let address = reachable(config.admin);
    let nobody = || format!("no tidegate answers at {address}; start it, or give its --config or --admin");
    let stream =
        timeout(CONNECT, TcpStream::connect(address)).await.with_context(nobody)?.with_context(nobody)?;
    let (mut sender, connection) =
        timeout(CONNECT, http1::handshake(TokioIo::new(stream))).await.with_context(nobody)??;
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path).header(HOST, address.to_string());
    if let Some(source) = &config.admin_token {
        let token = source.read().context("cannot read `admin_token`")?;
        request = request.header(AUTHORIZATION, format!("Bearer {}", token.expose()));
    }
    let request = request.body(Empty::<Bytes>::new())?;
    let exchange = async {
        let response = sender.send_request(request).await.context("the server broke off")?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| anyhow!("the server's answer can't be read: {error}"))?;
        anyhow::Ok((status, String::from_utf8_lossy(&body.to_bytes()).into_owned()))
    };
    match timeout(ANSWER, exchange).await {
        Ok(answer) => answer,
        Err(_) => bail!("the server did not answer within {} h", ANSWER.as_secs() / 3600),
    }
}

/// A listener on all addresses is reached on loopback.
fn reachable(admin: SocketAddr) -> SocketAddr {
    let ip = match admin {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => std::net::Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => std::net::Ipv6Addr::LOCALHOST.into(),
        given => given.ip(),
    };
    SocketAddr::new(ip, admin.port())
}

/// Percent-encodes all that is not plainly harmless in a query.
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

/// JSON as indented lines, for people.
fn show(value: &Value, depth: usize) {
    let Value::Object(table) = value else { return };
    for (key, value) in table {
        let name = format!("{:indent$}{key}", "", indent = depth * 2);
        match value {
            Value::Object(_) => {
                say(&format!("{name}:"));
                show(value, depth + 1);
            }
            // What isn't known has no line; `--json` has them all.
            Value::Null => {}
            Value::String(text) => say(&format!("{name}: {text}")),
            other => say(&format!("{name}: {other}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_survives_the_query() {
        assert_eq!(escaped("https://h/a b?c=d&e#f"), "https://h/a%20b%3Fc%3Dd%26e%23f");
    }

    #[test]
    fn a_listener_on_all_addresses_is_asked_on_loopback() {
        for (given, asked) in
            [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:1", "[::1]:1"), ("10.0.0.1:1", "10.0.0.1:1")]
        {
            assert_eq!(reachable(given.parse().unwrap()), asked.parse().unwrap());
        }
    }
}
