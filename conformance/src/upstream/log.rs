//! Every request an upstream has seen, so that "asked exactly once" can be
//! claimed and counted.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::{Mutex, MutexGuard, PoisonError};

use flate2::read::GzDecoder;
use http::HeaderMap;
use http::request::Parts;
use tokio::time::Instant;

use crate::pkt::{self, Pkt};

/// What a request was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An advertisement or `ls-refs`.
    Refs,
    /// A POST that carries wants.
    Fetch,
    /// Anything of receive-pack.
    Push,
    /// The rest: probes, LFS, pages.
    Other,
}

/// What a POST body asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// `command=` of protocol v2; empty in v0.
    pub command: String,
    /// Object ids behind `want`.
    pub wants: Vec<String>,
    /// Object ids behind `have`.
    pub haves: Vec<String>,
    /// Ids behind `shallow`.
    pub shallow: Vec<String>,
    /// `deepen*` lines as they are.
    pub deepen: Vec<String>,
    /// The filter.
    pub filter: Option<String>,
    /// `ref-prefix` lines.
    pub prefixes: Vec<String>,
    /// Whether `done` was said.
    pub done: bool,
    /// Bytes of the body as it came.
    pub bytes: usize,
}

/// One request and its answer.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Grows by one with each request.
    pub id: u64,
    /// When it had arrived whole.
    pub at: Instant,
    /// GET, POST.
    pub method: String,
    /// Without the query.
    pub path: String,
    /// Without the question mark.
    pub query: String,
    /// The header, as it came.
    pub git_protocol: Option<String>,
    /// The header, as it came.
    pub user_agent: String,
    /// The user of Basic, `bearer:<token>`, or nothing.
    pub user: Option<String>,
    /// All headers.
    pub headers: HeaderMap,
    /// 0 until answered.
    pub status: u16,
    /// What it was for.
    pub kind: Kind,
    /// What its body said.
    pub asked: Asked,
}

/// The log of one upstream.
#[derive(Debug, Default)]
pub struct RequestLog {
    entries: Mutex<(u64, Vec<Entry>)>,
}

impl RequestLog {
    fn locked(&self) -> MutexGuard<'_, (u64, Vec<Entry>)> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn arrived(&self, head: &Parts, user: Option<String>, body: &[u8]) -> Entry {
        let mut entries = self.locked();
        entries.0 += 1;
        let asked = summary(head, body);
        let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
        let entry = Entry {
            id: entries.0,
            at: Instant::now(),
            method: head.method.to_string(),
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            git_protocol: header("git-protocol").map(str::to_owned),
            user_agent: header("user-agent").unwrap_or_default().to_owned(),
            user,
            headers: head.headers.clone(),
            status: 0,
            kind: kind(head, &asked),
            asked,
        };
        entries.1.push(entry.clone());
        entry
    }

    pub(super) fn answered(&self, id: u64, status: u16) {
        if let Some(entry) = self.locked().1.iter_mut().find(|entry| entry.id == id) {
            entry.status = status;
        }
    }

    /// Everything since the last [`RequestLog::clear`].
    pub fn entries(&self) -> Vec<Entry> {
        self.locked().1.clone()
    }

    /// Forgets what was seen so far.
    pub fn clear(&self) {
        self.locked().1.clear();
    }

    /// How many requests were of this kind.
    pub fn count(&self, kind: Kind) -> usize {
        self.locked().1.iter().filter(|entry| entry.kind == kind).count()
    }

    /// How many requests there were at all.
    pub fn len(&self) -> usize {
        self.locked().1.len()
    }

    /// Whether nobody has asked.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Requests for paths that contain `part`.
    pub fn about(&self, part: &str) -> Vec<Entry> {
        self.locked().1.iter().filter(|entry| entry.path.contains(part)).cloned().collect()
    }

    /// One line per request, for failure messages.
    pub fn text(&self) -> String {
        let mut lines = Vec::new();
        for entry in &self.locked().1 {
            let asked = &entry.asked;
            lines.push(format!(
                "#{} {} {}?{} -> {} {:?} user={:?} proto={:?} {} wants={} haves={} {}",
                entry.id,
                entry.method,
                entry.path,
                entry.query,
                entry.status,
                entry.kind,
                entry.user,
                entry.git_protocol,
                asked.command,
                asked.wants.len(),
                asked.haves.len(),
                asked.deepen.join(","),
            ));
        }
        lines.join("\n")
    }

    /// How often each status was answered.
    pub fn statuses(&self) -> BTreeMap<u16, usize> {
        let mut counts = BTreeMap::new();
        for entry in &self.locked().1 {
            *counts.entry(entry.status).or_default() += 1;
        }
        counts
    }
}

fn kind(head: &Parts, asked: &Asked) -> Kind {
    let path = head.uri.path();
    let query = head.uri.query().unwrap_or_default();
    if path.ends_with("/git-receive-pack") || query.contains("service=git-receive-pack") {
        Kind::Push
    } else if path.ends_with("/info/refs") || asked.command == "ls-refs" {
        Kind::Refs
    } else if path.ends_with("/git-upload-pack") && !asked.wants.is_empty() {
        Kind::Fetch
    } else {
        Kind::Other
    }
}

fn summary(head: &Parts, body: &[u8]) -> Asked {
    let mut asked = Asked { bytes: body.len(), ..Asked::default() };
    if !head.uri.path().ends_with("/git-upload-pack") {
        return asked;
    }
    let zipped =
        head.headers.get("content-encoding").is_some_and(|value| value.as_bytes().ends_with(b"gzip"));
    let mut inflated = Vec::new();
    if zipped && GzDecoder::new(body).take(64 << 20).read_to_end(&mut inflated).is_err() {
        return asked;
    }
    let (packets, _) = pkt::read(if zipped { &inflated } else { body });
    for text in packets.iter().map(Pkt::text) {
        note(&mut asked, &text);
    }
    asked
}

fn note(asked: &mut Asked, text: &str) {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let first = || rest.split(' ').next().unwrap_or_default().to_owned();
    match word {
        "want" => asked.wants.push(first()),
        "have" => asked.haves.push(first()),
        "shallow" => asked.shallow.push(first()),
        "filter" => asked.filter = Some(rest.to_owned()),
        "ref-prefix" => asked.prefixes.push(rest.to_owned()),
        "done" => asked.done = true,
        _ if word.starts_with("deepen") => asked.deepen.push(text.to_owned()),
        _ => {
            if let Some(command) = text.strip_prefix("command=") {
                command.clone_into(&mut asked.command);
            }
        }
    }
}
