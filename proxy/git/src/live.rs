//! What is known of one repository while it is in use: its mirror, what was
//! seen of its refs and when, how its upstream speaks.
//!
//! Readers take a [`View`] and keep it to the end of their request; nothing
//! here is held locked while anyone waits.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use gix_hash::ObjectId;
use tidegate_name::Repository;
use tidegate_upstream::Client;
use tokio::time::Instant;

use crate::{
    away::Away,
    mirror::{Mirror, Snapshot},
    pack::Reach,
    refresh::LISTED_EVERY,
    refs::{RefTable, is_eager},
    speak::{Dialect, Scope, Speaker},
    wire::protocol::Version,
};

/// An unknown want is not asked for again this soon.
const REMEMBER_UNKNOWN: Duration = Duration::from_secs(5);
/// A mirror's last use is noted on disk this often.
const NOTE_EVERY: Duration = Duration::from_secs(60);
/// Spellings of one repository whose dialects are remembered.
const MOST_SPELLINGS: usize = 8;
/// A look that would remove most refs is believed after this long.
const CONFIRM_AFTER: Duration = Duration::from_secs(10);

/// What a look means for what is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// The upstream has what we serve.
    Unchanged,
    /// Refs moved; objects have to be fetched before they are served.
    Changed,
    /// There is no mirror yet: the refs as seen are served.
    Cold,
    /// Too many refs are gone to believe it at once.
    Suspect,
}

/// The refs and objects one request is answered from.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) refs: Arc<RefTable>,
    /// `None` while no mirror is there yet: objects come from the upstream.
    pub(crate) snapshot: Option<Arc<Snapshot>>,
    /// How long ago the upstream was seen to have these branches and tags;
    /// `None` after a restart.
    pub(crate) age: Option<Duration>,
    /// The same for the refs that are only listed.
    pub(crate) listed_age: Option<Duration>,
}

impl View {
    /// The age of the oldest of the refs in `scope`.
    pub(crate) fn ages(&self, scope: Scope) -> Option<Duration> {
        match scope {
            Scope::Verdict | Scope::Eager => self.age,
            Scope::All => Some(self.age?.max(self.listed_age?)),
        }
    }
}

/// A snapshot, and what is known of what its roots reach.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) reach: Arc<Reach>,
}

/// One repository in use.
pub(crate) struct Live {
    pub(crate) repository: Repository,
    pub(crate) client: Arc<Client>,
    /// Set once there is a mirror on disk.
    pub(crate) mirror: ArcSwapOption<Mirror>,
    /// Held while a generation is put together and published.
    pub(crate) publishing: tokio::sync::Mutex<()>,
    /// Whether the upstream answers for it.
    pub(crate) away: Away,
    state: Mutex<State>,
}

struct State {
    /// By spelling: another one may be redirected elsewhere, and its verdict is
    /// the upstream's on that address. The latest last.
    dialects: Vec<(Repository, Dialect)>,
    foreign: Option<&'static str>,
    /// The last spelling the upstream accepted.
    spelled: Repository,
    /// What the last look saw; ahead of the mirror while a fetch runs.
    observed: Option<Arc<RefTable>>,
    /// The last table that was published as far as it could be had.
    settled: Option<Arc<RefTable>>,
    /// A look that would remove most refs, until another one confirms it.
    suspect: Option<Instant>,
    seen: Ages,
    /// When the upstream was last seen to have the refs we serve.
    confirmed: Ages,
    last_look: Option<Instant>,
    last_read: Instant,
    last_list: Option<Instant>,
    noted: Option<Instant>,
    expired: Option<Instant>,
    unknown: VecDeque<(ObjectId, Instant)>,
    asks: VecDeque<Instant>,
    advertised: Option<(Arc<RefTable>, Version, Bytes)>,
    kept: bool,
    purged: bool,
    /// Whether objects were asked for, so that a mirror is worth having.
    wanted: bool,
    reach: Option<(u64, Arc<Reach>)>,
}

#[derive(Clone, Copy, Default)]
struct Ages {
    eager: Option<Instant>,
    listed: Option<Instant>,
}

impl Ages {
    fn set(&mut self, scope: Scope, at: Instant) {
        self.eager = Some(at);
        if scope == Scope::All {
            self.listed = Some(at);
        }
    }
}

impl Live {
    pub(crate) fn new(
        repository: Repository,
        spelled: Repository,
        client: Arc<Client>,
        mirror: Option<Arc<Mirror>>,
    ) -> Self {
        let now = Instant::now();
        Self {
            repository,
            client,
            mirror: ArcSwapOption::new(mirror),
            publishing: tokio::sync::Mutex::new(()),
            away: Away::default(),
            state: Mutex::new(State {
                dialects: Vec::new(),
                foreign: None,
                spelled,
                observed: None,
                settled: None,
                suspect: None,
                seen: Ages::default(),
                confirmed: Ages::default(),
                last_look: None,
                last_read: now,
                last_list: None,
                noted: None,
                expired: None,
                unknown: VecDeque::new(),
                asks: VecDeque::new(),
                advertised: None,
                kept: false,
                purged: false,
                wanted: false,
                reach: None,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A speaker that asks for the repository the way `spelled` has it.
    pub(crate) fn speaker(&self, spelled: &Repository) -> Speaker {
        Speaker::new(Arc::clone(&self.client), spelled.path())
    }

    pub(crate) fn spelled(&self) -> Repository {
        self.state().spelled.clone()
    }

    pub(crate) fn accepted_spelling(&self, spelled: &Repository) {
        let mut state = self.state();
        if state.spelled != *spelled {
            state.spelled = spelled.clone();
        }
    }

    pub(crate) fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.mirror.load().as_ref().and_then(|mirror| mirror.snapshot())
    }

    /// The snapshot objects are served from; `None` before there is a mirror.
    pub(crate) fn held(&self) -> Option<Held> {
        let snapshot = self.snapshot()?;
        let mut state = self.state();
        let reach = match &state.reach {
            Some((generation, reach)) if *generation == snapshot.generation => Arc::clone(reach),
            _ => Arc::default(),
        };
        state.reach = Some((snapshot.generation, Arc::clone(&reach)));
        Some(Held { snapshot, reach })
    }

    /// Wants that are kept on demand stay for a day after they were read.
    pub(crate) fn roots_read(&self, held: &Held, wants: &[ObjectId]) {
        if held.snapshot.roots.is_empty() {
            return;
        }
        let Some(mirror) = self.mirror.load_full() else { return };
        for root in held.snapshot.roots.iter().filter(|root| wants.contains(&root.oid)) {
            mirror.root_read(root.oid, SystemTime::now());
        }
    }

    /// Objects were asked for: a mirror is worth its fetch.
    pub(crate) fn want_mirror(&self) {
        self.state().wanted = true;
    }

    /// Whether a mirror should be there and isn't.
    pub(crate) fn lacks_mirror(&self) -> bool {
        self.state().wanted && self.snapshot().is_none()
    }

    /// What a request is answered from now; `None` if nothing was ever seen.
    pub(crate) fn view(&self) -> Option<View> {
        let snapshot = self.snapshot();
        let state = self.state();
        let (refs, ages) = match &snapshot {
            Some(snapshot) => (Arc::clone(&snapshot.refs), state.confirmed),
            None => (state.observed.clone()?, state.seen),
        };
        Some(View {
            refs,
            snapshot,
            age: ages.eager.map(|at| at.elapsed()),
            listed_age: ages.listed.map(|at| at.elapsed()),
        })
    }

    /// What the last look saw, if it is ahead of what is served.
    pub(crate) fn observed(&self) -> Option<Arc<RefTable>> {
        self.state().observed.clone()
    }

    /// A look that began at `started` found `refs`. Tells whether what is
    /// served differs from the upstream now.
    ///
    /// A look that began before the last one that counted, or before the refs
    /// were told to have moved, changes nothing. One
    /// that would remove every ref, or most of many, counts only when another
    /// one at least ten seconds later says the same.
    pub(crate) fn saw(&self, refs: RefTable, scope: Scope, started: Instant) -> Sight {
        let snapshot = self.snapshot();
        let mut state = self.state();
        let outdated = |since: Option<Instant>| since.is_some_and(|since| started < since);
        if outdated(state.seen.eager) || outdated(state.expired) {
            return Sight::Unchanged;
        }
        let before =
            state.observed.clone().or_else(|| snapshot.as_ref().map(|snapshot| Arc::clone(&snapshot.refs)));
        if before.as_ref().is_some_and(|before| is_suspect(before, &refs)) {
            let since = *state.suspect.get_or_insert(started);
            if started - since < CONFIRM_AFTER {
                return Sight::Suspect;
            }
        }
        state.suspect = None;
        let table = match (scope, &before) {
            (Scope::Eager, Some(before)) => before.merge_listed(&refs),
            _ => refs,
        };
        let table = match before {
            Some(before) if *before == table => before,
            _ => Arc::new(table),
        };
        let settled = state.settled.as_ref().is_some_and(|settled| *settled == table);
        let served = snapshot.as_ref().is_some_and(|snapshot| snapshot.refs == table);
        state.observed = Some(table);
        state.seen.set(scope, started);
        self.away.end();
        if settled || served {
            state.confirmed.set(scope, started);
            return Sight::Unchanged;
        }
        if snapshot.is_some() { Sight::Changed } else { Sight::Cold }
    }

    /// Whether this table was published already, as far as it could be had.
    pub(crate) fn is_settled(&self, table: &Arc<RefTable>) -> bool {
        let served = self.snapshot().is_some_and(|snapshot| snapshot.refs == *table);
        served || self.state().settled.as_ref().is_some_and(|settled| settled == table)
    }

    /// What is served now is what `table` has, as far as it could be had.
    pub(crate) fn published(&self, table: &Arc<RefTable>) {
        let mut state = self.state();
        state.unknown.clear();
        state.settled = Some(Arc::clone(table));
        if state.observed.as_ref().is_some_and(|observed| Arc::ptr_eq(observed, table)) {
            state.confirmed = state.seen;
        }
    }

    /// How the upstream speaks, at the spelling it accepted last.
    pub(crate) fn dialect(&self) -> Option<Dialect> {
        let state = self.state();
        dialect_of(&state, &state.spelled)
    }

    /// How the upstream speaks at this spelling, if it was asked there before.
    pub(crate) fn dialect_of(&self, spelled: &Repository) -> Option<Dialect> {
        dialect_of(&self.state(), spelled)
    }

    /// The same, or else how it speaks at another spelling: for content, which
    /// all spellings share.
    pub(crate) fn dialect_for(&self, spelled: &Repository) -> Option<Dialect> {
        self.dialect_of(spelled).or_else(|| self.dialect())
    }

    pub(crate) fn learned(&self, spelled: &Repository, dialect: Dialect) {
        let mut state = self.state();
        state.dialects.retain(|(known, _)| known != spelled);
        if state.dialects.len() >= MOST_SPELLINGS {
            state.dialects.remove(0);
        }
        state.dialects.push((spelled.clone(), dialect));
        state.foreign = None;
    }

    /// Why the repository is passed through whole, if it is.
    pub(crate) fn foreign(&self) -> Option<&'static str> {
        self.state().foreign
    }

    pub(crate) fn is_foreign(&self, why: &'static str) {
        self.state().foreign = Some(why);
    }

    /// Refs may have moved: the next reader asks the upstream first.
    pub(crate) fn expire(&self) {
        let mut state = self.state();
        state.confirmed = Ages::default();
        state.seen = Ages::default();
        // A look under way may have seen what was before.
        state.expired = Some(Instant::now());
        state.unknown.clear();
    }

    /// A client read refs or objects. Tells whether that is worth noting on
    /// disk: once a minute is.
    pub(crate) fn read(&self, scope: Scope) -> bool {
        let mut state = self.state();
        let now = Instant::now();
        state.last_read = now;
        if scope == Scope::All {
            state.last_list = Some(now);
        }
        let due = state.noted.is_none_or(|noted| now - noted >= NOTE_EVERY);
        if due {
            state.noted = Some(now);
        }
        due
    }

    pub(crate) fn idle(&self) -> Duration {
        self.state().last_read.elapsed()
    }

    /// What the next look in the background should cover: everything, while
    /// clients that list everything are about and the list is old enough.
    pub(crate) fn due_scope(&self, refresh_every: Duration) -> Scope {
        let state = self.state();
        let listed = state.last_list.is_some_and(|at| at.elapsed() < refresh_every * 10);
        let old = state.seen.listed.is_none_or(|at| at.elapsed() >= refresh_every * LISTED_EVERY);
        if listed && old { Scope::All } else { Scope::Eager }
    }

    pub(crate) fn last_look(&self) -> Option<Instant> {
        self.state().last_look
    }

    pub(crate) fn looking(&self, now: Instant) {
        self.state().last_look = Some(now);
    }

    /// Whether an unknown object was asked for a moment ago, in vain.
    pub(crate) fn is_unknown(&self, oid: &ObjectId) -> bool {
        let now = Instant::now();
        self.state().unknown.iter().any(|(known, at)| known == oid && now - *at < REMEMBER_UNKNOWN)
    }

    pub(crate) fn remember_unknown(&self, oid: ObjectId) {
        let now = Instant::now();
        let mut state = self.state();
        state.unknown.retain(|(_, at)| now - *at < REMEMBER_UNKNOWN);
        if state.unknown.len() >= 256 {
            state.unknown.pop_front();
        }
        state.unknown.push_back((oid, now));
    }

    /// Takes one of the asks for unknown objects that are allowed per minute.
    pub(crate) fn may_ask(&self, a_minute: usize) -> bool {
        let now = Instant::now();
        let mut state = self.state();
        state.asks.retain(|at| now - *at < Duration::from_secs(60));
        let may = state.asks.len() < a_minute;
        if may {
            state.asks.push_back(now);
        }
        may
    }

    /// The encoded v0 or v1 advertisement of these refs; encoded once.
    pub(crate) fn advertisement(
        &self,
        refs: &Arc<RefTable>,
        version: Version,
        encode: impl FnOnce() -> Vec<u8>,
    ) -> Bytes {
        let kept = self.state().advertised.clone();
        if let Some((of, as_version, bytes)) = kept
            && Arc::ptr_eq(&of, refs)
            && as_version == version
        {
            return bytes;
        }
        let bytes = Bytes::from(encode());
        self.state().advertised = Some((Arc::clone(refs), version, bytes.clone()));
        bytes
    }

    /// Whether this call is the one that should start the background refresh.
    pub(crate) fn start_keeping(&self) -> bool {
        !std::mem::replace(&mut self.state().kept, true)
    }

    /// Its content is being removed: work under way must not bring it back.
    pub(crate) fn purge(&self) {
        self.state().purged = true;
    }

    pub(crate) fn is_purged(&self) -> bool {
        self.state().purged
    }

    pub(crate) fn stop_keeping(&self) {
        self.state().kept = false;
    }
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Live({})", self.repository)
    }
}

fn dialect_of(state: &State, spelled: &Repository) -> Option<Dialect> {
    state.dialects.iter().find(|(known, _)| known == spelled).map(|(_, dialect)| dialect.clone())
}

/// Whether the new list of branches and tags would remove all of them, or more
/// than half of more than twenty.
fn is_suspect(before: &RefTable, after: &RefTable) -> bool {
    let eager = |table: &RefTable| table.refs().iter().filter(|entry| is_eager(&entry.name)).count();
    let had = eager(before);
    if had == 0 {
        return false;
    }
    let keeps = before
        .refs()
        .iter()
        .filter(|entry| is_eager(&entry.name) && after.get(&entry.name).is_some())
        .count();
    keeps == 0 || (had > 20 && keeps * 2 < had)
}
