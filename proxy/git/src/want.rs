//! Wants that a mirror doesn't know: asked of the upstream once for all who
//! wait, within a small allowance.
//!
//! A commit pushed a moment ago comes with the refs that moved; anything else
//! is fetched by its id and kept as a root for a day.

use std::{sync::Arc, time::Duration};

use gix_hash::ObjectId;
use tokio::time::timeout;

use crate::{
    error::Error,
    git::Git,
    live::{Held, Live},
    mirror::Snapshot,
    pack,
    refresh::{Looked, Who},
    update::{TAKE_OVERS, catch_up},
};

/// Unknown ids that are asked for one by one after they were refused together.
const ONE_BY_ONE: usize = 8;
/// How long a reader waits for an unknown object.
const PATIENCE: Duration = Duration::from_secs(120);

impl Git {
    /// Has the upstream asked for objects that the snapshot lacks. Ok means
    /// that a newer snapshot is worth a try; an error names the first unknown.
    pub(crate) async fn want(
        self: &Arc<Self>,
        live: &Arc<Live>,
        who: &Who,
        unknown: Vec<ObjectId>,
    ) -> Result<(), Error> {
        if let Some(oid) = unknown.iter().find(|oid| live.is_unknown(oid)) {
            return Err(Error::NotOurRef(*oid));
        }
        let first = unknown[0];
        let mut failed = Error::NotOurRef(first);
        for _ in 0..TAKE_OVERS {
            let key = (live.repository.clone(), unknown.clone());
            let (git, live, who, unknown) =
                (Arc::clone(self), Arc::clone(live), who.clone(), unknown.clone());
            let work = self.wants.run(key, move || want_now(git, live, who, unknown));
            match timeout(PATIENCE, work).await {
                // It was asked for with another's credential.
                Ok((Some(Err(error)), true)) if error.is_personal() => failed = error.of_another(),
                Ok((Some(result), _)) => return result,
                Ok((None, _)) => return Err(Error::internal("a fetch on demand panicked")),
                Err(_) => return Err(Error::NotOurRef(first)),
            }
        }
        Err(failed)
    }
}

async fn want_now(git: Arc<Git>, live: Arc<Live>, who: Who, mut unknown: Vec<ObjectId>) -> Result<(), Error> {
    // Nobody can make up what the upstream lists, so that is asked for freely.
    let listed = live.observed().is_some_and(|table| tips_have(&table, &unknown));
    if !listed && !live.may_ask(git.caps.unknown_wants) {
        tracing::info!(repository = %live.repository, "too many unknown objects asked for; not asking the upstream");
        return Err(Error::NotOurRef(unknown[0]));
    }
    // The refs first: what was just pushed comes with them.
    let scope = live.due_scope(git.config.refresh_every);
    match git.look(&live, who.clone(), scope).await {
        Looked::Accepted(_) => git.update(&live, &who.behalf()).await?,
        Looked::Denied(refusal) if who.proves => {
            return Err(Error::Refused { upstream: live.client.name().clone(), refusal });
        }
        // Nobody knows whether it is theirs: to say it isn't would be a guess.
        Looked::Sick(sick) => return Err(Error::Away { upstream: live.client.name().clone(), sick }),
        Looked::Denied(_) | Looked::Foreign => return Err(Error::NotOurRef(unknown[0])),
    }
    let Some(held) = live.held() else { return Ok(()) };
    let snapshot = Arc::clone(&held.snapshot);
    unknown = unreached(held, unknown).await?;
    if unknown.is_empty() {
        return Ok(());
    }
    let together = by_id(&git, &live, &who, &snapshot, unknown.clone()).await;
    if together.is_ok() || unknown.len() == 1 {
        return together.map_err(|error| forget(&live, unknown[0], error));
    }
    for oid in unknown.iter().take(ONE_BY_ONE) {
        by_id(&git, &live, &who, &snapshot, vec![*oid]).await.map_err(|error| forget(&live, *oid, error))?;
    }
    Ok(())
}

/// Those that no root reaches. Being in the packs is not enough: what was once
/// kept and is no more has to be accepted by the upstream again.
async fn unreached(held: Held, mut oids: Vec<ObjectId>) -> Result<Vec<ObjectId>, Error> {
    let work = move || {
        let view = pack::View { set: &held.snapshot.packs, graph: &held.snapshot.graph };
        let mut failed = None;
        oids.retain(|oid| {
            !held.reach.holds(&view, oid).unwrap_or_else(|error| {
                failed = Some(error);
                true
            })
        });
        failed.map_or(Ok(oids), |error| Err(Error::internal(error)))
    };
    tokio::task::spawn_blocking(work).await.map_err(Error::internal)?
}

/// The upstream said no: remembered for a moment, told as git tells it.
fn forget(live: &Live, oid: ObjectId, error: Error) -> Error {
    match error {
        Error::Remote(_) | Error::BadFetch(_) => {
            live.remember_unknown(oid);
            Error::NotOurRef(oid)
        }
        other => other,
    }
}

async fn by_id(
    git: &Arc<Git>,
    live: &Arc<Live>,
    who: &Who,
    snapshot: &Snapshot,
    wants: Vec<ObjectId>,
) -> Result<(), Error> {
    let Some(dialect) = live.dialect_for(&who.asked.spelled) else { return Err(Error::NotOurRef(wants[0])) };
    if !dialect.capabilities.takes_any_want()
        && live.observed().is_none_or(|table| !tips_have(&table, &wants))
    {
        return Err(Error::Remote("the upstream serves no objects by id".into()));
    }
    let request = catch_up(wants.clone(), Some(snapshot), None);
    let speaker = live.speaker(&who.asked.spelled);
    let pack = git.fetch_pack(&speaker, &who.behalf(), &dialect, &request).await?;
    git.publish(live, None, Some(pack), wants).await?;
    Ok(())
}

fn tips_have(table: &crate::refs::RefTable, wants: &[ObjectId]) -> bool {
    wants.iter().all(|want| table.refs().iter().any(|entry| entry.oid == *want))
}
