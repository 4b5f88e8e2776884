//! Looking at the upstream, and bringing a mirror to what was seen.
//!
//! A look made with a caller's credential is both its verdict and the refresh.
//! Looks are collapsed by (repository, caller, scope), updates by repository;
//! both run as tasks of their own and survive their waiters.

use std::{net::IpAddr, sync::Arc, time::Duration};

use tidegate_cache::{Asked, Freshness, Lifetime, RefreshResult, Refusal};
use tidegate_http::{Identity, Outcome};
use tidegate_upstream::Priority;
use tokio::time::{Instant, timeout};

use crate::{
    config::Revalidate,
    error::{Error, Sick},
    git::Git,
    live::{Live, Sight, View},
    speak::{OnBehalf, Scope, Seen, Unseen},
};

/// A reader waits this long for the upstream before it is served stale refs.
const ASK_FIRST: Duration = Duration::from_secs(5);
/// A reader who can't be served otherwise waits this long.
const ASK_COLD: Duration = Duration::from_secs(60);
/// Refs that are only listed are looked at once in so many intervals.
pub(crate) const LISTED_EVERY: u32 = 5;
/// A reader waits this long for moved refs to be fetched.
const UPDATE_FIRST: Duration = Duration::from_secs(10);

/// On whose behalf the upstream is looked at.
#[derive(Clone, Debug)]
pub(crate) struct Who {
    pub(crate) asked: Asked,
    pub(crate) identity: Identity,
    /// Whether the owner of the credential is asking, or it was borrowed.
    pub(crate) by_owner: bool,
    pub(crate) priority: Priority,
    /// Where the owner asks from.
    pub(crate) from: Option<IpAddr>,
    /// Whether the answer is a verdict on `asked`. Not so for the configured
    /// credential: it refreshes, it proves nobody.
    pub(crate) proves: bool,
}

/// How a look ended.
#[derive(Clone, Debug)]
pub(crate) enum Looked {
    /// The upstream answered with its refs.
    Accepted(Sight),
    /// It refused the credential.
    Denied(Refusal),
    /// It gave no usable answer.
    Sick(Sick),
    /// The repository is passed through.
    Foreign,
}

impl Git {
    /// Looks at the upstream's refs, or joins an equal look under way.
    pub(crate) async fn look(self: &Arc<Self>, live: &Arc<Live>, who: Who, scope: Scope) -> Looked {
        let key = (who.asked.clone(), who.proves, scope);
        let (git, live) = (Arc::clone(self), Arc::clone(live));
        let (looked, _) = self.looks.run(key, move || look_now(git, live, who, scope)).await;
        looked.unwrap_or_else(|| Looked::Sick(Sick::new("looking at it failed; the log says why")))
    }

    /// The same without waiting.
    pub(crate) fn look_behind(self: &Arc<Self>, live: &Arc<Live>, who: Who, scope: Scope) {
        let key = (who.asked.clone(), who.proves, scope);
        let (git, live) = (Arc::clone(self), Arc::clone(live));
        self.looks.start(key, move || look_now(git, live, who, scope));
    }

    /// The refs a reader is answered from: fresh ones at once, old ones after
    /// asking the upstream, stale ones if it is away. `since` is when the
    /// request came in: what was seen after it counts as asked for it.
    pub(crate) async fn fresh(
        self: &Arc<Self>,
        live: &Arc<Live>,
        who: &Who,
        scope: Scope,
        since: Instant,
    ) -> Result<(View, Outcome), Error> {
        self.note_read(live, scope);
        let view = live.view();
        if let Some(view) = &view {
            let asked_for_this = view.ages(scope).is_some_and(|age| age <= since.elapsed());
            if asked_for_this {
                let outcome = if view.snapshot.is_some() { Outcome::Revalidated } else { Outcome::Miss };
                return Ok((view.clone(), outcome));
            }
            if self.config.revalidate == Revalidate::Stale {
                match self.judge(view, scope) {
                    Freshness::Fresh => return Ok((view.clone(), Outcome::Hit)),
                    Freshness::Stale => {
                        self.look_behind(live, who.clone(), self.look_scope(live, scope));
                        return Ok((view.clone(), Outcome::Stale));
                    }
                    Freshness::Expired => {}
                }
            }
            if live.away.is_known() && self.may_serve_stale(view) {
                self.look_behind(live, who.clone(), self.look_scope(live, scope));
                return Ok((view.clone(), Outcome::Stale));
            }
        }
        self.ask_first(live, who, scope, since).await
    }

    async fn ask_first(
        self: &Arc<Self>,
        live: &Arc<Live>,
        who: &Who,
        scope: Scope,
        since: Instant,
    ) -> Result<(View, Outcome), Error> {
        let view = live.view();
        let patience = if view.is_some() { ASK_FIRST } else { ASK_COLD };
        let stale = view.as_ref().is_some_and(|view| self.may_serve_stale(view));
        let mut sick = Sick::new("it has shown no refs yet");
        // A look that was joined may have begun before what this reader must
        // see; the one after it has not.
        for _ in 0..2 {
            let look = self.look(live, who.clone(), self.look_scope(live, scope));
            sick = match live.away.wait(patience, stale, look).await {
                Some(Looked::Accepted(sight)) => {
                    match self.after_look(live, who, scope, (sight, since)).await {
                        Some(answer) => return Ok(answer),
                        None => continue,
                    }
                }
                Some(Looked::Denied(refusal)) if who.proves => {
                    return Err(Error::Refused { upstream: live.client.name().clone(), refusal });
                }
                Some(Looked::Denied(_)) => Sick::new("it refused the configured credential"),
                Some(Looked::Foreign) => Sick::new("it changed what it serves; ask again"),
                Some(Looked::Sick(sick)) => sick,
                None => Sick::new(format!("it did not answer within {} s", patience.as_secs())),
            };
            break;
        }
        match view.filter(|view| self.may_serve_stale(view)) {
            Some(view) => Ok((view, Outcome::Stale)),
            None => Err(Error::Away { upstream: live.client.name().clone(), sick }),
        }
    }

    /// What to serve after a look that was accepted; `None` if it began too
    /// early to tell.
    async fn after_look(
        self: &Arc<Self>,
        live: &Arc<Live>,
        who: &Who,
        scope: Scope,
        (sight, since): (Sight, Instant),
    ) -> Option<(View, Outcome)> {
        let live = &self.known(&live.repository).unwrap_or_else(|| Arc::clone(live));
        if sight == Sight::Changed {
            // Moved refs are served once their objects are here.
            let _ = timeout(UPDATE_FIRST, self.update(live, &who.behalf())).await;
        }
        let view = live.view()?;
        if sight == Sight::Suspect {
            return Some((view, Outcome::Stale));
        }
        let Some(age) = view.ages(scope) else {
            // Nothing was seen since the refs were told to have moved, or what
            // was seen could not be fetched in time.
            return (sight == Sight::Changed).then_some((view, Outcome::Stale));
        };
        let always = self.config.revalidate == Revalidate::Always;
        if always && sight != Sight::Changed && age > since.elapsed() {
            return None;
        }
        if view.snapshot.is_some() && live.observed().is_some_and(|table| !live.is_settled(&table)) {
            // The fetch of what moved goes on.
            return Some((view, Outcome::Stale));
        }
        let moved = sight == Sight::Changed || view.snapshot.is_none();
        Some((view, if moved { Outcome::Miss } else { Outcome::Revalidated }))
    }

    /// Whether refs may be served. The ones that are only listed are looked at
    /// less often, so they age more slowly.
    fn judge(&self, view: &View, scope: Scope) -> Freshness {
        let eager = self.lifetime().judge(view.age);
        if scope != Scope::All {
            return eager;
        }
        let every = self.config.refresh_every * LISTED_EVERY;
        let listed = Lifetime::of_interval(every, self.config.stale_if_error).judge(view.listed_age);
        match (eager, listed) {
            (Freshness::Expired, _) | (_, Freshness::Expired) => Freshness::Expired,
            (Freshness::Stale, _) | (_, Freshness::Stale) => Freshness::Stale,
            _ => Freshness::Fresh,
        }
    }

    /// What a look must cover so that a read of `scope` is fresh: the whole
    /// list only if the listed refs are due themselves, or every read asks.
    pub(crate) fn look_scope(&self, live: &Live, scope: Scope) -> Scope {
        if self.config.revalidate == Revalidate::Always {
            return scope;
        }
        let every = self.config.refresh_every * LISTED_EVERY;
        let listed_are_fresh = live.view().and_then(|view| view.listed_age).is_some_and(|age| age < every);
        if scope == Scope::All && listed_are_fresh { Scope::Eager } else { scope }
    }

    /// Whether refs of this age may be served while the upstream is away; an
    /// unknown age counts from the start of the process.
    pub(crate) fn may_serve_stale(&self, view: &View) -> bool {
        self.lifetime().may_outlive_upstream(view.age.unwrap_or_else(|| self.started.elapsed()))
    }

    pub(crate) fn lifetime(&self) -> Lifetime {
        Lifetime::of_interval(self.config.refresh_every, self.config.stale_if_error)
    }
}

impl Who {
    pub(crate) fn behalf(&self) -> OnBehalf {
        OnBehalf {
            identity: self.identity.clone(),
            priority: self.priority,
            proves: self.proves.then(|| self.asked.clone()),
        }
    }
}

async fn look_now(git: Arc<Git>, live: Arc<Live>, who: Who, scope: Scope) -> Looked {
    let _trial = match if who.proves { git.access.trial(&who.asked, who.from).await } else { Ok(None) } {
        Ok(trial) => trial,
        Err(wait) => return Looked::Sick(Sick::metered(wait)),
    };
    let started = Instant::now();
    live.looking(started);
    let _renewal = who.proves.then(|| git.access.renewing(&who.asked));
    let speaker = live.speaker(&who.asked.spelled);
    let known = live.dialect_of(&who.asked.spelled);
    let behalf = who.behalf();
    let look = speaker.look(&behalf, scope, known.as_ref());
    let answer = live.away.watch(look).await;
    match answer {
        Ok(seen) => accepted(&git, &live, &who, seen, started),
        Err(Unseen::Denied(refusal)) => {
            if who.proves {
                git.access.refuse(&who.asked, refusal.clone(), who.from);
            }
            // For the refs a web page is a sick answer.
            let result = if refusal.passing { RefreshResult::Error } else { RefreshResult::Denied };
            git.metrics.refreshed("git", result);
            Looked::Denied(refusal)
        }
        Err(Unseen::Sick(sick)) => {
            live.away.begin();
            let result = if sick.limited { RefreshResult::Deferred } else { RefreshResult::Error };
            git.metrics.refreshed("git", result);
            tracing::warn!(repository = %live.repository, why = %sick.in_full(), "the upstream gave no refs");
            Looked::Sick(sick)
        }
        Err(Unseen::Foreign(why)) => {
            tracing::info!(repository = %live.repository, why, "passing the repository through");
            git.remember(&live).is_foreign(why);
            Looked::Foreign
        }
    }
}

fn accepted(git: &Arc<Git>, live: &Arc<Live>, who: &Who, seen: Seen, started: Instant) -> Looked {
    let live = &git.remember(live);
    live.learned(&who.asked.spelled, seen.dialect);
    if who.proves {
        git.access.accept(&who.asked, &who.identity, who.by_owner, started);
        live.accepted_spelling(&who.asked.spelled);
    }
    let Some(refs) = seen.refs else { return Looked::Accepted(Sight::Cold) };
    let sight = live.saw(refs, seen.scope, started);
    let result = match sight {
        Sight::Changed => {
            git.update_behind(live, &who.behalf());
            RefreshResult::Changed
        }
        Sight::Suspect => {
            tracing::warn!(repository = %live.repository, "most refs are gone upstream; looking again before believing it");
            RefreshResult::Error
        }
        Sight::Unchanged | Sight::Cold => RefreshResult::Unchanged,
    };
    git.metrics.refreshed("git", result);
    Looked::Accepted(sight)
}
