//! The room's one object: which repositories are in use, and the work that is
//! shared between their readers.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use http::{Request, request::Parts as Head};
use moka::sync::Cache;
use tidegate_cache::{Access, Asked, Away, Collapse, Grant, Metrics, Standing};
use tidegate_http::{Body, Client as Peer, Identity};
use tidegate_name::{Destination, Folding, Repository};
use tidegate_store::Store;
use tidegate_upstream::{Client, Priority, Upstreams};
use tokio::time::Instant;

use crate::{
    Caps, GitConfig,
    account::Accounts,
    endpoint::Endpoint,
    error::{Error, Sick},
    fill::Fills,
    live::Live,
    mirror::{Limits, Mirror, Registry},
    refresh::{Looked, Who},
    responses::Responses,
    speak::Scope,
    update::Updated,
};

/// Repositories remembered at once; beyond, the least recently used one is
/// forgotten (its mirror stays on disk).
const MOST_LIVE: u64 = 20_000;
/// Mirrors kept open though nobody reads them.
const MOST_OPEN: usize = 256;
/// A caller who could be served by grace waits this long for the upstream.
const ASK_PROVEN: Duration = Duration::from_secs(5);
/// A caller who can't waits this long.
const ASK_UNPROVEN: Duration = Duration::from_secs(65);

/// What the room is made of.
pub struct Parts {
    /// The `git` table.
    pub config: GitConfig,
    /// The room's caps.
    pub caps: Caps,
    /// The data directory; mirrors live in `git/` below it.
    pub data: PathBuf,
    /// Where packs go.
    pub store: Arc<Store>,
    /// Who may be asked.
    pub upstreams: Arc<Upstreams>,
    /// Who may read.
    pub access: Arc<Access>,
    /// Where refreshes are counted.
    pub metrics: Metrics,
}

/// The git room.
pub struct Git {
    pub(crate) config: GitConfig,
    pub(crate) caps: Caps,
    pub(crate) store: Arc<Store>,
    pub(crate) upstreams: Arc<Upstreams>,
    pub(crate) access: Arc<Access>,
    pub(crate) metrics: Metrics,
    pub(crate) registry: Registry,
    pub(crate) responses: Arc<Responses>,
    pub(crate) accounts: Accounts,
    pub(crate) fills: Fills,
    pub(crate) looks: Collapse<(Asked, bool, Scope), Looked>,
    pub(crate) updates: Collapse<Repository, Updated>,
    pub(crate) wants: Collapse<(Repository, Vec<gix_hash::ObjectId>), Result<(), Error>>,
    pub(crate) started: Instant,
    live: Cache<Repository, Arc<Live>>,
    itself: Weak<Self>,
}

/// A request that is let in.
pub(crate) struct Admitted {
    pub(crate) live: Arc<Live>,
    /// The proof that its caller may read; none for a repository that is
    /// passed through, whose upstream judges every request itself.
    pub(crate) grant: Option<Grant>,
    pub(crate) who: Who,
}

impl Git {
    /// Opens the room; mirrors are opened when they are asked for.
    pub fn new(parts: Parts) -> Result<Arc<Self>, std::io::Error> {
        let limits = Limits { pack_bytes: parts.caps.pack_bytes, ..Limits::default() };
        let registry =
            Registry::new(&parts.data.join("git"), limits, MOST_OPEN).map_err(std::io::Error::other)?;
        Ok(Arc::new_cyclic(|itself| Self {
            responses: Arc::new(Responses::new(&parts.store, parts.caps)),
            accounts: Accounts::default(),
            fills: Fills::default(),
            config: parts.config,
            caps: parts.caps,
            store: parts.store,
            upstreams: parts.upstreams,
            access: parts.access,
            metrics: parts.metrics,
            registry,
            looks: Collapse::default(),
            updates: Collapse::default(),
            wants: Collapse::default(),
            started: Instant::now(),
            live: Cache::new(MOST_LIVE),
            itself: Weak::clone(itself),
        }))
    }

    /// Who asks for what, taken from a request that the endpoint recognised.
    pub(crate) fn who(&self, head: &Head, endpoint: &Endpoint<'_>) -> Result<(Who, Arc<Client>), Error> {
        let upstream =
            &head.extensions.get::<Destination>().ok_or_else(|| Error::internal("no destination"))?.upstream;
        let client = self
            .upstreams
            .get(upstream)
            .ok_or_else(|| Error::internal("the front let an unknown host in"))?;
        let identity = Identity::from_headers(&head.headers);
        if identity.binds_connection() {
            return Err(Error::Scheme);
        }
        let name = client.name().clone();
        let asked = Asked {
            spelled: Repository::new(name.clone(), endpoint.repository, Folding::default()),
            content: Repository::new(name, endpoint.repository, client.folding()),
            caller: self.access.caller(&identity),
        };
        let from = head.extensions.get::<Peer>().map(|peer| peer.address.ip());
        let who = Who { asked, identity, by_owner: true, priority: Priority::Client, from, proves: true };
        Ok((who, client))
    }

    /// The repository as it is known, or a fresh start of it, which is not
    /// remembered until its upstream accepts somebody.
    pub(crate) async fn live(&self, asked: &Asked, client: Arc<Client>) -> Arc<Live> {
        if let Some(live) = self.live.get(&asked.content) {
            return live;
        }
        // Opening a mirror reads its commits.
        let (git, repository) = (self.itself(), asked.content.clone());
        let opened = tokio::task::spawn_blocking(move || git.on_disk(&repository)).await;
        let mirror = opened.unwrap_or_default();
        let on_disk = mirror.is_some();
        let live = Arc::new(Live::new(asked.content.clone(), asked.spelled.clone(), client, mirror));
        if on_disk { self.live.get_with(asked.content.clone(), || live) } else { live }
    }

    /// Opens the mirror of a repository, if there is one. Blocks.
    fn on_disk(&self, repository: &Repository) -> Option<Arc<Mirror>> {
        self.registry.find(repository, SystemTime::now()).unwrap_or_else(|error| {
            tracing::error!(%repository, %error, "the mirror can't be opened");
            None
        })
    }

    /// The repository of a mirror that an earlier run left. Blocks.
    pub(crate) fn reopen(&self, repository: &Repository, client: Arc<Client>) -> Option<Arc<Live>> {
        let mirror = self.on_disk(repository)?;
        let live = || Arc::new(Live::new(repository.clone(), repository.clone(), client, Some(mirror)));
        Some(self.live.get_with(repository.clone(), live))
    }

    /// Notes that a repository was read, for the order of eviction.
    pub(crate) fn note_read(&self, live: &Live, scope: Scope) {
        if live.read(scope) && live.mirror.load().is_some() {
            let (git, repository) = (self.itself(), live.repository.clone());
            // The registry may touch a file.
            tokio::task::spawn_blocking(move || git.registry.find(&repository, SystemTime::now()).map(drop));
        }
    }

    /// Remembers a repository that its upstream acknowledged; everyone works
    /// on the one that is returned.
    pub(crate) fn remember(self: &Arc<Self>, live: &Arc<Live>) -> Arc<Live> {
        let live = self.live.get_with(live.repository.clone(), || {
            if live.is_purged() {
                let (repository, client) = (live.repository.clone(), Arc::clone(&live.client));
                Arc::new(Live::new(repository, live.spelled(), client, None))
            } else {
                Arc::clone(live)
            }
        });
        self.keep(&live);
        live
    }

    pub(crate) fn known(&self, repository: &Repository) -> Option<Arc<Live>> {
        self.live.get(repository)
    }

    pub(crate) fn forget(&self, repository: &Repository) {
        self.live.invalidate(repository);
    }

    /// The age of the oldest refs in use.
    pub(crate) fn oldest(&self, in_use: Duration) -> Duration {
        let ages = self.live.iter().filter(|(_, live)| live.idle() <= in_use);
        ages.filter_map(|(_, live)| live.view()?.age).max().unwrap_or_default()
    }

    /// A handle to pass to work that outlives its caller.
    pub(crate) fn itself(&self) -> Arc<Self> {
        self.itself.upgrade().expect("a room is only ever made inside an Arc")
    }

    /// Lets a caller in, asking the upstream if its last word is too old.
    ///
    /// Authorization comes before anything else is looked at. `reads` is what
    /// the request will need of the refs: a look made now covers it.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        who: Who,
        client: Arc<Client>,
        reads: Scope,
    ) -> Result<Admitted, Error> {
        let live = self.live(&who.asked, client).await;
        if live.foreign().is_some() {
            return Ok(Admitted { live, grant: None, who });
        }
        let ttl = self.access.auth_ttl(self.config.refresh_every);
        let from = who.from.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let upstream = live.client.name().clone();
        match self.access.standing(&who.asked, ttl, from) {
            Standing::Granted(grant) => {
                // It may have become known while we looked.
                let live = self.known(&live.repository).unwrap_or(live);
                return Ok(Admitted { live, grant: Some(grant), who });
            }
            Standing::Refused(refusal) => return Err(Error::Refused { upstream, refusal }),
            Standing::Metered(wait) => return Err(Error::Metered { upstream, wait }),
            Standing::Unknown => {}
        }
        let grace = self.access.away(&who.asked);
        let can_wait_less = matches!(grace, Away::Granted(_));
        if let Away::Granted(grant) = &grace
            && live.away.is_known()
        {
            self.look_behind(&live, who.clone(), Scope::Eager);
            return Ok(Admitted { live, grant: Some(grant.clone()), who });
        }
        let began = Instant::now();
        let patience = if can_wait_less { ASK_PROVEN } else { ASK_UNPROVEN };
        let look = self.look(&live, who.clone(), self.first_scope(&live, &who, reads));
        let looked = live.away.wait(patience, can_wait_less, look).await;
        let sick = match looked {
            Some(Looked::Accepted(_)) => {
                if let Some(grant) = self.access.accepted_since(&who.asked, began) {
                    let live = self.known(&live.repository).unwrap_or(live);
                    return Ok(Admitted { live, grant: Some(grant), who });
                }
                match self.access.standing(&who.asked, ttl, from) {
                    // Refused meanwhile, by a newer answer.
                    Standing::Refused(refusal) => return Err(Error::Refused { upstream, refusal }),
                    _ => Sick::new("its answer came too late"),
                }
            }
            Some(Looked::Denied(refusal)) => return Err(Error::Refused { upstream, refusal }),
            Some(Looked::Foreign) => {
                let live = self.known(&live.repository).unwrap_or(live);
                return Ok(Admitted { live, grant: None, who });
            }
            Some(Looked::Sick(sick)) => sick,
            None => Sick::new(format!("it did not answer within {} s", patience.as_secs())),
        };
        match grace {
            Away::Granted(grant) => Ok(Admitted { live, grant: Some(grant), who }),
            Away::AnonymousRefused => Err(Error::Challenge { upstream }),
            Away::Unproven => Err(Error::Away { upstream, sick }),
        }
    }

    /// What a verdict's look covers: what the request reads, so that it needs
    /// no second one. Once something of the repository is held, only a list of
    /// its refs proves that the caller may have it.
    fn first_scope(&self, live: &Live, who: &Who, reads: Scope) -> Scope {
        match reads {
            Scope::Verdict if live.view().is_some() || live.dialect_of(&who.asked.spelled).is_some() => {
                live.due_scope(self.config.refresh_every)
            }
            reads => self.look_scope(live, reads),
        }
    }

    /// Passes a request through untouched, with its caller's identity.
    pub(crate) async fn relay(
        &self,
        mut request: Request<Body>,
        who: &Who,
        client: &Client,
        kind: tidegate_upstream::Kind,
    ) -> Result<http::Response<Body>, Error> {
        if let Some(destination) = request.extensions().get::<Destination>() {
            *request.uri_mut() = destination.path_and_query().parse().map_err(Error::internal)?;
        }
        let upstream = client.name().clone();
        if let Some(wait) = self.access.relay_must_wait(&who.asked, who.from) {
            return Err(Error::Metered { upstream, wait });
        }
        let relayed = client.relay(request, &who.identity, kind).await;
        if relayed.as_ref().is_ok_and(|response| matches!(response.status().as_u16(), 401 | 403)) {
            self.access.relay_refused(&who.asked, who.from);
        }
        relayed.map_err(|error| Error::Away { upstream, sick: error.into() })
    }
}
