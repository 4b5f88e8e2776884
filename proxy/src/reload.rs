//! Reading the configuration, certificates and secrets again while we serve.
//!
//! Content is compared, not times, so that symlink swaps count and touched
//! files don't. What is bad keeps the old, is logged once and counted.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use tidegate_front::TlsIdentity;
use tidegate_upstream::{SecretText, Upstreams};
use tokio::{
    signal::unix::Signal,
    time::{MissedTickBehavior, interval},
};

use crate::config::{Config, Source};

/// How often everything is looked at; the promise is 60 s.
const EVERY: Duration = Duration::from_secs(10);

/// The admin token as it is now.
pub(crate) type Token = Arc<ArcSwapOption<SecretText>>;

/// `tidegate_config_reload_total{result}`.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReloadMetric(Family<ResultLabel, Counter>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

impl ReloadMetric {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "config_reload",
            "Changes of configuration, certificates and secrets",
            self.0.clone(),
        );
    }

    fn count(&self, result: &'static str) {
        self.0.get_or_create(&ResultLabel { result }).inc();
    }
}

/// What is watched, and what a change is handed to.
pub(crate) struct Reloader {
    pub(crate) source: Source,
    pub(crate) upstreams: Arc<Upstreams>,
    pub(crate) identities: Vec<Arc<TlsIdentity>>,
    pub(crate) token: Token,
    pub(crate) metric: ReloadMetric,
    pub(crate) state: Mutex<State>,
}

/// What was seen last.
pub(crate) struct State {
    text: String,
    running: Config,
    complaints: Vec<String>,
}

impl State {
    /// As it was at the start.
    pub(crate) fn new(text: String, running: Config) -> Mutex<Self> {
        Mutex::new(Self { text, running, complaints: Vec::new() })
    }
}

impl Reloader {
    /// Looks every few seconds and at every SIGHUP, for ever.
    pub(crate) async fn run(self, mut hangup: Signal) {
        let this = Arc::new(self);
        let busy = Arc::new(AtomicBool::new(false));
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let asked = tokio::select! {
                _ = ticks.tick() => false,
                Some(()) = hangup.recv() => true,
            };
            // A file system that hangs must not pile up threads.
            if busy.swap(true, Ordering::AcqRel) {
                continue;
            }
            let (this, busy) = (Arc::clone(&this), Arc::clone(&busy));
            tokio::task::spawn_blocking(move || {
                this.look(asked);
                busy.store(false, Ordering::Release);
            });
        }
    }

    /// Takes over what changed. Blocks.
    pub(crate) fn look(&self, asked: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut complaints = Vec::new();
        let mut changed = self.config(&mut state, &mut complaints);
        for identity in &self.identities {
            match identity.reload() {
                Ok(taken) => changed |= taken,
                Err(error) => complaints.push(format!("listen: {:#}", anyhow::Error::new(error))),
            }
        }
        if let Some(source) = &state.running.admin_token {
            match source.read() {
                Ok(token) if self.token.load().as_deref() != Some(&token) => {
                    self.token.store(Some(Arc::new(token)));
                    changed = true;
                }
                Ok(_) => {}
                Err(error) => complaints.push(format!("admin_token: {error}")),
            }
        }
        complaints.extend(self.upstreams.reload_secrets().iter().map(ToString::to_string));
        if changed || (asked && complaints.is_empty()) {
            self.metric.count("ok");
            tracing::info!("the configuration was read again");
        }
        // Told once, not at every look.
        if asked || complaints != state.complaints {
            for complaint in &complaints {
                tracing::error!("{complaint}; what was there before stays in use");
            }
            if !complaints.is_empty() {
                self.metric.count("error");
            }
        }
        state.complaints = complaints;
    }

    fn config(&self, state: &mut State, complaints: &mut Vec<String>) -> bool {
        let text = match self.source.text() {
            Ok(text) => text,
            Err(problem) => {
                complaints.push(problem.to_string());
                return false;
            }
        };
        if text == state.text {
            return false;
        }
        let new = match self.source.load_text(&text) {
            Ok(new) => new,
            Err(problems) => {
                complaints.extend(problems.iter().map(ToString::to_string));
                return false;
            }
        };
        if let Err(problems) = self.upstreams.reload(new.upstreams.clone()) {
            complaints.extend(problems.iter().map(ToString::to_string));
            return false;
        }
        for table in needs_restart(&state.running, &new) {
            tracing::warn!(
                "`{table}` changed in the configuration; it takes effect when tidegate is restarted"
            );
        }
        if new.admin_token.is_none() {
            self.token.store(None);
        }
        // The rest keeps running as it was started, so it is compared with that.
        state.running.upstreams = new.upstreams;
        state.running.admin_token = new.admin_token;
        state.text = text;
        true
    }
}

fn needs_restart(running: &Config, new: &Config) -> Vec<&'static str> {
    let tables = [
        ("listen", running.listen != new.listen),
        ("admin", running.admin != new.admin),
        ("data", running.data != new.data),
        ("secret", running.secret != new.secret),
        ("access", running.access != new.access),
        ("git", running.git != new.git),
        ("limits", running.limits != new.limits),
        ("store", running.store != new.store),
        ("log", running.log != new.log),
    ];
    tables.into_iter().filter_map(|(name, changed)| changed.then_some(name)).collect()
}
