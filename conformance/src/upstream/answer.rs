//! How a scripted upstream answers one request: its quirks first, git after.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Response};
use http_body_util::channel::{Channel, Sender};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};

use super::State;
use super::cgi::{self, Call};
use super::log::{Asked, Kind};
use super::quirk::{DROP, DROP_PAUSE, PACK_DROP, Quirk, SLOW};
use super::users::{self, Opinion};
use crate::pkt::{self, Pkt};

/// The body of every answer.
pub(super) type Body = BoxBody<Bytes, std::io::Error>;

const PAGE: &str = "<!DOCTYPE html><html><body>Sign in to continue</body></html>\n";
const SIGN_IN: &str = "/users/sign_in?return_to=secret-ticket-4711";

/// One request after its head was judged.
pub(super) struct Request<'a> {
    pub head: &'a Parts,
    pub body: &'a [u8],
    pub quirks: Vec<Quirk>,
    /// `/plain.git/info/refs`, behind the quirks' segment.
    pub rest: String,
    pub kind: Kind,
    pub asked: &'a Asked,
}

impl Request<'_> {
    fn has(&self, quirk: Quirk) -> bool {
        self.quirks.contains(&quirk)
    }

    /// `plain` of `/plain.git/info/refs`.
    fn repository(&self) -> String {
        let path = self.rest.trim_start_matches('/');
        let end = ["/info/", "/git-"].iter().filter_map(|mark| path.find(mark)).min().unwrap_or(path.len());
        let name = path[..end].trim_end_matches('/');
        name.strip_suffix(".git").unwrap_or(name).to_owned()
    }
}

/// Answers it.
pub(super) async fn answer(state: &Arc<State>, request: Request<'_>) -> Response<Body> {
    if let Some(response) = before_git(state, &request) {
        return response;
    }
    if request.has(Quirk::Slow) && request.kind == Kind::Fetch {
        tokio::time::sleep(SLOW).await;
    }
    from_git(state, &request).await
}

fn before_git(state: &State, request: &Request<'_>) -> Option<Response<Body>> {
    for quirk in &request.quirks {
        let response = match *quirk {
            Quirk::Status(code) => Some(text(code, &format!("scripted {code} of the upstream\n"))),
            Quirk::Limited => Some(with(text(429, "slow down\n"), "retry-after", "30")),
            Quirk::Html200 => Some(page(200)),
            Quirk::Html203 => Some(page(203)),
            Quirk::Login if request.kind == Kind::Refs => Some(with(page(302), "location", SIGN_IN)),
            Quirk::Moved => Some(with(page(301), "location", &moved(request))),
            Quirk::Elsewhere => {
                let base = state.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).clone();
                Some(with(page(302), "location", &format!("{base}{}", moved(request))))
            }
            Quirk::UserAgent if !starts_with_git(&request.head.headers) => Some(page(404)),
            Quirk::Cookie if !has_cookie(&request.head.headers) => Some(with(page(302), "location", SIGN_IN)),
            Quirk::Empty200 if request.asked.command == "ls-refs" => {
                Some(typed(200, "application/x-git-upload-pack-result", Vec::new()))
            }
            Quirk::ErrPacket => Some(error_packet(request, "access denied by the scripted upstream")),
            Quirk::Auth => refused(state, request),
            _ => None,
        };
        if response.is_some() {
            return response;
        }
    }
    None
}

fn moved(request: &Request<'_>) -> String {
    let query = request.head.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    format!("/ok{}{query}", request.rest)
}

fn starts_with_git(headers: &HeaderMap) -> bool {
    headers.get("user-agent").is_some_and(|agent| agent.as_bytes().starts_with(b"git/"))
}

fn has_cookie(headers: &HeaderMap) -> bool {
    headers
        .get_all("cookie")
        .iter()
        .any(|cookie| cookie.as_bytes().windows(8).any(|part| part == b"o=s3cret"))
}

fn refused(state: &State, request: &Request<'_>) -> Option<Response<Body>> {
    match state.users.judge(&request.head.headers, &request.repository()) {
        Opinion::Welcome => None,
        Opinion::Unknown => {
            let response = text(401, "who are you?\n");
            Some(with(response, "www-authenticate", "Basic realm=\"scripted\""))
        }
        Opinion::Refused(status) => Some(text(status, "not for you, says the upstream\n")),
    }
}

async fn from_git(state: &Arc<State>, request: &Request<'_>) -> Response<Body> {
    let root = state.repositories.path();
    if request.has(Quirk::NoReachableWants)
        && let Some(oid) = unadvertised(root, request)
    {
        return error_packet(request, &format!("upload-pack: not our ref {oid}"));
    }
    let call = Call {
        root,
        path: on_disk(root, request),
        config: config(request),
        protocol: !request.has(Quirk::V0Only),
        user: users::user(&request.head.headers),
    };
    let answer = match cgi::run(call, request.head, request.body).await {
        Ok(answer) => answer,
        Err(error) => return text(500, &format!("scripted upstream: {error}\n")),
    };
    let mut response = Response::builder().status(answer.status);
    for (name, value) in &answer.headers {
        response = response.header(name, value);
    }
    let spoiled = answer.status == 200 && spoils(request);
    let (sender, channel) = Channel::new(4);
    if spoiled {
        tokio::spawn(spoil(sender, answer, request.quirks.clone()));
    } else {
        tokio::spawn(pass(sender, answer));
    }
    response.body(channel.boxed()).unwrap_or_else(|error| text(500, &format!("{error}\n")))
}

fn spoils(request: &Request<'_>) -> bool {
    request.quirks.iter().any(|quirk| match quirk {
        Quirk::Cut | Quirk::CutClean | Quirk::CutPack | Quirk::Flip | Quirk::DripPack => {
            request.kind == Kind::Fetch
        }
        Quirk::CutList => request.kind == Kind::Refs,
        Quirk::Drip => true,
        _ => false,
    })
}

async fn pass(mut sender: Sender<Bytes, std::io::Error>, mut answer: cgi::Answer) {
    loop {
        match answer.next().await {
            Ok(Some(piece)) => {
                if sender.send_data(piece).await.is_err() {
                    return;
                }
            }
            Ok(None) => return,
            Err(error) => return sender.abort(error),
        }
    }
}

async fn spoil(mut sender: Sender<Bytes, std::io::Error>, answer: cgi::Answer, quirks: Vec<Quirk>) {
    let Ok(mut body) = answer.whole().await else { return };
    let cut = quirks.contains(&Quirk::Cut);
    if quirks.contains(&Quirk::CutList) {
        body.truncate(body.len().saturating_sub(4));
    } else if cut || quirks.contains(&Quirk::CutClean) {
        body.truncate(body.len() / 2);
    } else if quirks.contains(&Quirk::CutPack) || quirks.contains(&Quirk::Flip) {
        body = respoilt(&body, quirks.contains(&Quirk::Flip));
    }
    let drips = quirks.iter().find_map(|quirk| match quirk {
        Quirk::Drip => Some(DROP),
        Quirk::DripPack => Some(PACK_DROP),
        _ => None,
    });
    let size = drips.unwrap_or(body.len().max(1));
    for drop in body.chunks(size) {
        if drips.is_some() {
            tokio::time::sleep(DROP_PAUSE).await;
        }
        if sender.send_data(Bytes::copy_from_slice(drop)).await.is_err() {
            return;
        }
    }
    if cut {
        sender.abort(std::io::Error::other("cut by the script"));
    }
}

/// The same answer in the same packets, but for the pack: one byte flipped, or its second half missing.
fn respoilt(body: &[u8], flip: bool) -> Vec<u8> {
    let (packets, rest) = pkt::read(body);
    let is_pack = |packet: &Pkt| matches!(packet, Pkt::Data(bytes) if bytes.first() == Some(&1));
    let size = |packet: &Pkt| if let Pkt::Data(bytes) = packet { bytes.len() - 1 } else { 0 };
    let whole: usize = packets.iter().filter(|packet| is_pack(packet)).map(size).sum();
    let mut spoilt = Vec::new();
    let mut seen = 0;
    for packet in packets {
        let before = seen;
        seen += if is_pack(&packet) { size(&packet) } else { 0 };
        let mut bytes = match packet {
            Pkt::Data(bytes) => bytes,
            Pkt::Flush => {
                spoilt.extend_from_slice(b"0000");
                continue;
            }
            Pkt::Delimiter => {
                spoilt.extend_from_slice(b"0001");
                continue;
            }
            Pkt::ResponseEnd => continue,
        };
        let middle = whole / 2;
        if (before..seen).contains(&middle) {
            let at = 1 + middle - before;
            if flip {
                bytes[at] ^= 0x10;
            } else {
                bytes.truncate(at);
            }
        } else if !flip && before > middle && bytes.first() == Some(&1) {
            continue;
        }
        spoilt.extend(pkt::raw(&bytes));
    }
    spoilt.extend_from_slice(rest);
    spoilt
}

fn config(request: &Request<'_>) -> Vec<(&'static str, &'static str)> {
    let yes_unless = |quirk: Quirk| if request.has(quirk) { "false" } else { "true" };
    let reachable = yes_unless(Quirk::NoReachableWants);
    vec![
        ("safe.directory", "*"),
        ("http.receivepack", "true"),
        ("uploadpack.allowFilter", yes_unless(Quirk::NoFilter)),
        ("uploadpack.allowTipSHA1InWant", reachable),
        ("uploadpack.allowReachableSHA1InWant", reachable),
        ("lsrefs.unborn", "advertise"),
    ]
}

/// A want that is no tip. Protocol v2 of stock git serves any object it has, so the refusal is ours.
fn unadvertised(root: &Path, request: &Request<'_>) -> Option<String> {
    if request.kind != Kind::Fetch {
        return None;
    }
    let directory = root.join(format!("{}.git", request.repository()));
    let listed = std::process::Command::new("git")
        .arg("-C")
        .arg(directory)
        .args(["show-ref", "-d", "--head"])
        .output();
    let listed = String::from_utf8_lossy(&listed.ok()?.stdout).into_owned();
    request.asked.wants.iter().find(|oid| !listed.contains(oid.as_str())).cloned()
}

/// The path as git will find it: folded where the upstream folds, one slash only.
fn on_disk(root: &Path, request: &Request<'_>) -> String {
    let name = request.repository();
    let verb = ["/info/", "/git-", "/objects/", "/HEAD"]
        .iter()
        .filter_map(|mark| request.rest.find(mark))
        .min()
        .map_or("", |at| &request.rest[at..]);
    let folded = if request.has(Quirk::Fold) { name.to_lowercase() } else { name.clone() };
    let with_suffix = request.rest.starts_with(&format!("/{name}.git"));
    if request.has(Quirk::Fold) || with_suffix || root.join(&name).is_dir() {
        let suffix = if with_suffix || request.has(Quirk::Fold) { ".git" } else { "" };
        return format!("/{folded}{suffix}{verb}");
    }
    request.rest.clone()
}

fn error_packet(request: &Request<'_>, reason: &str) -> Response<Body> {
    let advertisement = request.rest.ends_with("/info/refs");
    let mut body = Vec::new();
    if advertisement {
        body.extend(pkt::line("# service=git-upload-pack"));
        body.extend(b"0000");
    }
    body.extend(pkt::raw(format!("ERR {reason}").as_bytes()));
    let media = if advertisement {
        "application/x-git-upload-pack-advertisement"
    } else {
        "application/x-git-upload-pack-result"
    };
    typed(200, media, body)
}

fn page(status: u16) -> Response<Body> {
    typed(status, "text/html; charset=utf-8", PAGE.into())
}

pub(super) fn text(status: u16, words: &str) -> Response<Body> {
    typed(status, "text/plain", words.into())
}

fn typed(status: u16, media: &str, body: Vec<u8>) -> Response<Body> {
    let body = Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed();
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    with(response, "content-type", media)
}

fn with(mut response: Response<Body>, name: &'static str, value: &str) -> Response<Body> {
    if let Ok(value) = value.parse() {
        response.headers_mut().insert(name, value);
    }
    response
}
