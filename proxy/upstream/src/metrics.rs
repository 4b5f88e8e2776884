//! What is counted of upstreams: requests by kind and status, and what the
//! budget has left.

use std::{fmt, sync::Arc};

use http::StatusCode;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _},
    metrics::{MetricType, counter::Counter, family::Family, gauge::ConstGauge},
    registry::Registry,
};
use tidegate_name::Upstream;

use crate::{Error, Kind, upstreams::Directory};

/// Counters shared by all upstreams.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    requests: Family<RequestLabels, Counter>,
    failed_reloads: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    upstream: String,
    kind: &'static str,
    status: String,
}

impl Metrics {
    pub(crate) fn answered(&self, upstream: &Upstream, kind: Kind, status: StatusCode) {
        self.count(upstream, kind, status.as_str());
    }

    pub(crate) fn failed(&self, upstream: &Upstream, kind: Kind, error: &Error) {
        self.count(upstream, kind, error.metric_status());
    }

    pub(crate) fn reload_failed(&self) {
        self.failed_reloads.inc();
    }

    fn count(&self, upstream: &Upstream, kind: Kind, status: &str) {
        let labels =
            RequestLabels { upstream: upstream.to_string(), kind: kind.as_str(), status: status.to_owned() };
        self.requests.get_or_create(&labels).inc();
    }

    pub(crate) fn register(&self, registry: &mut Registry, directory: Arc<Directory>) {
        registry.register(
            "tidegate_upstream_requests",
            "Requests to upstreams, those that our budget held back among them",
            self.requests.clone(),
        );
        registry.register(
            "tidegate_upstream_secret_failures",
            "Changed credential or CA files that could not be used; the old content stays in force",
            self.failed_reloads.clone(),
        );
        registry.register_collector(Box::new(BudgetGauge(directory)));
    }
}

/// Computes the gauge when it is read, since time alone changes it.
struct BudgetGauge(Arc<Directory>);

impl fmt::Debug for BudgetGauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BudgetGauge")
    }
}

impl Collector for BudgetGauge {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Requests that the budget of this minute has left";
        let mut family =
            encoder.encode_descriptor("tidegate_budget_remaining", help, None, MetricType::Gauge)?;
        for client in self.0.clients() {
            let labels = [("upstream", client.name().as_str())];
            let gauge = ConstGauge::new(i64::from(client.budget_remaining()));
            gauge.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
