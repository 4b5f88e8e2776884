//! Speaking to the upstream about one repository: looking at its refs, asking
//! it for packs. Nothing is kept here; what an answer means for callers and
//! mirrors is decided by who asked.
//!
//! A look costs one request where the upstream is known to speak v2: the
//! `ls-refs` POST goes out without the GET before it. What an upstream speaks
//! is learned by one GET and learned anew whenever an answer surprises.

mod reply;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use gix_hash::Kind as Hash;
use http::{
    HeaderMap, HeaderValue,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE},
};
use tidegate_cache::{Asked, Refusal};
use tidegate_http::{Body, Identity};
use tidegate_name::Upstream;
use tidegate_upstream::{Ask, Client, Kind, Priority};

use crate::{
    error::Sick,
    refs::RefTable,
    respond,
    wire::{
        AnswerError, Unsupported,
        advertisement::{self, Advertisement},
        answer::AnswerParser,
        capabilities::Capabilities,
        fetch::FetchRequest,
        ls_refs,
        protocol::Version,
    },
};
use reply::Reply;

/// How much of a list of refs is looked at. 800,000 refs are 50 MB.
const MOST_REF_BYTES: usize = 256 << 20;
const GIT_PROTOCOL: http::HeaderName = http::HeaderName::from_static("git-protocol");
/// The first byte of a list or of a pack may take this long: big repositories
/// are counted before the first byte comes.
const FIRST_BYTE: Duration = Duration::from_secs(60);

/// Which refs are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// None: only whether the caller is let in. Free where the upstream's
    /// dialect has to be learned anyway; else as good as `Eager`.
    Verdict,
    /// HEAD, branches and tags.
    Eager,
    /// Everything the upstream lists.
    All,
}

/// How an upstream wants to be spoken to about one repository.
#[derive(Clone, Debug)]
pub(crate) struct Dialect {
    pub(crate) capabilities: Capabilities,
    /// Where POSTs go: the path of the repository, after redirects.
    base: Arc<str>,
}

/// What a look found.
#[derive(Debug)]
pub(crate) struct Seen {
    /// `None` if only the dialect was learned.
    pub(crate) refs: Option<RefTable>,
    /// Which refs those are.
    pub(crate) scope: Scope,
    pub(crate) dialect: Dialect,
}

/// A look that found no refs.
#[derive(Clone, Debug)]
pub(crate) enum Unseen {
    /// The upstream refused this credential.
    Denied(Refusal),
    /// It gave no usable answer.
    Sick(Sick),
    /// It answered, but with a repository we can't serve: its requests are
    /// passed through. The text says why.
    Foreign(&'static str),
}

/// An upstream, and a repository's path on it as one caller spelled it.
#[derive(Clone)]
pub(crate) struct Speaker {
    pub(crate) client: Arc<Client>,
    /// With a leading slash, without a trailing one.
    pub(crate) path: Arc<str>,
}

/// On whose behalf something is asked.
#[derive(Clone, Debug)]
pub(crate) struct OnBehalf {
    pub(crate) identity: Identity,
    pub(crate) priority: Priority,
    /// Whose verdict ends if the credential is refused; nobody's if it is the
    /// configured one.
    pub(crate) proves: Option<Asked>,
}

impl Speaker {
    pub(crate) fn new(client: Arc<Client>, spelled: &str) -> Self {
        Self { client, path: format!("/{spelled}").into() }
    }

    pub(crate) fn upstream(&self) -> &Upstream {
        self.client.name()
    }

    /// Looks at the upstream's refs, with one request if `known` still holds.
    pub(crate) async fn look(
        &self,
        behalf: &OnBehalf,
        scope: Scope,
        known: Option<&Dialect>,
    ) -> Result<Seen, Unseen> {
        if let Some(dialect) = known.filter(|dialect| dialect.speaks_v2()) {
            match self.list(behalf, scope, dialect).await {
                // A surprise may mean that the upstream now speaks otherwise
                // or has moved; so may a 404 at an address that a redirect gave.
                Err(Unseen::Sick(sick)) if sick.wait.is_none() && !sick.limited => {
                    tracing::debug!(upstream = %self.upstream(), why = %sick.why, "learning the dialect anew");
                }
                Err(Unseen::Denied(refusal)) if dialect.moved(&self.path) => {
                    tracing::debug!(upstream = %self.upstream(), status = %refusal.status, "looking at the first address again");
                }
                answer => return answer,
            }
        }
        let (advertisement, base) = self.advertisement(behalf).await?;
        let dialect = Dialect { capabilities: advertisement.capabilities.clone(), base };
        if dialect.capabilities.object_format() != Hash::Sha1 {
            return Err(Unseen::Foreign("its object format is not SHA-1"));
        }
        if !advertisement.shallow.is_empty() {
            return Err(Unseen::Foreign("it is a shallow repository"));
        }
        if !dialect.speaks_v2() {
            return Ok(Seen { refs: advertisement.refs, scope: Scope::All, dialect });
        }
        if scope == Scope::Verdict {
            return Ok(Seen { refs: None, scope, dialect });
        }
        self.list(behalf, scope, &dialect).await
    }

    async fn advertisement(&self, behalf: &OnBehalf) -> Result<(Advertisement, Arc<str>), Unseen> {
        const END: &str = "/info/refs?service=git-upload-pack";
        let mut ask = Ask::get(Kind::Refs, format!("{}{END}", self.path));
        ask.headers = headers(Some("version=2"), None);
        ask.must_end_with = Some(END.to_owned());
        let reply = self.ask(ask, behalf, respond::ADVERTISEMENT).await?;
        let base = match reply.moved_to.as_deref().and_then(|path| path.strip_suffix(END)) {
            Some(moved) => moved.into(),
            None => Arc::clone(&self.path),
        };
        let parsed = reply.parse(advertisement::parse).await?;
        Ok((parsed, base))
    }

    async fn list(&self, behalf: &OnBehalf, scope: Scope, dialect: &Dialect) -> Result<Seen, Unseen> {
        let prefixes: &[&[u8]] = match scope {
            Scope::Verdict | Scope::Eager => &[b"HEAD", b"refs/heads/", b"refs/tags/"],
            Scope::All => &[],
        };
        let body = ls_refs::Request::full(prefixes).encode(&dialect.capabilities);
        let ask = dialect.post(Kind::Refs, body);
        let reply = self.ask(ask, behalf, respond::RESULT).await?;
        let hash = dialect.capabilities.object_format();
        let refs = reply.parse(move |bytes| ls_refs::parse_answer(bytes, hash)).await?;
        Ok(Seen { refs: Some(refs), scope, dialect: dialect.clone() })
    }

    /// Asks for a pack. The answer's body is still to be parsed.
    pub(crate) async fn fetch(
        &self,
        behalf: &OnBehalf,
        dialect: &Dialect,
        request: &FetchRequest,
    ) -> Result<Body, FetchError> {
        let body = request.encode(&dialect.capabilities).map_err(FetchError::Unsupported)?;
        let ask = dialect.post(Kind::Fetch, body);
        match self.ask(ask, behalf, respond::RESULT).await {
            Ok(reply) if reply.gzip => Err(FetchError::Unseen(Unseen::Sick(Sick::new(
                "it compressed a pack, which was not asked for",
            )))),
            Ok(reply) => Ok(reply.body),
            Err(unseen) => Err(FetchError::Unseen(unseen)),
        }
    }

    async fn ask(&self, mut ask: Ask, behalf: &OnBehalf, media_type: &'static str) -> Result<Reply, Unseen> {
        ask.identity = behalf.identity.clone();
        ask.priority = behalf.priority;
        ask.part = Some(Arc::clone(&self.path));
        ask.first_byte = Some(FIRST_BYTE);
        let response = match self.client.send(ask).await {
            Ok(response) => response,
            Err(error) => return Err(reply::refused_redirect(error)),
        };
        Reply::judge(response, media_type).await
    }
}

/// An upstream that gave no pack.
#[derive(Clone, Debug)]
pub(crate) enum FetchError {
    /// Refused, sick or foreign.
    Unseen(Unseen),
    /// It lacks a capability that the request needs.
    Unsupported(Unsupported),
}

impl Dialect {
    /// A POST to the repository's upload-pack.
    fn post(&self, kind: Kind, body: impl Into<Bytes>) -> Ask {
        let mut ask = Ask::post(kind, format!("{}/git-upload-pack", self.base), body);
        let protocol = self.speaks_v2().then_some("version=2");
        ask.headers = headers(protocol, Some(respond::REQUEST));
        if kind == Kind::Fetch {
            // A pack doesn't shrink, and its framing must not be held back.
            ask.headers.remove(ACCEPT_ENCODING);
        }
        ask
    }

    pub(crate) fn speaks_v2(&self) -> bool {
        self.capabilities.version() == Version::V2
    }

    /// A parser for the answer to `request`.
    pub(crate) fn parser(&self, request: &FetchRequest) -> AnswerParser {
        let sideband = request.upstream_sideband(&self.capabilities);
        AnswerParser::new(self.capabilities.version(), request, sideband, self.capabilities.object_format())
    }

    fn moved(&self, path: &str) -> bool {
        &*self.base != path
    }
}

fn headers(protocol: Option<&'static str>, content_type: Option<&'static str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    if let Some(value) = protocol {
        headers.insert(GIT_PROTOCOL, HeaderValue::from_static(value));
    }
    if let Some(value) = content_type {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(value));
        headers.insert(ACCEPT, HeaderValue::from_static(respond::RESULT));
    }
    headers
}

/// Why an answer that arrived doesn't count.
fn sick_answer(error: &AnswerError) -> Unseen {
    match error {
        AnswerError::ObjectFormat(_) => Unseen::Foreign("its object format is not SHA-1"),
        AnswerError::Html => reply::web_page(200),
        other => Unseen::Sick(Sick::new(other.to_string())),
    }
}
