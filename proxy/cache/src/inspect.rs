//! What the admin listener may ask of a protocol room. The room implements it
//! and the wiring hands it over, so that `admin` knows no protocol.

use std::{future::Future, pin::Pin};

use tidegate_name::Destination;

/// A boxed future, so that the trait can be an object.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a room did when it was told to act on a destination.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Done {
    /// How many repositories (or other units of the room) were touched.
    pub repositories: u64,
    /// How many bytes were freed, checked or fetched.
    pub bytes: u64,
    /// What is wrong, one line each; empty is good.
    pub problems: Vec<String>,
}

/// A protocol room, as the operator's commands see it.
pub trait Inspect: Send + Sync {
    /// The room's name: `git`.
    fn protocol(&self) -> &'static str;

    /// Whether the destination is one of this room's, and then what is known
    /// of it: how it would be routed, what is cached and how old it is. Never
    /// asks the upstream.
    fn explain<'a>(&'a self, destination: &'a Destination) -> Answer<'a, Option<serde_json::Value>>;

    /// Removes the repository's content, verdicts and refs, now.
    fn purge<'a>(&'a self, destination: &'a Destination) -> Answer<'a, Done>;

    /// Audits what the room keeps on disk.
    fn fsck(&self) -> Answer<'_, Done>;

    /// Fetches the destination as a client would, with the configured
    /// credential or none.
    fn warm<'a>(&'a self, destination: &'a Destination) -> Answer<'a, Done>;
}
