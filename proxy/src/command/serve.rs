//! `tidegate serve`: from a configuration to listeners, and down again.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use prometheus_client::registry::Registry;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_admin::{Admin, Gate, Status};
use tidegate_front::{Admission, Listen, Listener, Serving, Site};
use tidegate_http::RoomService;
use tidegate_upstream::Client;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout},
};

use super::{Exit, complain, runtime};
use crate::{
    config::{Config, Source},
    data_dir::DataDir,
    logging,
    reload::{ReloadMetric, Reloader, State, Token},
    wiring::{House, tiers},
};

/// Descriptors for files, upstreams and the rest, beside the clients'.
const OTHER_DESCRIPTORS: u64 = 2_048;
/// How long the rooms may take to write down what they know.
const CLOSE: Duration = Duration::from_secs(5);

pub(super) fn run(source: Source) -> anyhow::Result<Exit> {
    let problem = |problem: &crate::config::Problem| complain(&problem.to_string());
    let read = source.text().map_err(|found| vec![found]);
    let (text, config) = match read.and_then(|text| source.load_text(&text).map(|config| (text, config))) {
        Ok(read) => read,
        Err(problems) => {
            problems.iter().for_each(problem);
            return Ok(Exit::Problems);
        }
    };
    logging::start(&config.log);
    let data = DataDir::open(&config.data)?;
    let file = source.file.as_ref().map_or_else(|| "none".into(), |path| path.display().to_string());
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        config = file,
        data = %config.data.display(),
        upstreams = config.upstreams.len(),
        "starting"
    );
    let runtime = runtime()?;
    let served = runtime.block_on(Server { source, text, config, data }.run());
    // A thread stuck in a file system must not keep the process.
    runtime.shutdown_timeout(CLOSE);
    served.map(|()| Exit::Ok)
}

struct Server {
    source: Source,
    text: String,
    config: Config,
    data: DataDir,
}

impl Server {
    async fn run(self) -> anyhow::Result<()> {
        let Self { source, text, config, data } = self;
        // Before anything is up, so that no signal finds nobody listening.
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let hangup = signal(SignalKind::hangup())?;
        let listeners = open(&config.listen, "clients")?;
        let admin_listener = open(&[Listen::plain(config.admin)], "operators")?;
        let house = Arc::new(House::open(&config, &data).await?);
        let (stop, stopping) = watch::channel(false);
        let (stop_admin, stopping_admin) = watch::channel(false);
        let draining = Arc::new(AtomicBool::new(false));

        let token = Token::default();
        if let Some(source) = &config.admin_token {
            token.store(Some(Arc::new(source.read().context("cannot read `admin_token`")?)));
        }
        let reload = ReloadMetric::default();
        let reloader = Reloader {
            source,
            upstreams: Arc::clone(&house.upstreams),
            identities: listeners.iter().filter_map(|listener| listener.tls().cloned()).collect(),
            token: Arc::clone(&token),
            metric: reload.clone(),
            state: State::new(text, config.clone()),
        };
        let front = Arc::new(tidegate_front::Metrics::default());
        let mut registry = Registry::default();
        house.register(&mut registry);
        let prefixed = registry.sub_registry_with_prefix("tidegate");
        front.register(prefixed);
        reload.register(prefixed);
        let admin = admin(&house, registry, (config.admin, token), &draining);
        let app = tidegate_front::app(site(&house, &draining), &front);

        let limits = within_descriptors(config.limits.front());
        let mut clients = serve(listeners, app, limits, &stopping);
        let mut operators =
            serve(admin_listener, tidegate_front::caught(admin), config.limits.admin(), &stopping_admin);
        let reloading = tokio::spawn(reloader.run(hangup));

        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            Some(ended) = clients.join_next() => ended??,
            Some(ended) = operators.join_next() => ended??,
        }
        tracing::info!("draining");
        draining.store(true, Ordering::Release);
        stop.send_replace(true);
        while let Some(ended) = clients.join_next().await {
            ended??;
        }
        stop_admin.send_replace(true);
        while let Some(ended) = operators.join_next().await {
            ended??;
        }
        reloading.abort();
        if timeout(CLOSE, house.store.shutdown()).await.is_err() {
            tracing::warn!("the rooms took too long to close");
        }
        tracing::info!("stopped");
        Ok(())
    }
}

fn open(listen: &[Listen], whom: &'static str) -> anyhow::Result<Vec<Listener>> {
    let mut listeners = Vec::new();
    for listen in listen {
        let listener = Listener::open(listen)?;
        tracing::info!(address = %listener.address(), tls = listener.tls().is_some(), "listening for {whom}");
        listeners.push(listener);
    }
    Ok(listeners)
}

fn serve(
    listeners: Vec<Listener>,
    app: RoomService,
    limits: tidegate_front::Limits,
    shutdown: &watch::Receiver<bool>,
) -> JoinSet<Result<(), tidegate_front::ListenError>> {
    let admission = Admission::new(limits.connections, limits.connections_per_address);
    let serving = Serving { app, limits: Arc::new(limits), admission, shutdown: shutdown.clone() };
    let mut tasks = JoinSet::new();
    for listener in listeners {
        tasks.spawn(listener.serve(serving.clone()));
    }
    tasks
}

fn site(house: &Arc<House>, draining: &Arc<AtomicBool>) -> Site {
    let upstreams = Arc::clone(&house.upstreams);
    let draining = Arc::clone(draining);
    Site {
        doors: House::doors(),
        mounts: house.mounts(),
        allowed: Box::new(move |name| upstreams.get(name).is_some()),
        // The rooms are open before a listener is served; upstreams don't count.
        ready: Box::new(
            move || if draining.load(Ordering::Acquire) { Err("draining".into()) } else { Ok(()) },
        ),
    }
}

fn admin(
    house: &Arc<House>,
    registry: Registry,
    (address, token): (SocketAddr, Token),
    draining: &Arc<AtomicBool>,
) -> RoomService {
    let upstreams = Arc::clone(&house.upstreams);
    let (status_of, draining, started) = (Arc::clone(house), Arc::clone(draining), Instant::now());
    let admin = Admin {
        gate: Gate {
            loopback: address.ip().is_loopback(),
            token: Box::new(move || token.load().as_ref().map(|token| token.expose().to_owned())),
        },
        registry,
        rooms: house.inspected(),
        upstream: Box::new(move |name| upstreams.get(name).map(|client| about(&client))),
        status: Box::new(move || Status {
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_seconds: started.elapsed().as_secs(),
            not_ready: if draining.load(Ordering::Acquire) { "draining".into() } else { String::new() },
            upstreams: status_of.upstreams.hosts().iter().map(ToString::to_string).collect(),
            tiers: tiers(&status_of.store),
        }),
    };
    admin.service()
}

/// Whose credential and budget a request to an upstream has.
fn about(client: &Client) -> serde_json::Value {
    let budget = &client.config().budget;
    serde_json::json!({
        "host": client.name().as_str(),
        "credential": if client.credential().is_some() { "ours, for what a proven caller asked" } else { "the caller's own" },
        "budget": {
            "per_minute": budget.per_minute,
            "concurrent": budget.concurrent,
            "per_credential": budget.per_credential,
            "remaining": client.budget_remaining(),
        },
    })
}

/// Raises the limit on open files as far as it goes; where that is not enough
/// for the configured connections, fewer are accepted.
fn within_descriptors(mut limits: tidegate_front::Limits) -> tidegate_front::Limits {
    let now = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: now.maximum, maximum: now.maximum };
    let most = if setrlimit(Resource::Nofile, raised).is_ok() { now.maximum } else { now.current };
    let Some(most) = most else { return limits };
    let free = most.saturating_sub(OTHER_DESCRIPTORS).max(most / 2);
    let free = usize::try_from(free).unwrap_or(usize::MAX);
    if free < limits.connections {
        let wanted = limits.connections;
        tracing::warn!(
            wanted,
            connections = free,
            "the limit on open files is too low for limits.connections; raise it (ulimit -n)"
        );
        limits.connections = free;
    }
    limits
}
