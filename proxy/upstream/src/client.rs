//! One upstream, as the rooms see it: [`Client::send`] for what they make sense
//! of, [`Client::relay`] for what is passed through. Redirects are followed
//! here.

use std::{
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, Weak},
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use http::{Method, Request, Response, StatusCode, Uri, header::CONTENT_LENGTH};
use http_body::Body as _;
use tidegate_http::{Body, Identity, stall_after};
use tidegate_name::{Folding, Upstream};

use tokio::time::Instant;

use crate::{
    Ask, AskBody, Error, Kind, Priority, Redirected, Trust,
    breaker::{Breaker, Part},
    budget::Budget,
    config::UpstreamConfig,
    exchange::{Message, Payload, Stop, Terms},
    headers,
    locate::{self, Base},
    redirect::{self, Next, Refused},
    transport::Transport,
    upstreams::{Directory, Material, Shared},
};

/// The way to one upstream.
pub struct Client {
    pub(crate) name: Upstream,
    pub(crate) config: UpstreamConfig,
    pub(crate) base: Base,
    pub(crate) budget: Arc<Budget>,
    pub(crate) breaker: Arc<Breaker>,
    pub(crate) transport: ArcSwap<Transport>,
    pub(crate) credential: ArcSwapOption<Identity>,
    /// What `transport` and `credential` were made from.
    pub(crate) material: std::sync::Mutex<Material>,
    pub(crate) shared: Arc<Shared>,
    /// The other upstreams. Weak, since they know this one.
    pub(crate) directory: Weak<Directory>,
}

impl Client {
    /// The name clients use for it.
    pub fn name(&self) -> &Upstream {
        &self.name
    }

    /// How it was configured.
    pub fn config(&self) -> &UpstreamConfig {
        &self.config
    }

    /// Which spellings of its repositories are one.
    pub fn folding(&self) -> Folding {
        self.config.folding()
    }

    /// Our own credential for it, as it is now. Whoever uses it sends it at
    /// once, never only after a 401.
    pub fn credential(&self) -> Option<Identity> {
        self.credential.load_full().map(|identity| identity.as_ref().clone())
    }

    /// Takes note that the upstream limits this identity, where it says so other
    /// than by status (an ERR packet).
    pub fn report_limit(&self, identity: &Identity, pause: Duration) {
        self.budget.report_limit(identity, pause);
    }

    /// How many more requests the budget has for this minute.
    pub fn budget_remaining(&self) -> u32 {
        self.budget.remaining()
    }

    /// Asks. Any status is an answer, but a redirect is either followed or an
    /// error. The body fails when it stalls.
    ///
    /// Dropping the future or the body ends the request.
    pub async fn send(&self, ask: Ask) -> Result<Response<Body>, Error> {
        let mut headers = ask.headers;
        headers::prepare(&mut headers);
        // Made from the body, which is at hand.
        headers.remove(CONTENT_LENGTH);
        headers::set_user_agent(&mut headers, &self.shared.user_agent, ask.kind.is_git());
        let payload = match ask.body {
            AskBody::Empty => Payload::Empty,
            AskBody::Bytes(bytes) => Payload::Bytes(bytes),
        };
        let trip = Trip {
            message: Message { method: ask.method, headers, payload },
            identity: ask.identity,
            terms: Terms {
                kind: ask.kind,
                priority: ask.priority,
                part: part(ask.part.as_deref().unwrap_or(&ask.path_and_query)),
                relay: false,
                repeatable: true,
                first_byte: ask.first_byte.unwrap_or(self.shared.deadlines.first_byte),
            },
            trust: ask.trust,
            must_end_with: ask.must_end_with,
        };
        self.travel(trip, &ask.path_and_query).await
    }

    /// Passes a request through uncached, bodies streamed both ways and not
    /// touched. The request's URI holds path and query as a client would write
    /// them on the upstream's name; `identity` replaces its `Authorization` and
    /// `Cookie`.
    ///
    /// A request with a body, or that changes something, is sent exactly once, on
    /// a connection of its own. GET and HEAD follow redirects that stay on the
    /// same host, a configured upstream or `redirects_to`; every other redirect
    /// is [`Error::Redirect`], never an answer.
    pub async fn relay(
        &self,
        request: Request<Body>,
        identity: &Identity,
        kind: Kind,
    ) -> Result<Response<Body>, Error> {
        let (parts, body) = request.into_parts();
        let deadlines = &self.shared.deadlines;
        let empty = body.is_end_stream();
        let repeatable = empty && matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS);
        let mut headers = parts.headers;
        headers::prepare(&mut headers);
        if kind.is_git() {
            headers::set_user_agent(&mut headers, &self.shared.user_agent, true);
        }
        let payload =
            if empty { Payload::Empty } else { Payload::Stream(Some(stall_after(body, deadlines.stall))) };
        let trip = Trip {
            message: Message { method: parts.method, headers, payload },
            identity: identity.clone(),
            terms: Terms {
                kind,
                priority: Priority::Client,
                part: part(locate::path_and_query(&parts.uri)),
                relay: true,
                repeatable,
                // What changes something may take its time: hooks run first.
                first_byte: if repeatable { deadlines.first_byte } else { deadlines.relay_first_byte },
            },
            trust: Trust::Mutable,
            must_end_with: None,
        };
        self.travel(trip, locate::path_and_query(&parts.uri)).await
    }

    /// Sends a message and follows the redirects that may be followed.
    async fn travel(&self, mut trip: Trip, path_and_query: &str) -> Result<Response<Body>, Error> {
        self.check_sendable(&trip)?;
        let unsendable = |reason| Error::Unsendable { upstream: self.name.clone(), reason };
        let uri = self.base.uri(path_and_query).map_err(unsendable)?;
        let mut place = Place { uri, host: Host::Own };
        let anonymous = Identity::anonymous();
        let mut left_origin = false;
        for hop in 0.. {
            let stop = Stop {
                uri: &place.uri,
                identity: if left_origin { &anonymous } else { &trip.identity },
                outside: matches!(place.host, Host::Outside),
            };
            let asked = Instant::now();
            let client = if let Host::Other(client) = &place.host { client } else { self };
            let mut response = client.exchange(&mut trip.message, &stop, trip.terms).await?;
            headers::strip_hop_by_hop(response.headers_mut());
            let status = response.status();
            let next = redirect::read(&place.uri, &trip.message.method, status, response.headers());
            let target = match next {
                Next::Answer => {
                    if hop > 0 {
                        response.extensions_mut().insert(self.redirected(&place, left_origin));
                    }
                    return Ok(response);
                }
                Next::Refuse(refused) => return Err(self.refused(status, refused)),
                Next::Follow(target) => target,
            };
            // Its connection goes back to the pool before the next is asked for.
            drop(response);
            let next =
                self.next_place(&trip, &target, hop).map_err(|refused| self.refused(status, refused))?;
            if !locate::same_origin(&place.uri, &next.uri) {
                left_origin = true;
                headers::keep_harmless(&mut trip.message.headers);
            }
            // One deadline for all hops together.
            let left = trip.terms.first_byte.saturating_sub(asked.elapsed());
            trip.terms.first_byte = left.max(Duration::from_secs(1));
            place = next;
        }
        Err(unsendable("it was redirected without end"))
    }

    fn check_sendable(&self, trip: &Trip) -> Result<(), Error> {
        let upstream = self.name.clone();
        if trip.identity.binds_connection() {
            return Err(Error::ConnectionBound { upstream });
        }
        if matches!(trip.message.method, Method::CONNECT | Method::TRACE) {
            return Err(Error::Unsendable { upstream, reason: "CONNECT and TRACE are not passed on" });
        }
        Ok(())
    }

    /// Where a redirect leads, if it may be followed.
    fn next_place(&self, trip: &Trip, target: &Uri, hop: usize) -> Result<Place, Refused> {
        let refuse = |reason| Refused { location: redirect::host_of(target), reason };
        if hop >= redirect::HOPS {
            return Err(refuse("it is one of too many in a row"));
        }
        if matches!(trip.message.payload, Payload::Stream(_)) {
            return Err(refuse("the request's body can't be sent twice"));
        }
        let end = trip.must_end_with.as_deref().unwrap_or_default();
        if !locate::path_and_query(target).ends_with(end) {
            return Err(refuse("it leads to something else, perhaps a login page"));
        }
        self.place(target, trip.trust).ok_or_else(|| {
            refuse(
                "it is neither the same host nor an upstream; if that is right, list it under redirects_to",
            )
        })
    }

    /// Who is at a URL that a redirect names, if we may go there.
    fn place(&self, target: &Uri, trust: Trust) -> Option<Place> {
        let at = |uri: Uri, host| Some(Place { uri, host });
        if self.base.is_origin_of(target) {
            return at(target.clone(), Host::Own);
        }
        if let Some((client, uri)) = self.directory.upgrade().and_then(|directory| directory.find(target)) {
            let own = client.name == self.name;
            return at(uri, if own { Host::Own } else { Host::Other(client) });
        }
        let name = locate::place(target)?;
        let listed = self.config.redirects_to.iter().any(|host| host.eq_ignore_ascii_case(name.as_str()));
        if listed || locate::bare_host(target).eq_ignore_ascii_case(self.base.host()) {
            return at(target.clone(), Host::Own);
        }
        let public =
            target.scheme_str() == Some("https") && locate::port(target) == 443 && !name.is_address();
        if trust == Trust::Verified && public {
            return at(target.clone(), Host::Outside);
        }
        None
    }

    fn redirected(&self, place: &Place, host_changed: bool) -> Redirected {
        let known = match &place.host {
            Host::Own if self.base.is_origin_of(&place.uri) => Some(self),
            Host::Other(client) => Some(client.as_ref()),
            Host::Own | Host::Outside => None,
        };
        let (final_host, path_and_query) = match known {
            Some(client) => (client.name.to_string(), client.base.client_path(&place.uri)),
            None => (redirect::host_of(&place.uri), locate::path_and_query(&place.uri).to_owned()),
        };
        Redirected { host_changed, final_host, path_and_query }
    }

    fn refused(&self, status: StatusCode, refused: Refused) -> Error {
        let Refused { location, reason } = refused;
        Error::Redirect { upstream: self.name.clone(), status, location, reason }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Client").field(&self.name).finish()
    }
}

/// What the breaker calls a repository or a path; a query makes no other part.
fn part(name: &str) -> Part {
    let path = name.split('?').next().unwrap_or(name);
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}

/// A message on its way.
struct Trip {
    message: Message,
    identity: Identity,
    terms: Terms,
    trust: Trust,
    must_end_with: Option<String>,
}

/// Where a message goes next.
struct Place {
    uri: Uri,
    host: Host,
}

/// Whose connection carries it there.
enum Host {
    /// This upstream's.
    Own,
    /// Another upstream's.
    Other(Arc<Client>),
    /// One to any public host.
    Outside,
}
