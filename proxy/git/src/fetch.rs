//! `fetch`: which objects, cut where, in one pack.
//!
//! From the mirror if there is one; what it doesn't know is asked of the
//! upstream once, and then tried again. Without a mirror the upstream answers,
//! through a fill that all who want the same share.

use std::sync::Arc;

use gix_hash::ObjectId;
use http::Response;
use tidegate_http::{Body, Outcome, Served};
use tokio::time::Instant;

use crate::{
    deliver::{self, Framing},
    error::Error,
    git::{Admitted, Git},
    live::{Held, View},
    pack,
    prepare::{Prepared, Trouble, prepare},
    respond,
    speak::Scope,
    wire::{
        answer::{Head, WantedRef},
        fetch::FetchRequest,
        protocol::Version,
    },
};

/// What a fetch needs to know of its request.
pub(crate) struct Fetch<'a> {
    pub(crate) git: &'a Arc<Git>,
    pub(crate) admitted: &'a Admitted,
    pub(crate) version: Version,
    pub(crate) since: Instant,
}

impl Fetch<'_> {
    /// Answers the request.
    pub(crate) async fn answer(&self, mut request: FetchRequest) -> Result<Response<Body>, Error> {
        let live = &self.admitted.live;
        self.git.note_read(live, Scope::Eager);
        let wanted = self.resolve(&mut request).await?;
        if request.wants_nothing() {
            return Ok(respond::whole(respond::RESULT, "", Served::new(Outcome::Bypass)));
        }
        if wanted.is_empty()
            && let Some((head, source)) = self.git.filled(live, &request).await
        {
            return Ok(self.filled(&request, &head, source.reader(), Outcome::Hit));
        }
        match live.held() {
            Some(held) => self.by_mirror(held, request, wanted).await,
            None => self.by_upstream(request, wanted).await,
        }
    }

    /// Turns refs wanted by name into wants.
    async fn resolve(&self, request: &mut FetchRequest) -> Result<Vec<WantedRef>, Error> {
        if request.want_refs.is_empty() {
            return Ok(Vec::new());
        }
        let (view, _) = self.refs(Scope::Eager).await?;
        let mut wanted = Vec::with_capacity(request.want_refs.len());
        for name in std::mem::take(&mut request.want_refs) {
            let unknown = || Error::BadFetch(format!("unknown ref {}", String::from_utf8_lossy(&name)));
            if self.git.config.hides(&name) {
                return Err(unknown());
            }
            let oid = if let Some(oid) = view.refs.resolve(&name) {
                oid
            } else {
                let (view, _) = self.refs(Scope::All).await?;
                view.refs.resolve(&name).ok_or_else(unknown)?
            };
            if !request.wants.contains(&oid) {
                request.wants.push(oid);
            }
            wanted.push(WantedRef { oid, name });
        }
        Ok(wanted)
    }

    async fn refs(&self, scope: Scope) -> Result<(View, Outcome), Error> {
        self.git.fresh(&self.admitted.live, &self.admitted.who, scope, self.since).await
    }

    async fn by_mirror(
        &self,
        mut held: Held,
        request: FetchRequest,
        wanted: Vec<WantedRef>,
    ) -> Result<Response<Body>, Error> {
        let live = &self.admitted.live;
        let request = Arc::new(request);
        let mut asked = false;
        loop {
            let prepared = self.prepared(&held, &request, &wanted).await;
            let unknown = match prepared {
                Ok(prepared) => return self.deliver(held, &request, prepared).await,
                Err(Trouble::Unknown(unknown)) => unknown,
                Err(Trouble::Failed(error)) => return Err(error),
                Err(Trouble::Boundary) => {
                    return Err(Error::internal("the mirror's history ends before the answer does"));
                }
            };
            if asked {
                return Err(Error::NotOurRef(unknown[0]));
            }
            asked = true;
            self.git.want(live, &self.admitted.who, unknown.clone()).await?;
            held = live.held().ok_or(Error::NotOurRef(unknown[0]))?;
        }
    }

    async fn prepared(
        &self,
        held: &Held,
        request: &Arc<FetchRequest>,
        wanted: &[WantedRef],
    ) -> Result<Prepared, Trouble> {
        let (held, request, wanted) = (held.clone(), Arc::clone(request), wanted.to_vec());
        let (version, repository) = (self.version, self.admitted.live.repository.to_string());
        let work = move || prepare(&held, &request, wanted, version, &repository);
        tokio::task::spawn_blocking(work)
            .await
            .unwrap_or_else(|error| Err(Trouble::Failed(Error::internal(error))))
    }

    async fn deliver(
        &self,
        held: Held,
        request: &FetchRequest,
        prepared: Prepared,
    ) -> Result<Response<Body>, Error> {
        let generation = Some(held.snapshot.generation);
        self.admitted.live.roots_read(&held, &request.wants);
        let Some((key, plan)) = prepared.pack else {
            let served = Served { generation, ..Served::new(Outcome::Hit) };
            return Ok(respond::whole(respond::RESULT, prepared.head.encode(self.version), served));
        };
        let build = move |out: &mut dyn std::io::Write| {
            let view = pack::View { set: &held.snapshot.packs, graph: &held.snapshot.graph };
            pack::write(&view, &plan, out).map(drop).map_err(Error::internal)
        };
        let repository = &self.admitted.live.repository;
        let (source, outcome) = self.git.responses.get(key, repository, build).await?;
        let served = Served { generation, ..Served::new(outcome) };
        let body = deliver::body(&prepared.head, source.reader(), Framing::of(request, self.version));
        Ok(respond::git(respond::RESULT, body, served))
    }

    async fn by_upstream(
        &self,
        request: FetchRequest,
        wanted: Vec<WantedRef>,
    ) -> Result<Response<Body>, Error> {
        let live = &self.admitted.live;
        // After a restart nothing may have been seen yet.
        let view = match live.view() {
            Some(view) if live.dialect_for(&self.admitted.who.asked.spelled).is_some() => view,
            _ => self.refs(Scope::Eager).await?.0,
        };
        if let Some(held) = live.held() {
            return self.by_mirror(held, request, wanted).await;
        }
        if !request.haves.is_empty() {
            return self.translate(request, wanted).await;
        }
        if let Some(unknown) = request.wants.iter().find(|oid| live.is_unknown(oid)) {
            return Err(Error::NotOurRef(*unknown));
        }
        let (head, source, outcome) = match self.git.fill(live, &view, &self.admitted.who, &request).await {
            Ok(filled) => filled,
            Err(error) => return Err(self.not_filled(&view, &request.wants, error)),
        };
        if wanted.is_empty() {
            return Ok(self.filled(&request, &head, source.reader(), outcome));
        }
        let head = Head { wanted_refs: wanted, ..Head::clone(&head) };
        Ok(self.filled(&request, &head, source.reader(), outcome))
    }

    /// An answer that a fill brought, as this client takes it.
    fn filled(&self, request: &FetchRequest, head: &Head, pack: Body, outcome: Outcome) -> Response<Body> {
        let head = crate::translate::for_client(head, request, self.version);
        if head.pack {
            let body = deliver::body(&head, pack, Framing::of(request, self.version));
            respond::git(respond::RESULT, body, cold(outcome))
        } else {
            respond::whole(respond::RESULT, head.encode(self.version), cold(outcome))
        }
    }

    /// An upstream that refuses ids it never advertised is told as git tells
    /// it, and not asked again for a moment.
    fn not_filled(&self, view: &View, wants: &[ObjectId], error: Error) -> Error {
        let Error::Remote(text) = &error else { return error };
        let tips = view.refs.tips();
        match wants.iter().find(|want| !tips.contains(want)) {
            Some(unknown) if text.contains("not our ref") => {
                self.admitted.live.remember_unknown(*unknown);
                Error::NotOurRef(*unknown)
            }
            _ => error,
        }
    }
}

/// An answer that comes from no generation.
fn cold(outcome: Outcome) -> Served {
    Served { generation: Some(0), ..Served::new(outcome) }
}
