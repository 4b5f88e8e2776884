//! `GET info/refs`: v0 and v1 clients get all refs, v2 clients what we can do.

use std::sync::Arc;

use gix_hash::Kind;
use http::Response;
use tidegate_http::{Body, Outcome, Served};
use tokio::time::Instant;

use crate::{
    error::Error,
    git::{Admitted, Git},
    respond,
    speak::Scope,
    wire::{advertisement, protocol::Version},
};

/// Answers a client that is let in.
pub(crate) async fn advertise(
    git: &Arc<Git>,
    admitted: &Admitted,
    version: Version,
    since: Instant,
) -> Result<Response<Body>, Error> {
    let live = &admitted.live;
    if version == Version::V2 {
        git.note_read(live, Scope::Eager);
        // What we can do needs no look; letting the caller in may have.
        let asked = live.last_look().is_some_and(|at| at >= since);
        let outcome = match (asked, live.snapshot()) {
            (false, _) => Outcome::Hit,
            (true, None) => Outcome::Miss,
            (true, Some(_)) => Outcome::Revalidated,
        };
        let served = match live.view() {
            Some(view) => Served { ttl: None, ..respond::served(&view, outcome, git.lifetime()) },
            None => Served { generation: Some(0), ..Served::new(outcome) },
        };
        return Ok(respond::whole(respond::ADVERTISEMENT, advertisement::encode_v2(Kind::Sha1), served));
    }
    let (view, outcome) = git.fresh(live, &admitted.who, Scope::All, since).await?;
    let bytes = live.advertisement(&view.refs, version, || {
        advertisement::encode(&view.refs, version, &|name| git.config.hides(name))
    });
    Ok(respond::whole(respond::ADVERTISEMENT, bytes, respond::served(&view, outcome, git.lifetime())))
}
