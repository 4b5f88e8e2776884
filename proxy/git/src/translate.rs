//! Cold fetches of clients that have something already: asked of the upstream
//! in its version, answered to the client in its own, not kept.
//!
//! Every such request is sent on with `done`, so that the pack comes in the
//! first answer: a second round would be a second fetch. A v2 client is told
//! `ready`, which it takes at any time. A v0 client can only be given a pack
//! unasked if it said `no-done` and has something in common; else it is told
//! NAK and goes on until it says `done` itself.

use std::sync::Arc;

use futures_util::stream;
use http::Response;
use http_body_util::BodyExt as _;
use tidegate_http::{Body, BoxError, Outcome, Served, stall_after};

use crate::{
    deliver::{self, Framing},
    error::Error,
    fetch::Fetch,
    respond,
    update::not_fetched,
    wire::{
        answer::{AckKind, Acknowledgment, AnswerParser, Event, Head, WantedRef},
        capabilities::Feature,
        fetch::{AckMode, FetchRequest},
        protocol::Version,
    },
};

const STALL: std::time::Duration = std::time::Duration::from_secs(60);

impl Fetch<'_> {
    /// Passes a request with haves on to the upstream.
    pub(crate) async fn translate(
        &self,
        request: FetchRequest,
        wanted: Vec<WantedRef>,
    ) -> Result<Response<Body>, Error> {
        let live = &self.admitted.live;
        let served = Served { detail: Some("relay"), ..Served::new(Outcome::Relay) };
        let v0_waits = self.version != Version::V2 && !request.done;
        let may_be_given = request.ack_mode == AckMode::Detailed && request.no_done;
        if v0_waits && !may_be_given {
            let nak = Head { acknowledgments: vec![Acknowledgment::Nak], ..Head::default() };
            return Ok(respond::whole(respond::RESULT, nak.encode(self.version), served));
        }
        let dialect = live.dialect().ok_or_else(|| Error::internal("the upstream's dialect is not known"))?;
        let mut onward = FetchRequest { done: true, no_progress: true, no_done: false, ..request.clone() };
        onward.ack_mode = AckMode::Detailed;
        if !dialect.capabilities.has(Feature::Filter) {
            onward.filter = None;
        }
        let speaker = live.speaker(&self.admitted.who.asked.spelled);
        let behalf = self.git.fetcher(live, &self.admitted.who.behalf());
        let body =
            speaker.fetch(&behalf, &dialect, &onward).await.map_err(|error| not_fetched(&speaker, error))?;
        let mut answer = Answer::new(body, dialect.parser(&onward));
        let head = answer.head().await?;
        live.want_mirror();
        self.git.update_behind(live, &behalf);
        let mut head = for_client(&head, &request, self.version);
        if head.pack {
            head.wanted_refs = wanted;
            let body = deliver::body(&head, answer.pack(), Framing::of(&request, self.version));
            Ok(respond::git(respond::RESULT, body, served))
        } else {
            Ok(respond::whole(respond::RESULT, head.encode(self.version), served))
        }
    }
}

/// The upstream's head as this client expects it.
pub(crate) fn for_client(head: &Head, request: &FetchRequest, version: Version) -> Head {
    let common: Vec<_> = head
        .acknowledgments
        .iter()
        .filter_map(|line| match line {
            Acknowledgment::Ack(oid, _) => Some(*oid),
            Acknowledgment::Nak => None,
        })
        .fold(Vec::new(), |mut all, oid| {
            if !all.contains(&oid) {
                all.push(oid);
            }
            all
        });
    let shallow_info =
        request.has_shallow_section(version).then(|| head.shallow_info.clone().unwrap_or_default());
    let mut mine =
        Head { pack: true, shallow_info, wanted_refs: head.wanted_refs.clone(), ..Head::default() };
    match version {
        Version::V2 => {
            if !request.done && !request.haves.is_empty() {
                mine.acknowledgments =
                    common.iter().map(|oid| Acknowledgment::Ack(*oid, AckKind::Plain)).collect();
                mine.ready = true;
            }
        }
        Version::V0 | Version::V1 if request.ended_after_deepen => mine.pack = false,
        Version::V0 | Version::V1 => v0_lines(&mut mine, &common, request),
    }
    mine
}

/// What git's upload-pack says to a stateless v0 client with these in common.
fn v0_lines(mine: &mut Head, common: &[gix_hash::ObjectId], request: &FetchRequest) {
    let kind = match (request.ack_mode, request.done) {
        (AckMode::Detailed, true) => Some(AckKind::Common),
        (AckMode::Detailed, false) => Some(AckKind::Ready),
        (AckMode::Multi, _) => Some(AckKind::Continue),
        (AckMode::Single, _) => None,
    };
    if let Some(kind) = kind {
        mine.acknowledgments.extend(common.iter().map(|oid| Acknowledgment::Ack(*oid, kind)));
    }
    match common.last() {
        Some(last) => {
            if !request.done {
                mine.acknowledgments.push(Acknowledgment::Nak);
            }
            let last = if request.ack_mode == AckMode::Single { &common[0] } else { last };
            mine.acknowledgments.push(Acknowledgment::Ack(*last, AckKind::Plain));
        }
        None => {
            mine.acknowledgments.push(Acknowledgment::Nak);
            mine.pack = request.done;
        }
    }
}

/// The upstream's answer while it is passed on.
struct Answer {
    body: Body,
    parser: AnswerParser,
    events: std::collections::VecDeque<Event>,
    over: bool,
}

impl Answer {
    fn new(body: Body, parser: AnswerParser) -> Self {
        Self {
            body: stall_after(body, STALL),
            parser,
            events: std::collections::VecDeque::new(),
            over: false,
        }
    }

    async fn next(&mut self) -> Result<Option<Event>, Error> {
        let remote = |text: String| Error::Remote(text.into());
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            if self.over {
                return Ok(None);
            }
            match self.body.frame().await {
                Some(frame) => {
                    let frame =
                        frame.map_err(|error| remote(format!("the upstream's answer broke off: {error}")))?;
                    if let Ok(bytes) = frame.into_data() {
                        self.events
                            .extend(self.parser.push(&bytes).map_err(|error| remote(error.to_string()))?);
                    }
                }
                None => {
                    self.events.extend(self.parser.finish().map_err(|error| remote(error.to_string()))?);
                    self.over = true;
                }
            }
        }
    }

    async fn head(&mut self) -> Result<Arc<Head>, Error> {
        while let Some(event) = self.next().await? {
            match event {
                Event::Head(head) => return Ok(Arc::new(head)),
                Event::Error(text) => return Err(Error::Remote(text.into())),
                _ => {}
            }
        }
        Err(Error::Remote("the upstream's answer has no pack".into()))
    }

    /// The pack; an answer that doesn't end as it should cuts the connection.
    fn pack(self) -> Body {
        tidegate_http::stream(stream::try_unfold(self, |mut answer| async move {
            loop {
                match answer.next().await.map_err(|error| BoxError::from(error.to_string()))? {
                    Some(Event::Pack(bytes)) => return Ok(Some((bytes, answer))),
                    Some(Event::Error(text)) => return Err(BoxError::from(text)),
                    Some(_) => {}
                    None => return Ok(None),
                }
            }
        }))
    }
}
