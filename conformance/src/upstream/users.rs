//! Who may read what on a scripted upstream; changeable at run time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;

/// The users of one upstream and their rights per repository.
#[derive(Debug, Default)]
pub struct Users {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    passwords: BTreeMap<String, String>,
    rights: BTreeSet<(String, String)>,
    refusal: Option<u16>,
}

/// What the upstream thinks of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opinion {
    /// May read.
    Welcome,
    /// Must say who it is.
    Unknown,
    /// Is known and may not: answered with this status.
    Refused(u16),
}

impl Users {
    fn locked(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds or changes a user; its old password ends here.
    pub fn set(&self, user: &str, password: &str) {
        self.locked().passwords.insert(user.to_owned(), password.to_owned());
    }

    /// Lets `user` read `repository` (its path without `.git`).
    pub fn grant(&self, user: &str, repository: &str) {
        self.locked().rights.insert((user.to_owned(), repository.to_owned()));
    }

    /// Takes the right away.
    pub fn revoke(&self, user: &str, repository: &str) {
        self.locked().rights.remove(&(user.to_owned(), repository.to_owned()));
    }

    /// Lets anybody read `repository`, without a credential too.
    pub fn publish(&self, repository: &str) {
        self.grant("", repository);
    }

    /// Ends [`Users::publish`].
    pub fn unpublish(&self, repository: &str) {
        self.revoke("", repository);
    }

    /// The status for known users without the right; 403 unless set.
    pub fn refuse_with(&self, status: u16) {
        self.locked().refusal = Some(status);
    }

    /// Judges a caller.
    pub fn judge(&self, headers: &HeaderMap, repository: &str) -> Opinion {
        let table = self.locked();
        let right = |user: &str| table.rights.contains(&(user.to_owned(), repository.to_owned()));
        let refused = Opinion::Refused(table.refusal.unwrap_or(403));
        match credential(headers) {
            None if right("") => Opinion::Welcome,
            None => Opinion::Unknown,
            Some((user, password)) => match table.passwords.get(&user) {
                Some(known) if *known == password && (right(&user) || right("")) => Opinion::Welcome,
                Some(known) if *known == password => refused,
                _ => Opinion::Unknown,
            },
        }
    }
}

/// The user named by Basic, or `bearer:<token>`.
pub(super) fn user(headers: &HeaderMap) -> Option<String> {
    credential(headers).map(|(user, _)| user)
}

/// The value of an Authorization header for Basic.
pub fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

fn credential(headers: &HeaderMap) -> Option<(String, String)> {
    let text = headers.get("authorization")?.to_str().ok()?;
    if let Some(token) = text.strip_prefix("Bearer ") {
        return Some((format!("bearer:{token}"), token.to_owned()));
    }
    let decoded = STANDARD.decode(text.strip_prefix("Basic ")?).ok()?;
    let pair = String::from_utf8(decoded).ok()?;
    pair.split_once(':').map(|(user, password)| (user.to_owned(), password.to_owned()))
}
