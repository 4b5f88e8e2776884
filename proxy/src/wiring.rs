//! Builds the rooms and hands each what it needs. A new protocol is one more
//! mount and one more [`Inspect`] here.

mod content;

use std::{path::Path, sync::Arc};

use anyhow::{Context as _, bail};
use prometheus_client::registry::Registry;
use tidegate_admin::{TierStatus, Tiers};
use tidegate_cache::{Access, Inspect};
use tidegate_front::{Door, ForwardDoor, PrefixDoor};
use tidegate_git::Git;
use tidegate_http::Mount;
use tidegate_store::Store;
use tidegate_upstream::{ProxyEnvironment, Settings, Upstreams};

use crate::{config::Config, data_dir::DataDir};
use content::Content;

/// All rooms, open.
pub(crate) struct House {
    pub(crate) store: Arc<Store>,
    pub(crate) upstreams: Arc<Upstreams>,
    access: Arc<Access>,
    pub(crate) git: Arc<Git>,
    cache_metrics: tidegate_cache::Metrics,
}

impl House {
    /// Opens the rooms in the order in which they need each other.
    pub(crate) async fn open(config: &Config, data: &DataDir) -> anyhow::Result<Self> {
        let secret = data.secret(config.secret.as_ref())?;
        let store = open_store(config, data.path()).await?;
        let upstreams = open_upstreams(config).await?;
        let access = Access::new(config.access.clone(), secret, &store);
        let cache_metrics = tidegate_cache::Metrics::default();
        let parts = tidegate_git::Parts {
            config: config.git.clone(),
            caps: config.limits.git(),
            data: data.path().to_owned(),
            store: Arc::clone(&store),
            upstreams: Arc::clone(&upstreams),
            access: Arc::clone(&access),
            metrics: cache_metrics.clone(),
        };
        let git = Git::new(parts).context("cannot open the git room")?;
        git.resume();
        Ok(Self { store, upstreams, access, git, cache_metrics })
    }

    /// The ways in. The Host and CONNECT doors will stand before the others.
    pub(crate) fn doors() -> Vec<Box<dyn Door>> {
        vec![Box::new(ForwardDoor), Box::new(PrefixDoor)]
    }

    /// The protocols in the order in which they are asked; the last takes all.
    pub(crate) fn mounts(&self) -> Vec<Mount> {
        vec![self.git.mount(), tidegate_raw::mount(Arc::clone(&self.upstreams), Arc::clone(&self.access))]
    }

    /// What the operator's commands are put to.
    pub(crate) fn inspected(&self) -> Vec<Arc<dyn Inspect>> {
        let git: Arc<dyn Inspect> = Arc::<Git>::clone(&self.git);
        vec![git, Arc::new(Content(Arc::clone(&self.store)))]
    }

    /// Adds every room's metrics; `upstream` writes out the whole names.
    pub(crate) fn register(&self, registry: &mut Registry) {
        self.upstreams.register(registry);
        let registry = registry.sub_registry_with_prefix("tidegate");
        self.cache_metrics.register(registry);
        let store = Arc::clone(&self.store);
        registry.register_collector(Box::new(Tiers::new(move || tiers(&store))));
    }
}

/// The store's tiers, for `/metrics` and `/status`.
pub(crate) fn tiers(store: &Store) -> Vec<TierStatus> {
    let usage = store.usage();
    vec![
        TierStatus { tier: "memory", bytes: usage.memory, evictions: usage.memory_evictions },
        TierStatus { tier: "disk", bytes: usage.disk, evictions: usage.disk_evictions },
    ]
}

async fn open_store(config: &Config, data: &Path) -> anyhow::Result<Arc<Store>> {
    Store::open(&data.join("store"), &config.store).await.context("cannot open the store")
}

async fn open_upstreams(config: &Config) -> anyhow::Result<Arc<Upstreams>> {
    let configs = config.upstreams.clone();
    let settings = Settings { proxy_environment: ProxyEnvironment::of_process(), ..Settings::default() };
    let opened = tokio::task::spawn_blocking(move || Upstreams::new(configs, settings)).await?;
    match opened {
        Ok(upstreams) => Ok(upstreams),
        Err(problems) => {
            let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
            bail!("{}", lines.join("\n"))
        }
    }
}
