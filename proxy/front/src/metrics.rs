//! What the front counts.

use std::time::Duration;

use http::StatusCode;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};
use tidegate_http::Outcome;

/// Counters of requests; [`Metrics::register`] makes them visible.
#[derive(Debug)]
pub struct Metrics {
    requests: Family<RequestLabels, Counter>,
    seconds: Family<ProtocolLabels, Histogram, fn() -> Histogram>,
    plaintext: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    protocol: &'static str,
    outcome: &'static str,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProtocolLabels {
    protocol: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        let buckets = || {
            Histogram::new([
                0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
                300.0,
            ])
        };
        Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(buckets),
            plaintext: Counter::default(),
        }
    }
}

impl Metrics {
    /// Adds the metrics to a registry (which adds the `tidegate_` prefix).
    pub fn register(&self, registry: &mut Registry) {
        registry.register("requests", "Requests answered", self.requests.clone());
        registry.register(
            "request_seconds",
            "Time from a request's head to the end of its answer",
            self.seconds.clone(),
        );
        registry.register(
            "plaintext_credentials",
            "Requests with a credential over plain HTTP from another machine",
            self.plaintext.clone(),
        );
    }

    pub(crate) fn request(
        &self,
        protocol: &'static str,
        outcome: Outcome,
        status: StatusCode,
        took: Duration,
    ) {
        let labels = RequestLabels { protocol, outcome: outcome.as_str(), status: status.as_u16() };
        self.requests.get_or_create(&labels).inc();
        self.seconds.get_or_create(&ProtocolLabels { protocol }).observe(took.as_secs_f64());
    }

    pub(crate) fn plaintext(&self) {
        self.plaintext.inc();
    }
}
