//! One request, one answer: breaker, budget, retry, pool, and what the answer
//! teaches about limits and health. Redirects are somebody else's.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tidegate_http::{Body, Identity, empty, full, stall_after};
use tokio::time::Instant;

use crate::{
    Client, Error, Kind, Priority,
    body::watch,
    breaker::{Part, Pass, Sick},
    budget::{Permit, Refusal, Want},
    limits,
    transport::{Failure, Pace, Transport},
};

/// What is sent, over and over if need be.
pub(crate) struct Message {
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) payload: Payload,
}

/// The body of a message.
pub(crate) enum Payload {
    Empty,
    Bytes(Bytes),
    /// Can be sent once; `None` when it was.
    Stream(Option<Body>),
}

/// How a message is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) kind: Kind,
    pub(crate) priority: Priority,
    /// The part of the upstream whose health the answer tells of.
    pub(crate) part: Part,
    /// Whether the answer goes at a client's pace.
    pub(crate) relay: bool,
    /// Whether it may be sent twice.
    pub(crate) repeatable: bool,
    /// How long the first byte of the answer may take.
    pub(crate) first_byte: Duration,
}

/// One stop on a message's way.
pub(crate) struct Stop<'a> {
    pub(crate) uri: &'a Uri,
    /// The credential that goes there; anonymous once another origin was passed.
    pub(crate) identity: &'a Identity,
    /// A host that is no upstream: its health and limits are not ours to track,
    /// but what we ask of it counts.
    pub(crate) outside: bool,
}

impl Message {
    fn request(&mut self, stop: &Stop<'_>, pace: &Pace) -> Request<Body> {
        let body = match &mut self.payload {
            Payload::Empty => empty(),
            Payload::Bytes(bytes) => full(bytes.clone()),
            Payload::Stream(body) => body.take().map_or_else(empty, |body| pace.follow(body)),
        };
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = stop.uri.clone();
        request.headers_mut().clone_from(&self.headers);
        stop.identity.apply(request.headers_mut());
        request
    }
}

impl Client {
    /// Sends `message` to `stop`.
    pub(crate) async fn exchange(
        &self,
        message: &mut Message,
        stop: &Stop<'_>,
        terms: Terms,
    ) -> Result<Response<Body>, Error> {
        let exchanged = self.try_exchange(message, stop, terms).await;
        match &exchanged {
            Ok(response) => self.shared.metrics.answered(&self.name, terms.kind, response.status()),
            // Not asked, and nothing to do with a budget.
            Err(Error::Breaker { .. } | Error::Unsendable { .. }) => {}
            Err(error) => self.shared.metrics.failed(&self.name, terms.kind, error),
        }
        exchanged
    }

    async fn try_exchange(
        &self,
        message: &mut Message,
        stop: &Stop<'_>,
        terms: Terms,
    ) -> Result<Response<Body>, Error> {
        if !stop.outside {
            // Before the budget is paid, which an open breaker would waste.
            self.breaker.check(terms.part, Instant::now()).map_err(|wait| self.broken(wait))?;
        }
        let permit = self.permit(stop.identity, terms).await?;
        let pass = if stop.outside {
            None
        } else {
            Some(self.breaker.admit(terms.part, Instant::now()).map_err(|wait| self.broken(wait))?)
        };
        let own = self.transport.load_full();
        let transport = if stop.outside { &self.shared.outside } else { &*own };
        let (answer, permit) = self.attempt(transport, message, stop, (terms, permit)).await;
        self.learn(&answer, stop, terms, pass);
        Ok(self.receive(answer?, permit))
    }

    /// Sends it, and once more if the pool gave us a connection that had died.
    async fn attempt(
        &self,
        transport: &Transport,
        message: &mut Message,
        stop: &Stop<'_>,
        (terms, permit): (Terms, Permit),
    ) -> (Result<Response<Incoming>, Error>, Option<Permit>) {
        let pace = Pace::new(terms.first_byte);
        let request = message.request(stop, &pace);
        // What must not be sent twice gets a new connection: only there a
        // failure is never one that a retry would have hidden.
        let failure = match transport.call(request, !terms.repeatable, &pace).await {
            Ok(response) => return (Ok(response), Some(permit)),
            Err(failure) => failure,
        };
        let error = |failure: Failure| failure.into_error(self.name.clone());
        if pace.body_failed() {
            let upstream = self.name.clone();
            return (Err(Error::Unsendable { upstream, reason: "its body broke off" }), None);
        }
        if !(failure.lost && terms.repeatable) {
            return (Err(error(failure)), None);
        }
        // The second one is a request like any other.
        drop(permit);
        let permit = match self.permit(stop.identity, terms).await {
            Ok(permit) => permit,
            Err(refused) => return (Err(refused), None),
        };
        let request = message.request(stop, &pace);
        match transport.call(request, true, &pace).await {
            Ok(response) => (Ok(response), Some(permit)),
            Err(failure) => (Err(error(failure)), None),
        }
    }

    async fn permit(&self, identity: &Identity, terms: Terms) -> Result<Permit, Error> {
        let Terms { priority, relay, .. } = terms;
        let patience = self.shared.deadlines.budget.min(terms.first_byte);
        self.budget.acquire(Want { identity, priority, relay, patience }).await.map_err(|refusal| {
            let upstream = self.name.clone();
            match refusal {
                Refusal::Spent(retry_after) => Error::Budget { upstream, retry_after },
                Refusal::Limited(retry_after) => Error::Limited { upstream, retry_after },
            }
        })
    }

    fn broken(&self, retry_after: Duration) -> Error {
        Error::Breaker { upstream: self.name.clone(), retry_after }
    }

    /// Takes note of health and limits.
    fn learn(
        &self,
        answer: &Result<Response<Incoming>, Error>,
        stop: &Stop<'_>,
        terms: Terms,
        pass: Option<Pass>,
    ) {
        let Some(pass) = pass else { return };
        match answer {
            Ok(response) => {
                let (status, headers) = (response.status(), response.headers());
                if let Some(pause) = limits::pause_asked(status, headers, SystemTime::now()) {
                    self.budget.report_limit(stop.identity, pause);
                }
                // A relay goes wherever a client likes: pages that are broken
                // for good must not let it close the way for everyone.
                let gateway = matches!(status.as_u16(), 502..=504);
                match status.is_server_error() {
                    true if gateway || !terms.relay => pass.sick(Sick::Part, Instant::now()),
                    true => drop(pass),
                    false => pass.well(),
                }
            }
            Err(error) if error.is_failure() => pass.sick(error.reach(), Instant::now()),
            // It was not asked, so this says nothing of it.
            Err(_) => drop(pass),
        }
    }

    /// Gives the answer's body its deadline, and the permit the body's life.
    fn receive(&self, answer: Response<Incoming>, permit: Option<Permit>) -> Response<Body> {
        let stall = self.config.stall.unwrap_or(self.shared.deadlines.stall);
        answer.map(|body| {
            let ended = body.is_end_stream();
            let body = stall_after(body.map_err(Into::into).boxed_unsync(), stall);
            if ended {
                return body;
            }
            watch(body, move || {
                let _held = &permit;
            })
        })
    }
}
