//! All upstreams: made from the config, changed with it, and found by name.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use http::{HeaderValue, Uri};
use prometheus_client::registry::Registry;
use tidegate_http::Identity;
use tidegate_name::Upstream;
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    Client, Problem, ProxyEnvironment, SecretText, UpstreamConfig,
    breaker::Breaker,
    budget::Budget,
    config::{AddressFamily, CredentialConfig},
    connect::{Resolver, Way},
    egress::Egress,
    locate::{self, Base},
    metrics::Metrics,
    tls::Tls,
    transport::Transport,
};

/// How often files with secrets are looked at; the contract allows 60 s.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Idle connections kept to each host that is no upstream.
const OUTSIDE_IDLE: usize = 4;

/// What holds for every upstream.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How long each stage may take.
    pub deadlines: Deadlines,
    /// The environment's word on egress proxies.
    pub proxy_environment: ProxyEnvironment,
}

/// How long each stage of a request may take.
#[derive(Clone, Debug)]
pub struct Deadlines {
    /// Name resolution.
    pub resolve: Duration,
    /// TCP, over all of a name's addresses.
    pub connect: Duration,
    /// The TLS handshake, and the answer of an egress proxy.
    pub tls: Duration,
    /// The first byte of an answer, connecting included.
    pub first_byte: Duration,
    /// The same for a relayed request that changes something; counted from the
    /// last byte of its body that was sent.
    pub relay_first_byte: Duration,
    /// A body that gives nothing.
    pub stall: Duration,
    /// How long a client waits for budget.
    pub budget: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            resolve: Duration::from_secs(5),
            connect: Duration::from_secs(5),
            tls: Duration::from_secs(10),
            first_byte: Duration::from_secs(30),
            relay_first_byte: Duration::from_secs(300),
            stall: Duration::from_secs(60),
            budget: Duration::from_secs(5),
        }
    }
}

/// All configured upstreams.
pub struct Upstreams {
    shared: Arc<Shared>,
    directory: Arc<Directory>,
}

/// What all clients share.
pub(crate) struct Shared {
    pub(crate) deadlines: Deadlines,
    pub(crate) user_agent: HeaderValue,
    pub(crate) metrics: Metrics,
    /// The way to public hosts that are no upstreams.
    pub(crate) outside: Transport,
    proxy_environment: ProxyEnvironment,
    resolver: Arc<Resolver>,
    tls: Tls,
}

/// Finds upstreams; a reload changes it as a whole.
#[derive(Default)]
pub(crate) struct Directory {
    table: ArcSwap<Table>,
}

#[derive(Default)]
struct Table {
    by_name: HashMap<Upstream, Arc<Client>>,
    clients: Vec<Arc<Client>>,
}

/// What was read from a client's secrets, to see when it changes.
#[derive(Default, PartialEq)]
pub(crate) struct Material {
    credential: Option<Identity>,
    ca: Option<SecretText>,
}

impl Upstreams {
    /// Makes the clients, or says everything that is wrong. Blocking: reads
    /// certificates and secrets.
    pub fn new(configs: Vec<UpstreamConfig>, settings: Settings) -> Result<Arc<Self>, Vec<Problem>> {
        let alone = |path: &str, text| vec![Problem { path: path.to_owned(), text }];
        let tls = Tls::of_system().map_err(|text| alone("upstreams", text))?;
        let resolver = Arc::new(Resolver::default());
        let environment = settings.proxy_environment;
        let way = Way {
            tls: tls.ordinary(),
            allow_private: false,
            family: AddressFamily::Any,
            egress: Egress::new(None, &environment).map_err(|problem| vec![problem])?,
            deadlines: settings.deadlines.clone(),
            resolver: Arc::clone(&resolver),
        };
        let shared = Arc::new(Shared {
            deadlines: settings.deadlines,
            // Forges look at how it starts.
            user_agent: HeaderValue::from_static(concat!("git/2.47.0 tidegate/", env!("CARGO_PKG_VERSION"))),
            metrics: Metrics::default(),
            outside: Transport::new(way, OUTSIDE_IDLE),
            proxy_environment: environment,
            resolver,
            tls,
        });
        let upstreams = Self { shared, directory: Arc::default() };
        upstreams.reload(configs)?;
        Ok(Arc::new(upstreams))
    }

    /// Changes to another config. Unchanged upstreams keep everything, changed
    /// ones what still fits: the state of an unchanged budget, the breaker. If
    /// anything is wrong, nothing changes. Blocking.
    pub fn reload(&self, configs: Vec<UpstreamConfig>) -> Result<(), Vec<Problem>> {
        let old = self.directory.table.load_full();
        let mut table = Table::default();
        let mut problems = Vec::new();
        for (at, config) in configs.into_iter().enumerate() {
            let name = config.host.parse().ok();
            let previous: Option<&Arc<Client>> =
                old.clients.iter().find(|client| Some(&client.name) == name.as_ref());
            let client = match previous {
                Some(client) if client.config == config => Ok(Arc::clone(client)),
                _ => self.client(config, previous),
            };
            match client.and_then(|client| table.add(&client)) {
                Ok(()) => {}
                Err(found) => problems.extend(
                    found.into_iter().map(|problem| Problem { path: place(at, &problem.path), ..problem }),
                ),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        self.directory.table.store(Arc::new(table));
        Ok(())
    }

    /// The client for a name or alias.
    pub fn get(&self, name: &Upstream) -> Option<Arc<Client>> {
        self.directory.table.load().by_name.get(name).cloned()
    }

    /// The names of all upstreams, aliases left out, in the order of the config.
    pub fn hosts(&self) -> Vec<Upstream> {
        self.directory.clients().iter().map(|client| client.name.clone()).collect()
    }

    /// Reads all secrets again and uses those that changed. What can't be read
    /// stays as it was and is returned. Blocking.
    pub fn reload_secrets(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (at, client) in self.directory.clients().iter().enumerate() {
            if let Err(found) = client.reload_secrets() {
                self.shared.metrics.reload_failed();
                problems.extend(
                    found.into_iter().map(|problem| Problem { path: place(at, &problem.path), ..problem }),
                );
            }
        }
        problems
    }

    /// Looks for changed secrets every 30 s, for ever.
    pub async fn watch_secrets(self: Arc<Self>) {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is now, and all has just been read.
        ticks.tick().await;
        loop {
            ticks.tick().await;
            let upstreams = Arc::clone(&self);
            match tokio::task::spawn_blocking(move || upstreams.reload_secrets()).await {
                Ok(problems) => {
                    for problem in problems {
                        tracing::warn!(%problem, "a secret can't be read again; the old one stays in use");
                    }
                }
                Err(error) => tracing::error!(%error, "reading secrets failed"),
            }
        }
    }

    /// Adds the metrics of all upstreams.
    pub fn register(&self, registry: &mut Registry) {
        self.shared.metrics.register(registry, Arc::clone(&self.directory));
    }

    fn client(
        &self,
        config: UpstreamConfig,
        previous: Option<&Arc<Client>>,
    ) -> Result<Arc<Client>, Vec<Problem>> {
        let mut problems = config.problems();
        let material = Material::read(&config, &mut problems);
        let one = |path: &str, text: String| vec![Problem { path: path.to_owned(), text }];
        if !problems.is_empty() {
            return Err(problems);
        }
        let base = Base::of(&config).map_err(|text| one("url", text))?;
        let name = config.host.parse().map_err(|error| one("host", format!("{error}")))?;
        let transport = self.shared.transport(&config, &material).map_err(|problem| vec![problem])?;
        // The state of a budget tells what the upstream was asked already.
        let budget = previous.filter(|client| *client.budget.config() == config.budget).map_or_else(
            || Arc::new(Budget::new(config.budget.clone())),
            |client| Arc::clone(&client.budget),
        );
        let breaker = previous
            .filter(|client| client.base == base)
            .map_or_else(Arc::<Breaker>::default, |client| Arc::clone(&client.breaker));
        Ok(Arc::new(Client {
            name,
            base,
            budget,
            breaker,
            transport: ArcSwap::from_pointee(transport),
            credential: ArcSwapOption::new(material.credential.clone().map(Arc::new)),
            material: Mutex::new(material),
            shared: Arc::clone(&self.shared),
            directory: Weak::clone(&Arc::downgrade(&self.directory)),
            config,
        }))
    }
}

impl Shared {
    fn transport(&self, config: &UpstreamConfig, material: &Material) -> Result<Transport, Problem> {
        let tls = match &material.ca {
            None => self.tls.ordinary(),
            Some(pem) => {
                self.tls.trusting(pem.expose()).map_err(|text| Problem { path: "ca".to_owned(), text })?
            }
        };
        let way = Way {
            tls,
            allow_private: config.allow_private,
            family: config.address_family,
            egress: Egress::new(config.proxy.as_ref(), &self.proxy_environment)?,
            deadlines: self.deadlines.clone(),
            resolver: Arc::clone(&self.resolver),
        };
        Ok(Transport::new(way, config.budget.concurrent as usize))
    }
}

impl Client {
    /// Reads its secrets again and takes what changed into use.
    fn reload_secrets(&self) -> Result<(), Vec<Problem>> {
        let mut problems = Vec::new();
        let new = Material::read(&self.config, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut current = self.material.lock().unwrap_or_else(PoisonError::into_inner);
        if new.ca != current.ca {
            // Requests under way keep the pool they started in.
            let transport = self.shared.transport(&self.config, &new).map_err(|problem| vec![problem])?;
            self.transport.store(Arc::new(transport));
            tracing::info!(upstream = %self.name, "a changed CA file is in use");
        }
        if new.credential != current.credential {
            self.credential.store(new.credential.clone().map(Arc::new));
            tracing::info!(upstream = %self.name, "a changed credential is in use");
        }
        *current = new;
        Ok(())
    }
}

impl Material {
    /// Reads what the config points to; what can't be read is a problem.
    fn read(config: &UpstreamConfig, problems: &mut Vec<Problem>) -> Self {
        let mut read = |path: &str, source: &Option<crate::SecretSource>| {
            let text = source.as_ref().map(crate::SecretSource::read)?;
            text.map_err(|error| problems.push(Problem { path: path.to_owned(), text: error.to_string() }))
                .ok()
        };
        let ca = read("ca", &config.ca);
        let CredentialConfig { username, password, bearer } = config.credential.clone().unwrap_or_default();
        let password = read("credential.password", &password);
        let bearer = read("credential.bearer", &bearer);
        let credential = match (username, password, bearer) {
            (Some(username), Some(password), _) => Some(Identity::basic(&username, password.expose())),
            (_, _, Some(token)) => {
                let identity = Identity::bearer(token.expose());
                if identity.is_none() {
                    let text = "has bytes that no header can carry".to_owned();
                    problems.push(Problem { path: "credential.bearer".to_owned(), text });
                }
                identity
            }
            _ => None,
        };
        Self { credential, ca }
    }
}

impl Directory {
    pub(crate) fn clients(&self) -> Vec<Arc<Client>> {
        self.table.load().clients.clone()
    }

    /// The upstream that a URL is of, and the URL it is really at.
    pub(crate) fn find(&self, uri: &Uri) -> Option<(Arc<Client>, Uri)> {
        let table = self.table.load();
        if let Some(client) = table.clients.iter().find(|client| client.base.is_origin_of(uri)) {
            return Some((Arc::clone(client), uri.clone()));
        }
        let client = table.by_name.get(&locate::place(uri)?)?;
        let real = client.base.uri_of_public(locate::path_and_query(uri)).ok()?;
        Some((Arc::clone(client), real))
    }
}

impl Table {
    fn add(&mut self, client: &Arc<Client>) -> Result<(), Vec<Problem>> {
        let mut problems = Vec::new();
        let mut add = |path: &str, name: Upstream| {
            let text = format!("{name} is already the name of an upstream; each name may be used once");
            if self.by_name.insert(name, Arc::clone(client)).is_some() {
                problems.push(Problem { path: path.to_owned(), text });
            }
        };
        add("host", client.name.clone());
        for (at, alias) in client.config.aliases.iter().enumerate() {
            // Checked with the rest of the config.
            if let Ok(alias) = alias.parse() {
                add(&format!("aliases[{at}]"), alias);
            }
        }
        self.clients.push(Arc::clone(client));
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}

/// The path of a problem in the whole file.
fn place(at: usize, path: &str) -> String {
    // The environment's problems are nobody's table.
    if path.ends_with("_PROXY") { path.to_owned() } else { format!("upstreams[{at}].{path}") }
}
