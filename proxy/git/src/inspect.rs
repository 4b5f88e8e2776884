//! What the operator's commands do in this room.

use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_cache::{Answer, Asked, Done, Inspect};
use tidegate_http::Identity;
use tidegate_name::{Destination, Folding, Repository};
use tidegate_upstream::{Client, Priority};

use crate::{
    git::Git,
    refresh::{Looked, Who},
    speak::Scope,
};

impl Inspect for Git {
    fn protocol(&self) -> &'static str {
        "git"
    }

    fn explain<'a>(&'a self, destination: &'a Destination) -> Answer<'a, Option<Value>> {
        Box::pin(self.explained(destination))
    }

    fn purge<'a>(&'a self, destination: &'a Destination) -> Answer<'a, Done> {
        Box::pin(self.purged(destination))
    }

    fn fsck(&self) -> Answer<'_, Done> {
        Box::pin(self.checked())
    }

    fn warm<'a>(&'a self, destination: &'a Destination) -> Answer<'a, Done> {
        Box::pin(self.warmed(destination))
    }
}

/// The repository a destination means: its URL, or one of its requests.
fn repository_path(destination: &Destination) -> &str {
    let path = destination.path.as_str();
    ["/info/refs", "/git-upload-pack", "/git-receive-pack"]
        .iter()
        .find_map(|end| path.strip_suffix(end))
        .unwrap_or(path)
        .trim_matches('/')
}

impl Git {
    fn operator_asks(&self, destination: &Destination) -> Option<(Asked, Arc<Client>, Identity)> {
        let client = self.upstreams.get(&destination.upstream)?;
        let path = repository_path(destination);
        if path.is_empty() {
            return None;
        }
        let identity = client.credential().unwrap_or_default();
        let name = client.name().clone();
        let asked = Asked {
            spelled: Repository::new(name.clone(), path, Folding::default()),
            content: Repository::new(name, path, client.folding()),
            caller: self.access.caller(&identity),
        };
        Some((asked, client, identity))
    }

    async fn explained(&self, destination: &Destination) -> Option<Value> {
        let (asked, client, _) = self.operator_asks(destination)?;
        let live = self.live(&asked, Arc::clone(&client)).await;
        let view = live.view();
        let snapshot = live.snapshot();
        let borrowed = self.access.borrow(&asked.content).is_some();
        let public = self.access.is_public(&asked.spelled, &asked.content);
        let refreshed_with = if client.credential().is_some() {
            "the configured credential"
        } else if public {
            "no credential: it is public"
        } else if borrowed {
            "a credential borrowed from a reader"
        } else {
            "nothing: it waits for the next reader"
        };
        Some(json!({
            "repository": asked.content.to_string(),
            "upstream": client.name().to_string(),
            "passed_through": live.foreign(),
            "mirrored": snapshot.is_some(),
            "generation": snapshot.as_ref().map(|snapshot| snapshot.generation),
            "refs": view.as_ref().map(|view| view.refs.refs().len()),
            "age_seconds": view.as_ref().and_then(|view| view.age).map(|age| age.as_secs()),
            "fresh_for_seconds": view.as_ref().and_then(|view| view.age).map(|age| self.lifetime().ttl(age)),
            "idle_seconds": live.idle().as_secs(),
            "bytes": live.mirror.load().as_ref().map(|mirror| mirror.bytes()),
            "public": public,
            "refreshed_with": refreshed_with,
            "upstream_away": live.away.is_known(),
        }))
    }

    async fn purged(&self, destination: &Destination) -> Done {
        let Some((asked, ..)) = self.operator_asks(destination) else {
            return Done {
                problems: vec!["this host is not configured, or no repository is named".into()],
                ..Done::default()
            };
        };
        let bytes = self.registry.bytes(&asked.content);
        self.access.forget(&asked.content);
        if let Some(live) = self.known(&asked.content) {
            live.purge();
            // What is being published now is removed with the rest.
            drop(live.publishing.lock().await);
        }
        self.forget(&asked.content);
        let known = self.forget_fills(&asked.content).await + self.responses.forget(&asked.content).await;
        self.close_account(&asked.content);
        let (git, repository) = (self.itself(), asked.content.clone());
        let removed = tokio::task::spawn_blocking(move || git.registry.remove(&repository)).await;
        match removed
            .map_err(|error| error.to_string())
            .and_then(|removed| removed.map_err(|error| error.to_string()))
        {
            Ok(()) => Done { repositories: u64::from(bytes > 0 || known > 0), bytes, problems: Vec::new() },
            Err(problem) => Done { problems: vec![problem], ..Done::default() },
        }
    }

    async fn checked(&self) -> Done {
        let git = self.itself();
        let work = tokio::task::spawn_blocking(move || {
            let mut done = Done::default();
            for listed in git.registry.list() {
                done.repositories += 1;
                done.bytes += listed.bytes;
                match git.registry.find(&listed.repository, listed.last_used) {
                    Ok(Some(mirror)) => {
                        let found = mirror
                            .fsck()
                            .into_iter()
                            .map(|problem| format!("{}: {problem}", listed.repository));
                        done.problems.extend(found);
                    }
                    Ok(None) => {}
                    Err(error) => done.problems.push(format!("{}: {error}", listed.repository)),
                }
            }
            done
        });
        work.await.unwrap_or_else(|error| Done { problems: vec![error.to_string()], ..Done::default() })
    }

    async fn warmed(&self, destination: &Destination) -> Done {
        let failed = |why: String| Done { problems: vec![why], ..Done::default() };
        let Some((asked, client, identity)) = self.operator_asks(destination) else {
            return failed("this host is not configured, or no repository is named".into());
        };
        let who =
            Who { asked, identity, by_owner: false, priority: Priority::Webhook, from: None, proves: false };
        let git = self.itself();
        let live = self.live(&who.asked, client).await;
        match git.look(&live, who.clone(), Scope::All).await {
            Looked::Accepted(_) => {}
            Looked::Denied(refusal) => return failed(format!("the upstream answered {}", refusal.status)),
            Looked::Sick(sick) => return failed(sick.why.to_string()),
            Looked::Foreign => return failed("this repository is passed through and can't be kept".into()),
        }
        let live = self.known(&who.asked.content).unwrap_or(live);
        live.want_mirror();
        match git.update(&live, &who.behalf()).await {
            Ok(()) => {
                Done { repositories: 1, bytes: self.registry.bytes(&who.asked.content), problems: Vec::new() }
            }
            Err(error) => failed(error.to_string()),
        }
    }
}
