//! What is asked of an upstream, on whose behalf and how urgently.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method};
use tidegate_http::Identity;

/// One request to an upstream, as a room makes it.
///
/// ```
/// # use tidegate_upstream::{Ask, Kind};
/// let ask = Ask::get(Kind::Refs, "/org/app.git/info/refs?service=git-upload-pack");
/// ```
#[derive(Clone, Debug)]
pub struct Ask {
    /// What it is for; the `kind` label of the metric.
    pub kind: Kind,
    /// Who waits for it.
    pub priority: Priority,
    /// The credential it is made with. `Authorization` and `Cookie` among
    /// `headers` don't count.
    pub identity: Identity,
    /// GET, HEAD or POST. A body is sent again after a broken pooled connection
    /// and after 307 and 308: never use this for what must not happen twice.
    pub method: Method,
    /// Path and query as a client would write them on the upstream's name; the
    /// path of the configured `url` is put before it.
    pub path_and_query: String,
    /// The repository it is about; what is sick there is left alone without
    /// its neighbours. The path when absent.
    pub part: Option<Arc<str>>,
    /// Sent as they are, except for those that belong to one connection.
    pub headers: HeaderMap,
    /// What is sent.
    pub body: AskBody,
    /// Where redirects may lead.
    pub trust: Trust,
    /// A redirect counts only if its path and query end like this.
    pub must_end_with: Option<String>,
    /// How long the first byte of the answer may take; the upstream's deadline
    /// when absent.
    pub first_byte: Option<Duration>,
}

impl Ask {
    /// An anonymous GET on behalf of a waiting client, for a mutable answer.
    pub fn get(kind: Kind, path_and_query: impl Into<String>) -> Self {
        Self {
            kind,
            priority: Priority::Client,
            identity: Identity::anonymous(),
            method: Method::GET,
            path_and_query: path_and_query.into(),
            part: None,
            headers: HeaderMap::new(),
            body: AskBody::Empty,
            trust: Trust::Mutable,
            must_end_with: None,
            first_byte: None,
        }
    }

    /// The same as a POST that carries `body`.
    pub fn post(kind: Kind, path_and_query: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { method: Method::POST, body: AskBody::Bytes(body.into()), ..Self::get(kind, path_and_query) }
    }
}

/// The body of an [`Ask`]: always at hand as a whole, so that it can be sent
/// again.
#[derive(Clone, Debug)]
pub enum AskBody {
    /// None.
    Empty,
    /// These bytes.
    Bytes(Bytes),
}

/// What a request is for: the `kind` label of `tidegate_upstream_requests_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A look whether a credential is accepted.
    Auth,
    /// A list of refs.
    Refs,
    /// A git pack.
    Fetch,
    /// An OCI manifest.
    Manifest,
    /// An OCI blob.
    Blob,
    /// A token service.
    Token,
    /// A list of tags.
    Tags,
    /// A list of referrers.
    Referrers,
    /// A Helm index.
    Index,
    /// A large file: LFS object, release asset, archive.
    Object,
    /// A REST API.
    Rest,
    /// A git push.
    Push,
    /// Anything else.
    Other,
}

impl Kind {
    /// The word for metric labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Refs => "refs",
            Self::Fetch => "fetch",
            Self::Manifest => "manifest",
            Self::Blob => "blob",
            Self::Token => "token",
            Self::Tags => "tags",
            Self::Referrers => "referrers",
            Self::Index => "index",
            Self::Object => "object",
            Self::Rest => "rest",
            Self::Push => "push",
            Self::Other => "other",
        }
    }

    /// Whether a forge must see a git client in it: some answer anyone else
    /// with a page.
    pub(crate) const fn is_git(self) -> bool {
        matches!(self, Self::Auth | Self::Refs | Self::Fetch | Self::Push)
    }
}

/// Who waits for an answer; the order in which a scarce budget is given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// A client. May use the whole budget and waits a moment for it.
    Client,
    /// A refresh that a webhook asked for. Waits behind the clients.
    Webhook,
    /// Nobody. Doesn't wait: without budget it fails at once.
    Background,
}

/// Where redirects may lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The answer is believed as it is: the same host, a configured upstream or
    /// `redirects_to` only.
    Mutable,
    /// The caller checks the answer's digest: also any public https host on
    /// port 443.
    Verified,
}

/// In the extensions of a response that redirects led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirected {
    /// Whether a hop left the upstream's origin (scheme, host, port). The
    /// credential stayed behind then, so the answer says nothing of it.
    pub host_changed: bool,
    /// Who answered: the configured upstream's name, else host and port.
    pub final_host: String,
    /// The path and query that were answered, as a client would write them on
    /// `final_host`.
    pub path_and_query: String,
}
