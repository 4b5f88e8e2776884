//! Cold fetches of clients that have something already: asked of the upstream
//! in its version, answered to the client in its own, round by round, not kept.
//!
//! A v2 client is given the pack as soon as the upstream sends it. A v0 client
//! can be given one before it says `done` only if it said `no-done`; from any
//! other the upstream is asked to wait for `done`, and where it can't, the
//! round ends with NAK.

use futures_util::stream;
use http::Response;
use http_body_util::BodyExt as _;
use tidegate_http::{Body, BoxError, Outcome, Served, stall_after};

use crate::{
    deliver::{self, Framing},
    error::Error,
    fetch::Fetch,
    respond,
    speak::{Dialect, OnBehalf},
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
        let served = Served { detail: Some("relay"), generation: Some(0), ..Served::new(Outcome::Relay) };
        let dialect = live
            .dialect_for(&self.admitted.who.asked.spelled)
            .ok_or_else(|| Error::internal("the upstream's dialect is not known"))?;
        let mut onward = FetchRequest { no_progress: true, ..request.clone() };
        if !dialect.capabilities.has(Feature::Filter) {
            onward.filter = None;
        }
        let may_be_given = request.done
            || self.version == Version::V2
            || (request.ack_mode == AckMode::Detailed && request.no_done);
        if !may_be_given && dialect.speaks_v2() {
            if !dialect.capabilities.has(Feature::WaitForDone) {
                let nak = Head { acknowledgments: vec![Acknowledgment::Nak], ..Head::default() };
                return Ok(respond::whole(respond::RESULT, nak.encode(self.version), served));
            }
            onward.wait_for_done = true;
        }
        // A v2 upstream acknowledges nothing once it is told `done`, but a v0
        // client expects to be told: so `done` is kept for a second request.
        let holds_back = self.version != Version::V2 && request.done && dialect.speaks_v2();
        if holds_back {
            onward.done = false;
        }
        let behalf = self.admitted.who.behalf();
        let mut answer = self.ask(&dialect, &behalf, &onward).await?;
        let mut head = answer.head().await?;
        if holds_back && !head.pack {
            onward.done = true;
            answer = self.ask(&dialect, &behalf, &onward).await?;
            head = Head { acknowledgments: head.acknowledgments, ..answer.head().await? };
        }
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

    async fn ask(
        &self,
        dialect: &Dialect,
        behalf: &OnBehalf,
        onward: &FetchRequest,
    ) -> Result<Answer, Error> {
        let speaker = self.admitted.live.speaker(&self.admitted.who.asked.spelled);
        let body = self.git.obtain(&speaker, behalf, dialect, onward).await?;
        Ok(Answer::new(body, dialect.parser(onward)))
    }
}

/// The upstream's head as this client expects it.
pub(crate) fn for_client(head: &Head, request: &FetchRequest, version: Version) -> Head {
    let mut shared = Vec::new();
    for line in &head.acknowledgments {
        if let Acknowledgment::Ack(oid, _) = line
            && !shared.contains(oid)
        {
            shared.push(*oid);
        }
    }
    let shallow_info =
        request.has_shallow_section(version).then(|| head.shallow_info.clone().unwrap_or_default());
    let mut mine =
        Head { pack: head.pack, shallow_info, wanted_refs: head.wanted_refs.clone(), ..Head::default() };
    match version {
        Version::V2 if request.done || request.haves.is_empty() => {}
        Version::V2 => {
            mine.acknowledgments =
                shared.iter().map(|oid| Acknowledgment::Ack(*oid, AckKind::Plain)).collect();
            if shared.is_empty() && !head.pack {
                mine.acknowledgments.push(Acknowledgment::Nak);
            }
            mine.ready = head.pack;
        }
        Version::V0 | Version::V1 if request.ended_after_deepen => mine.pack = false,
        Version::V0 | Version::V1 => mine.acknowledgments = v0_lines(&shared, request, head.pack),
    }
    mine
}

/// What git's upload-pack says to a stateless v0 client with these in common.
fn v0_lines(shared: &[gix_hash::ObjectId], request: &FetchRequest, pack: bool) -> Vec<Acknowledgment> {
    let plain = |oid: &gix_hash::ObjectId| Acknowledgment::Ack(*oid, AckKind::Plain);
    if request.ack_mode == AckMode::Single {
        return vec![shared.first().map_or(Acknowledgment::Nak, plain)];
    }
    let given_early = pack && !request.done;
    let mut lines: Vec<_> = shared
        .iter()
        .enumerate()
        .map(|(at, oid)| {
            let kind = match request.ack_mode {
                AckMode::Multi | AckMode::Single => AckKind::Continue,
                AckMode::Detailed if given_early && at + 1 == shared.len() => AckKind::Ready,
                AckMode::Detailed => AckKind::Common,
            };
            Acknowledgment::Ack(*oid, kind)
        })
        .collect();
    if !request.done || shared.is_empty() {
        lines.push(Acknowledgment::Nak);
    }
    if pack {
        lines.extend(shared.last().map(plain));
    }
    lines
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
            if let Some(frame) = self.body.frame().await {
                let frame =
                    frame.map_err(|error| remote(format!("the upstream's answer broke off: {error}")))?;
                if let Ok(bytes) = frame.into_data() {
                    let events = self.parser.push(&bytes).map_err(|error| remote(error.to_string()))?;
                    self.events.extend(events);
                }
            } else {
                self.events.extend(self.parser.finish().map_err(|error| remote(error.to_string()))?);
                self.over = true;
            }
        }
    }

    async fn head(&mut self) -> Result<Head, Error> {
        while let Some(event) = self.next().await? {
            match event {
                Event::Head(head) => return Ok(head),
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
