//! Brings a mirror to what was seen upstream: one fetch for all that moved,
//! verified and published as the next generation.

use std::{collections::HashSet, sync::Arc, time::SystemTime};

use gix_hash::ObjectId;
use tidegate_name::Algorithm;
use tidegate_store::{Begin, Finished};

use crate::{
    error::{Error, Sick},
    git::Git,
    live::Live,
    mirror::{Published, Snapshot, Update},
    receive::receive,
    refs::RefTable,
    speak::{Dialect, OnBehalf, Speaker},
    wire::fetch::FetchRequest,
};

/// How many of our tips the upstream is told of. One round is all there is, so
/// that a fetch is one request.
const MOST_HAVES: usize = 256;
/// How often one who waited for another's work takes over, since that one's
/// credential failed.
pub(crate) const TAKE_OVERS: usize = 3;
/// Tips that are asked for one by one after they were refused together.
const ONE_BY_ONE: usize = 8;
/// Superseded tips kept per repository.
const MOST_SUPERSEDED: usize = 1_000;

/// How an update ended.
pub(crate) type Updated = Result<(), Error>;

impl Git {
    /// Fetches what the last look saw and the mirror lacks, and publishes it;
    /// or joins the update under way.
    pub(crate) async fn update(self: &Arc<Self>, live: &Arc<Live>, behalf: &OnBehalf) -> Updated {
        let mut failed = Error::internal("an update panicked");
        for _ in 0..TAKE_OVERS {
            let (git, live, behalf) = (Arc::clone(self), Arc::clone(live), behalf.clone());
            let key = live.repository.clone();
            match self.updates.run(key, move || update_now(git, live, behalf)).await {
                // It was made with another's credential.
                (Some(Err(error)), true) if error.is_personal() => failed = error.of_another(),
                (Some(updated), _) => return updated,
                (None, _) => break,
            }
        }
        Err(failed)
    }

    /// The same without waiting.
    pub(crate) fn update_behind(self: &Arc<Self>, live: &Arc<Live>, behalf: &OnBehalf) {
        let (git, live, behalf) = (Arc::clone(self), Arc::clone(live), behalf.clone());
        self.updates.start(live.repository.clone(), move || update_now(git, live, behalf));
    }

    /// Fetches `wants` into a spool file; `None` if nothing is wanted.
    pub(crate) async fn fetch_pack(
        &self,
        speaker: &Speaker,
        behalf: &OnBehalf,
        dialect: &Dialect,
        request: &FetchRequest,
    ) -> Result<Finished, Error> {
        let body = self.obtain(speaker, behalf, dialect, request).await?;
        let parser = dialect.parser(request);
        let begin = Begin { algorithm: Algorithm::Sha256, withhold: 0, max: self.caps.pack_bytes };
        let (writer, _growing) = self.store.begin(&begin).map_err(Error::internal)?;
        receive(body, parser, writer, |_| {}).await
    }

    /// Publishes a table of refs and the pack that completes it. Without a
    /// table the refs stay as they are and the pack brings `roots`.
    pub(crate) async fn publish(
        self: &Arc<Self>,
        live: &Live,
        table: Option<&Arc<RefTable>>,
        pack: Option<Finished>,
        roots: Vec<ObjectId>,
    ) -> Result<Published, Error> {
        let pack = match pack {
            None => None,
            Some(Finished::Kept(entry)) => Some(entry),
            Some(Finished::Unkept { .. }) => {
                return Err(Error::internal("the disk is full; the mirror stays as it is"));
            }
        };
        let _one_at_a_time = live.publishing.lock().await;
        if live.is_purged() {
            let sick = Sick::new("the repository was purged meanwhile; ask again");
            return Err(Error::Away { upstream: live.client.name().clone(), sick });
        }
        let refs = match (table, live.snapshot()) {
            (Some(table), _) => Arc::clone(table),
            (None, Some(snapshot)) => Arc::clone(&snapshot.refs),
            (None, None) => return Err(Error::internal("nothing to add roots to")),
        };
        let mirror = match live.mirror.load_full() {
            Some(mirror) => mirror,
            None => self.registry.open(&live.repository, SystemTime::now()).map_err(Error::internal)?,
        };
        let update = Update {
            refs: RefTable::clone(&refs),
            pack: pack.as_ref().map(tidegate_store::Entry::path),
            roots,
            shallow: Vec::new(),
            unshallow: Vec::new(),
            now: SystemTime::now(),
            keep_superseded: self.config.keep_superseded,
            keep_max: MOST_SUPERSEDED,
        };
        let repository = live.repository.clone();
        let (published, mirror) = tokio::task::spawn_blocking(move || {
            let published = mirror.publish(&update);
            // The entry is held until its pack is part of the mirror, where
            // its bytes count from then on.
            if let Some(pack) = pack {
                pack.notice_links();
            }
            (published, mirror)
        })
        .await
        .map_err(Error::internal)?;
        let published = published.map_err(|error| {
            if error.is_upstream_fault() {
                Error::Remote(format!("the upstream's pack is not usable: {error}").into())
            } else {
                Error::internal(error)
            }
        })?;
        live.mirror.store(Some(mirror));
        if let Some(table) = table {
            live.published(table);
        }
        self.account(&live.repository);
        for unfetched in &published.unfetched {
            tracing::warn!(%repository, name = %String::from_utf8_lossy(&unfetched.name), oid = %unfetched.oid,
                "the upstream did not send what this ref points at; it stays as it was");
        }
        if published.changed {
            tracing::info!(%repository, generation = published.snapshot.generation, "published");
        }
        Ok(published)
    }
}

async fn update_now(git: Arc<Git>, live: Arc<Live>, behalf: OnBehalf) -> Updated {
    // The upstream may move on while its last state is fetched.
    for _ in 0..3 {
        let Some(table) = live.observed() else { return Ok(()) };
        if live.is_settled(&table) {
            return Ok(());
        }
        let snapshot = live.snapshot();
        let wants = lacking(&table, snapshot.as_deref());
        let pack = if wants.is_empty() {
            None
        } else {
            let Some(dialect) = live.dialect() else { return Ok(()) };
            let request = catch_up(wants.clone(), snapshot.as_deref(), Some(&table));
            let speaker = live.speaker(&live.spelled());
            match git.fetch_pack(&speaker, &behalf, &dialect, &request).await {
                Ok(pack) => Some(pack),
                Err(error) => {
                    tracing::warn!(repository = %live.repository, %error, "what moved could not be fetched");
                    if !matches!(error, Error::Remote(_)) || wants.len() == 1 {
                        return Err(error);
                    }
                    one_by_one(&git, &live, &behalf, &table, wants).await?;
                    continue;
                }
            }
        };
        git.publish(&live, Some(&table), pack, Vec::new()).await.inspect_err(|error| {
            if let Error::Internal(why) = error {
                tracing::error!(repository = %live.repository, %why, "an update was not published");
            }
        })?;
    }
    Ok(())
}

/// Fetches tips one at a time after the upstream refused them together: one
/// that can't be had keeps its old value and holds nobody up.
async fn one_by_one(
    git: &Arc<Git>,
    live: &Arc<Live>,
    behalf: &OnBehalf,
    table: &Arc<RefTable>,
    wants: Vec<ObjectId>,
) -> Updated {
    let Some(dialect) = live.dialect() else { return Ok(()) };
    let speaker = live.speaker(&live.spelled());
    let mut refused = None;
    for want in wants.into_iter().take(ONE_BY_ONE) {
        let request = catch_up(vec![want], live.snapshot().as_deref(), Some(table));
        match git.fetch_pack(&speaker, behalf, &dialect, &request).await {
            Ok(pack) => drop(git.publish(live, Some(table), Some(pack), Vec::new()).await?),
            Err(error @ Error::Remote(_)) => refused = Some(error),
            Err(error) => return Err(error),
        }
    }
    // What needs no objects moves all the same.
    match (git.publish(live, Some(table), None, Vec::new()).await, refused) {
        (Ok(_), _) => Ok(()),
        (Err(_), Some(refused)) => Err(refused),
        (Err(error), None) => Err(error),
    }
}

/// Tips of branches and tags whose objects the mirror doesn't hold.
fn lacking(table: &RefTable, snapshot: Option<&Snapshot>) -> Vec<ObjectId> {
    let mut tips = table.eager_tips();
    if let Some(snapshot) = snapshot {
        tips.retain(|oid| !snapshot.packs.contains(oid));
    }
    tips
}

/// One request that brings `wants` in its first answer. What is about to be
/// superseded is told first: it is the nearest to what is wanted.
pub(crate) fn catch_up(
    wants: Vec<ObjectId>,
    snapshot: Option<&Snapshot>,
    table: Option<&RefTable>,
) -> FetchRequest {
    let mut haves = Vec::new();
    if let Some(snapshot) = snapshot {
        if let Some(table) = table {
            haves.extend(snapshot.refs.diff(table).moved.iter().map(|(old, _)| old.oid));
        }
        haves.extend(snapshot.refs.eager_tips());
        let mut told = HashSet::new();
        haves.retain(|oid| snapshot.packs.contains(oid) && told.insert(*oid));
        haves.truncate(MOST_HAVES);
    }
    FetchRequest {
        wants,
        thin_pack: !haves.is_empty(),
        haves,
        done: true,
        ofs_delta: true,
        include_tag: true,
        no_progress: true,
        ..FetchRequest::default()
    }
}
