//! What the refresh of references did, for the metrics endpoint.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefreshLabels {
    protocol: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProtocolLabels {
    protocol: &'static str,
}

/// How a look at an upstream's references ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefreshResult {
    /// Nothing had moved.
    Unchanged,
    /// Something had, and what it needed was fetched and published.
    Changed,
    /// The upstream refused the credential.
    Denied,
    /// The upstream was sick; the references are as they were.
    Error,
    /// Put off: the budget had nothing left for it.
    Deferred,
}

impl RefreshResult {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Changed => "changed",
            Self::Denied => "denied",
            Self::Error => "error",
            Self::Deferred => "deferred",
        }
    }
}

/// `tidegate_refresh_total` and `tidegate_reference_age_seconds`.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    refreshes: Family<RefreshLabels, Counter>,
    age: Family<ProtocolLabels, Gauge>,
}

impl Metrics {
    /// Adds the metrics to the registry (which adds the `tidegate_` prefix).
    pub fn register(&self, registry: &mut Registry) {
        registry.register("refresh", "Looks at references upstream, by result", self.refreshes.clone());
        registry.register(
            "reference_age_seconds",
            "Age of the oldest reference in use, since the upstream was last seen to agree",
            self.age.clone(),
        );
    }

    /// Counts one look.
    pub fn refreshed(&self, protocol: &'static str, result: RefreshResult) {
        self.refreshes.get_or_create(&RefreshLabels { protocol, result: result.as_str() }).inc();
    }

    /// Sets the age of the oldest reference in use.
    pub fn oldest(&self, protocol: &'static str, age: Duration) {
        let seconds = i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
        self.age.get_or_create(&ProtocolLabels { protocol }).set(seconds);
    }
}
