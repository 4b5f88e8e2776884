//! Who may read a repository: what the upstream last said of this caller.
//!
//! Asking on behalf of a caller is one act with two results, verdict and
//! refresh; the protocol room asks, and reports here. The [`Grant`] that every
//! read of the cache takes is made in this file and nowhere else.
//!
//! Verdicts belong to the spelling that was asked for; content is shared by
//! all spellings. Nothing here ever holds a secret in the clear but the loans.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hmac::{Hmac, KeyInit as _, Mac as _};
use http::StatusCode;
use moka::sync::Cache;
use sha2::Sha256;
use tidegate_http::Identity;
use tidegate_name::Repository;
use tidegate_store::{Store, Table};
use tokio::time::Instant;

use crate::{
    AccessConfig,
    lending::{Lending, Loan},
    trial::{Trial, Trials},
};

/// Public, and "anonymous is refused here", are taken for this long.
const ANONYMOUS_TTL: Duration = Duration::from_secs(600);
/// A refusal of one credential is remembered for this long.
const REFUSAL_TTL: Duration = Duration::from_secs(30);
/// A verdict outlives its time by this much while its renewal is under way.
const RENEWAL_SLACK: Duration = Duration::from_secs(5);
/// Verdicts and refusals held in memory, and verdicts on disk.
const MOST_RECORDS: u64 = 200_000;
/// A verdict on disk is not rewritten more often than this.
const PERSIST_EVERY: u64 = 30;

/// A keyed hash of an identity: tells callers apart and says nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    hash: [u8; 32],
    anonymous: bool,
}

impl Caller {
    /// Whether the caller showed no credential.
    pub fn is_anonymous(&self) -> bool {
        self.anonymous
    }
}

/// Proof that a caller may read a repository, now. Every read of the cache
/// takes one.
#[derive(Clone, Debug)]
pub struct Grant {
    content: Repository,
    spelled: Repository,
    caller: Caller,
    by_grace: bool,
}

impl Grant {
    /// The repository whose content may be read.
    pub fn content(&self) -> &Repository {
        &self.content
    }

    /// The repository as the caller spelled it.
    pub fn spelled(&self) -> &Repository {
        &self.spelled
    }

    /// Whom it was given to.
    pub fn caller(&self) -> Caller {
        self.caller
    }

    /// Whether it rests on an earlier verdict while the upstream is away.
    pub fn by_grace(&self) -> bool {
        self.by_grace
    }
}

/// What the upstream said when it refused a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its status: 401, 403, 404 or 410.
    pub status: StatusCode,
    /// Up to 1 KiB of its text, if it was `text/plain`.
    pub text: Arc<str>,
    /// Whether it may be gone in a moment: a web page where the protocol was
    /// expected. It ends the verdict like any other, but says nothing lasting
    /// about anonymous callers.
    pub passing: bool,
}

/// What is known of a caller without asking.
#[derive(Clone, Debug)]
pub enum Standing {
    /// Accepted not long ago.
    Granted(Grant),
    /// Refused not long ago.
    Refused(Refusal),
    /// Too many refusals came of this address or upstream: ask later.
    Metered(Duration),
    /// The upstream must be asked.
    Unknown,
}

/// What holds for a caller while the upstream is away.
#[derive(Clone, Debug)]
pub enum Away {
    /// Accepted within `auth_grace`, or the repository was public.
    Granted(Grant),
    /// Anonymous callers were refused: ask for the credential.
    AnonymousRefused,
    /// Nothing is known of this caller.
    Unproven,
}

#[derive(Clone, Debug)]
enum Record {
    Accepted { at: Instant },
    Refused { at: Instant, refusal: Refusal },
}

/// First 8 bytes: the content, so that a purge finds all of a repository's
/// records; the rest: spelling and caller.
type Key = [u8; 32];

/// Everything known about who may read what.
pub struct Access {
    config: AccessConfig,
    secret: [u8; 32],
    records: Cache<Key, Record>,
    renewing: Mutex<HashMap<Key, Instant>>,
    persisted: Table,
    lending: Lending,
    trials: Arc<Trials>,
}

impl Access {
    /// Reads the verdicts of earlier runs from the store. `secret` keys every
    /// hash; replicas share it.
    pub fn new(config: AccessConfig, secret: [u8; 32], store: &Arc<Store>) -> Arc<Self> {
        let most = usize::try_from(MOST_RECORDS).unwrap_or(usize::MAX);
        Arc::new(Self {
            lending: Lending::new(config.borrow),
            config,
            secret,
            records: Cache::new(MOST_RECORDS),
            renewing: Mutex::default(),
            persisted: store.table("verdicts", most),
            trials: Arc::default(),
        })
    }

    /// The configured lifetime of a verdict, for a protocol that refreshes
    /// once per `refresh_every`.
    pub fn auth_ttl(&self, refresh_every: Duration) -> Duration {
        self.config.auth_ttl.unwrap_or(refresh_every)
    }

    /// The keyed hash that stands for an identity.
    pub fn caller(&self, identity: &Identity) -> Caller {
        let [authorization, cookie] = identity.parts();
        let hash = self.hash("identity", &[authorization, cookie]);
        Caller { hash, anonymous: identity.is_anonymous() }
    }

    /// What is known of a caller without asking the upstream.
    pub fn standing(&self, asked: &Asked, ttl: Duration, from: IpAddr) -> Standing {
        let key = self.key(asked);
        let now = Instant::now();
        let ttl = if asked.caller.anonymous { ttl.max(ANONYMOUS_TTL) } else { ttl };
        match self.records.get(&key) {
            Some(Record::Accepted { at }) if self.is_current(&key, at, ttl, now) => {
                self.lending.used(&asked.content, &asked.caller, now);
                return Standing::Granted(asked.grant(false));
            }
            Some(Record::Refused { at, refusal }) => {
                let lasts =
                    if asked.caller.anonymous && !refusal.passing { ANONYMOUS_TTL } else { REFUSAL_TTL };
                if now.saturating_duration_since(at) < lasts {
                    return Standing::Refused(refusal);
                }
            }
            _ => {}
        }
        if !asked.caller.anonymous
            && !self.was_accepted(&key)
            && let Some(wait) = self.trials.wait(Some(from), asked.spelled.upstream(), now)
        {
            // Readers of what is public notice nothing of it.
            return if self.is_open(asked, now) {
                Standing::Granted(asked.grant(false))
            } else {
                Standing::Metered(wait)
            };
        }
        Standing::Unknown
    }

    /// The grant of a caller whom the upstream accepted at `since` or later,
    /// and did not refuse after that: for who asked and waited for the answer,
    /// however short a verdict lasts.
    pub fn accepted_since(&self, asked: &Asked, since: Instant) -> Option<Grant> {
        match self.records.get(&self.key(asked)) {
            Some(Record::Accepted { at }) if at >= since => Some(asked.grant(false)),
            _ => None,
        }
    }

    /// Waits for the right to try a caller's credential at the upstream: so few
    /// of the unproven ones at a time that even if all are refused, the
    /// allowance of the address and the upstream holds. An error says when to
    /// try again. Hold what is returned until the answer was reported.
    pub async fn trial(&self, asked: &Asked, from: Option<IpAddr>) -> Result<Option<Trial>, Duration> {
        if asked.caller.anonymous || self.was_accepted(&self.key(asked)) {
            return Ok(None);
        }
        Trials::begin(&self.trials, asked, from).await
    }

    /// Whether a request of this caller that is passed through must wait; its
    /// refusals are reported with [`Access::relay_refused`].
    pub fn relay_must_wait(&self, asked: &Asked, from: Option<IpAddr>) -> Option<Duration> {
        let upstream = asked.spelled.upstream();
        if self.is_no_guess(asked) { None } else { self.trials.wait(from, upstream, Instant::now()) }
    }

    /// The upstream refused a request that was passed through: no verdict on
    /// who may read, but a login that failed.
    pub fn relay_refused(&self, asked: &Asked, from: Option<IpAddr>) {
        if !self.is_no_guess(asked) {
            self.trials.refused(from, asked.spelled.upstream(), Instant::now());
        }
    }

    fn is_no_guess(&self, asked: &Asked) -> bool {
        asked.caller.anonymous || self.trials.knows(asked) || self.was_accepted(&self.key(asked))
    }

    /// Whether an anonymous caller was accepted for this spelling not long ago.
    fn is_open(&self, asked: &Asked, now: Instant) -> bool {
        let anonymous = Asked { caller: self.caller(&Identity::anonymous()), ..asked.clone() };
        matches!(self.records.get(&self.key(&anonymous)), Some(Record::Accepted { at })
            if now.saturating_duration_since(at) < ANONYMOUS_TTL)
    }

    fn is_current(&self, key: &Key, at: Instant, ttl: Duration, now: Instant) -> bool {
        let age = now.saturating_duration_since(at);
        if age < ttl {
            return true;
        }
        // The upstream is being asked about this very caller and began before
        // the verdict ran out: nobody waits for the answer twice.
        age < ttl + RENEWAL_SLACK
            && self.renewing.lock().unwrap_or_else(PoisonError::into_inner).get(key).is_some_and(|since| {
                *since < at + ttl && now.saturating_duration_since(*since) < RENEWAL_SLACK
            })
    }

    /// Notes that the upstream is being asked about this caller; ends when the
    /// returned guard is dropped.
    pub fn renewing(self: &Arc<Self>, asked: &Asked) -> Renewal {
        let key = self.key(asked);
        self.renewing.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Instant::now());
        Renewal { access: Arc::clone(self), key }
    }

    /// The upstream, asked at `since`, accepted this caller for this repository.
    /// `by_owner` is false when the credential was borrowed for a background
    /// refresh. A refusal that came meanwhile is newer, and stands.
    pub fn accept(&self, asked: &Asked, identity: &Identity, by_owner: bool, since: Instant) {
        let key = self.key(asked);
        let now = Instant::now();
        let entry =
            self.records.entry(key).and_upsert_with(|before| match before.map(moka::Entry::into_value) {
                Some(refused @ Record::Refused { at, .. }) if at > since => refused,
                _ => Record::Accepted { at: now },
            });
        if matches!(entry.into_value(), Record::Refused { .. }) {
            return;
        }
        self.persist(&key, ACCEPTED);
        if !asked.caller.anonymous {
            self.trials.accepted(asked);
            self.lending.accepted(&asked.content, Loan::new(asked.clone(), identity.clone()), by_owner, now);
        }
    }

    /// The upstream refused this caller: its verdict ends at once.
    pub fn refuse(&self, asked: &Asked, refusal: Refusal, from: Option<IpAddr>) {
        let key = self.key(asked);
        let now = Instant::now();
        let lasting = !refusal.passing;
        self.records.insert(key, Record::Refused { at: now, refusal });
        self.lending.refused(&asked.content, &asked.caller);
        if asked.caller.anonymous && lasting {
            self.persist(&key, REFUSED);
            return;
        }
        self.persisted.delete(&key);
        if asked.caller.anonymous {
            return;
        }
        self.trials.refused(from, asked.spelled.upstream(), now);
    }

    /// What holds for the caller while the upstream is away, on the strength
    /// of what it said before; restarts don't matter.
    pub fn away(&self, asked: &Asked) -> Away {
        let own = self.key(asked);
        if self.persisted_within_grace(&own) == Some(ACCEPTED) {
            return Away::Granted(asked.grant(true));
        }
        let anonymous = Asked { caller: self.caller(&Identity::anonymous()), ..asked.clone() };
        match self.persisted_within_grace(&self.key(&anonymous)) {
            Some(ACCEPTED) => Away::Granted(asked.grant(true)),
            Some(REFUSED) if asked.caller.anonymous => Away::AnonymousRefused,
            _ => Away::Unproven,
        }
    }

    /// Whether an anonymous caller was accepted lately: the repository is
    /// public, and a refresh may go out without a credential.
    pub fn is_public(&self, spelled: &Repository, content: &Repository) -> bool {
        let caller = self.caller(&Identity::anonymous());
        let asked = Asked { spelled: spelled.clone(), content: content.clone(), caller };
        // In memory for ten minutes; after a restart what was persisted counts,
        // for the refresh only: it gives nobody a grant.
        match self.records.get(&self.key(&asked)) {
            Some(Record::Accepted { .. }) => true,
            Some(Record::Refused { .. }) => false,
            None => self.persisted_within_grace(&self.key(&asked)) == Some(ACCEPTED),
        }
    }

    /// A credential that may refresh this repository behind its owner's back.
    pub fn borrow(&self, content: &Repository) -> Option<Loan> {
        self.lending.lend(content, Instant::now())
    }

    /// Forgets everything about a repository.
    pub fn forget(&self, content: &Repository) {
        let prefix = self.prefix(content);
        let keys: Vec<Key> =
            self.records.iter().map(|(key, _)| *key).filter(|key| key.starts_with(&prefix)).collect();
        for key in keys {
            self.records.invalidate(&key);
        }
        for (key, _) in self.persisted.rows() {
            if key.starts_with(&prefix) {
                self.persisted.delete(&key);
            }
        }
        self.lending.forget(content);
    }

    fn was_accepted(&self, key: &Key) -> bool {
        self.persisted_within_grace(key) == Some(ACCEPTED)
    }

    fn persist(&self, key: &Key, kind: u8) {
        let now = unix_now();
        if let Some((before, at)) = self.persisted.get(key).and_then(|value| decode(&value))
            && before == kind
            && now.saturating_sub(at) < PERSIST_EVERY
        {
            return;
        }
        let mut value = vec![kind];
        value.extend_from_slice(&now.to_be_bytes());
        self.persisted.put(key, value);
    }

    fn persisted_within_grace(&self, key: &Key) -> Option<u8> {
        let (kind, at) = self.persisted.get(key).and_then(|value| decode(&value))?;
        (unix_now().saturating_sub(at) <= self.config.auth_grace.as_secs()).then_some(kind)
    }

    fn key(&self, asked: &Asked) -> Key {
        let mut key = self.hash(
            "verdict",
            &[
                Some(asked.spelled.upstream().as_str().as_bytes()),
                Some(asked.spelled.path().as_bytes()),
                Some(&asked.caller.hash),
            ],
        );
        key[..8].copy_from_slice(&self.prefix(&asked.content));
        key
    }

    fn prefix(&self, content: &Repository) -> [u8; 8] {
        let parts = [Some(content.upstream().as_str().as_bytes()), Some(content.path().as_bytes())];
        let hash = self.hash("content", &parts);
        let mut prefix = [0; 8];
        prefix.copy_from_slice(&hash[..8]);
        prefix
    }

    /// HMAC-SHA256 over length-prefixed parts: no two lists of parts collide.
    fn hash(&self, domain: &str, parts: &[Option<&[u8]>]) -> [u8; 32] {
        let mut mac = <Hmac<Sha256>>::new_from_slice(&self.secret).expect("HMAC takes keys of any length");
        mac.update(domain.as_bytes());
        for part in parts {
            let length = part.map_or(u64::MAX, |part| part.len() as u64);
            mac.update(&length.to_be_bytes());
            mac.update(part.unwrap_or_default());
        }
        mac.finalize().into_bytes().into()
    }
}

const ACCEPTED: u8 = 1;
const REFUSED: u8 = 2;

fn decode(value: &[u8]) -> Option<(u8, u64)> {
    let (kind, at) = value.split_first()?;
    Some((*kind, u64::from_be_bytes(at.try_into().ok()?)))
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// One caller asking for one repository.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Asked {
    /// The repository exactly as asked for: what a verdict belongs to.
    pub spelled: Repository,
    /// The repository whose content that is: what all spellings share.
    pub content: Repository,
    /// Who asks.
    pub caller: Caller,
}

impl Asked {
    fn grant(&self, by_grace: bool) -> Grant {
        Grant { content: self.content.clone(), spelled: self.spelled.clone(), caller: self.caller, by_grace }
    }
}

/// Marks a verdict as being renewed, until dropped.
pub struct Renewal {
    access: Arc<Access>,
    key: Key,
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.access.renewing.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

#[cfg(test)]
mod tests;
