//! Cold answers: what no mirror can give yet is asked of the upstream, once
//! for all who want the same, and streamed to them while it arrives.
//!
//! The request is re-issued in the upstream's own version and re-framed for
//! each client. A pack that holds every branch and tag whole becomes the
//! mirror; after any other the mirror is completed behind the clients' backs.

use std::{sync::Arc, time::Duration};

use moka::sync::Cache;
use sha2::{Digest as _, Sha256};
use tidegate_http::Outcome;
use tidegate_name::{Algorithm, Digest, Repository};
use tidegate_store::{Begin, Finished, Writer};
use tidegate_upstream::Priority;

use crate::{
    error::Error,
    flight::{Flight, Flights, Key, Launch, Source},
    git::Git,
    live::{Live, View},
    receive::receive,
    refresh::Who,
    speak::{Dialect, OnBehalf, Speaker},
    update::TAKE_OVERS,
    wire::{
        answer::Head,
        capabilities::{Capabilities, Feature},
        fetch::{Deepen, FetchRequest},
        protocol::Version,
    },
};

const TRAILER: usize = 20;

/// Fills under way, and what they brought.
pub(crate) struct Fills {
    flights: Flights<Arc<Head>>,
    done: Cache<Key, Done>,
}

#[derive(Clone)]
struct Done {
    repository: Repository,
    head: Arc<Head>,
    digest: Digest,
}

impl Default for Fills {
    fn default() -> Self {
        Self {
            flights: Flights::default(),
            done: Cache::builder().max_capacity(10_000).time_to_idle(Duration::from_secs(24 * 3600)).build(),
        }
    }
}

/// Everything one fill needs.
struct Errand {
    live: Arc<Live>,
    view: View,
    behalf: OnBehalf,
    speaker: Speaker,
    dialect: Dialect,
    request: FetchRequest,
}

impl Git {
    /// What an earlier fill brought for this very request. It stays right for
    /// ever: wants and depth decide the answer, not the time.
    pub(crate) async fn filled(&self, live: &Live, request: &FetchRequest) -> Option<(Arc<Head>, Source)> {
        if !request.haves.is_empty() || names_refs(request) {
            return None;
        }
        let key = key(live, &normalised(request));
        let done = self.fills.done.get(&key)?;
        let entry = self.store.get(&done.digest).await;
        if entry.is_none() {
            self.fills.done.invalidate(&key);
        }
        entry.map(|entry| (done.head, Source::Kept(entry)))
    }

    /// Answers a request without haves from the upstream.
    pub(crate) async fn fill(
        self: &Arc<Self>,
        live: &Arc<Live>,
        view: &View,
        who: &Who,
        request: &FetchRequest,
    ) -> Result<(Arc<Head>, Source, Outcome), Error> {
        let Some(dialect) = live.dialect_for(&who.asked.spelled) else {
            return Err(Error::internal("the upstream's dialect is not known"));
        };
        let mut request = normalised(request);
        if !dialect.capabilities.has(Feature::Filter) {
            // More than asked for is still right; less would not be.
            request.filter = None;
        }
        let key = key(live, &request);
        let mut failed = Error::internal("no attempt was made");
        for _ in 0..TAKE_OVERS {
            let (flight, joined) = self.fills.flights.join_or(key, || {
                let errand = Errand {
                    live: Arc::clone(live),
                    view: view.clone(),
                    behalf: who.behalf(),
                    speaker: live.speaker(&who.asked.spelled),
                    dialect: dialect.clone(),
                    request: request.clone(),
                };
                self.launch(key, errand)
            })?;
            match flight.begun().await {
                Ok((head, source)) => {
                    let outcome = if joined { Outcome::Collapsed } else { Outcome::Miss };
                    return Ok((head, source, outcome));
                }
                // The leader's refusal is its own; the next one takes over.
                Err(error) if joined && error.is_personal() => failed = error.of_another(),
                Err(error) => return Err(error),
            }
        }
        Err(failed)
    }

    /// Removes what fills brought for a repository; says how much there was.
    pub(crate) async fn forget_fills(&self, repository: &Repository) -> usize {
        let of =
            |(key, done): (Arc<Key>, Done)| (done.repository == *repository).then_some((*key, done.digest));
        let mine: Vec<(Key, Digest)> = self.fills.done.iter().filter_map(of).collect();
        for (key, digest) in &mine {
            self.fills.done.invalidate(key);
            self.store.remove(digest).await;
        }
        mine.len()
    }

    fn launch(self: &Arc<Self>, key: Key, errand: Errand) -> Result<Flight<Arc<Head>>, Error> {
        let begin = Begin { algorithm: Algorithm::Sha256, withhold: TRAILER, max: self.caps.pack_bytes };
        let (writer, growing) = self.store.begin(&begin).map_err(Error::internal)?;
        let (launch, flight) = Flight::new(growing);
        let (git, tag) = (Arc::clone(self), flight.tag());
        tokio::spawn(async move {
            let landing = git.fills.flights.landing(key, tag);
            let filled = fly(&git, &errand, &launch, writer).await;
            match filled {
                Ok((head, Finished::Kept(entry))) => {
                    if errand.live.is_purged() {
                        let digest = *entry.digest();
                        drop(entry);
                        git.store.remove(&digest).await;
                        return;
                    }
                    let repository = errand.live.repository.clone();
                    git.fills.done.insert(key, Done { repository, head, digest: *entry.digest() });
                    drop(landing);
                    settle(&git, &errand, Some(Finished::Kept(entry))).await;
                }
                Ok((_, Finished::Unkept { .. })) => {}
                Err(error) => {
                    tracing::warn!(repository = %errand.live.repository, %error, "a cold fetch failed");
                    // Off the board first: who takes over must not join it again.
                    drop(landing);
                    launch.begin(Err(error));
                }
            }
        });
        Ok(flight)
    }
}

async fn fly(
    git: &Git,
    errand: &Errand,
    launch: &Launch<Arc<Head>>,
    writer: Writer,
) -> Result<(Arc<Head>, Finished), Error> {
    let body = match git.obtain(&errand.speaker, &errand.behalf, &errand.dialect, &errand.request).await {
        Ok(body) => body,
        Err(error) => {
            writer.fail("the upstream sent no pack");
            return Err(error);
        }
    };
    let parser = errand.dialect.parser(&errand.request);
    let mut seen = None;
    let finished = receive(body, parser, writer, |head| {
        let head = Arc::new(head);
        seen = Some(Arc::clone(&head));
        launch.begin(Ok(head));
    })
    .await?;
    let head = seen.ok_or_else(|| Error::Remote("the upstream's answer has no pack".into()))?;
    Ok((head, finished))
}

/// What a fill means for the mirror.
async fn settle(git: &Arc<Git>, errand: &Errand, pack: Option<Finished>) {
    let live = &errand.live;
    live.want_mirror();
    if live.snapshot().is_some() {
        return;
    }
    if covers(&errand.request, &errand.view) {
        match git.publish(live, Some(&errand.view.refs), pack, Vec::new()).await {
            Ok(_) => return,
            Err(error) => {
                tracing::warn!(repository = %live.repository, ?error, "a cold clone did not become the mirror");
            }
        }
    }
    let behalf = OnBehalf { priority: Priority::Background, ..errand.behalf.clone() };
    git.update_behind(live, &behalf);
}

/// Whether the pack of this request holds every branch and tag, whole.
fn covers(request: &FetchRequest, view: &View) -> bool {
    let whole = request.deepen.is_none() && request.filter.is_none() && request.shallows.is_empty();
    whole && view.refs.eager_tips().iter().all(|tip| request.wants.binary_search(tip).is_ok())
}

/// The request as the upstream is asked: nothing in it that only says how this
/// client talks.
fn normalised(request: &FetchRequest) -> FetchRequest {
    let mut wants = request.wants.clone();
    wants.sort_unstable();
    wants.dedup();
    let mut shallows = request.shallows.clone();
    shallows.sort_unstable();
    shallows.dedup();
    FetchRequest {
        wants,
        shallows,
        deepen: request.deepen.clone(),
        filter: request.filter.clone(),
        ofs_delta: request.ofs_delta,
        include_tag: request.include_tag,
        done: true,
        no_progress: true,
        ..FetchRequest::default()
    }
}

/// Whether the request names refs, whose meaning changes with time.
fn names_refs(request: &FetchRequest) -> bool {
    matches!(&request.deepen, Some(Deepen::Cutoff { not, .. }) if !not.is_empty())
}

fn key(live: &Live, request: &FetchRequest) -> Key {
    let everything = Capabilities::new(Version::V2, gix_hash::Kind::Sha1).with(&[
        Feature::Filter,
        Feature::Shallow,
        Feature::DeepenSince,
        Feature::DeepenNot,
        Feature::DeepenRelative,
        Feature::OfsDelta,
        Feature::IncludeTag,
    ]);
    let mut hasher = Sha256::new();
    let name = live.repository.to_string();
    hasher.update(b"tidegate fill 1\0");
    hasher.update((name.len() as u64).to_be_bytes());
    hasher.update(name.as_bytes());
    // The encoded request says everything that decides the answer.
    hasher.update(request.encode_v2(&everything).unwrap_or_default());
    hasher.finalize().into()
}
