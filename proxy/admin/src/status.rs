//! The status page: what a person looks at first.

use std::fmt::Write as _;

use http::{Response, header::ACCEPT, request::Parts};
use serde::Serialize;
use tidegate_http::Body;

/// The state of the appliance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The version of the program.
    pub version: String,
    /// Seconds since it started.
    pub uptime_seconds: u64,
    /// Why it is not ready; empty when it is.
    pub not_ready: String,
    /// The configured upstreams.
    pub upstreams: Vec<String>,
    /// The store's tiers.
    pub tiers: Vec<TierStatus>,
}

/// The state of one tier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TierStatus {
    /// `memory` or `disk`.
    pub tier: &'static str,
    /// What is in it.
    pub bytes: u64,
    /// What was evicted since the start, in entries.
    pub evictions: u64,
}

impl Status {
    /// JSON where that is asked for, text otherwise.
    pub(crate) fn answer(&self, request: &Parts) -> Response<Body> {
        let accept = request.headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if accept.contains("json") || request.uri.query() == Some("format=json") {
            return crate::json(&serde_json::to_value(self).unwrap_or_default());
        }
        crate::typed("text/plain", self.page())
    }

    fn page(&self) -> String {
        let ready = if self.not_ready.is_empty() { "ready" } else { &self.not_ready };
        let mut page = format!("tidegate {}\nstate: {ready}\nup: {} s\n", self.version, self.uptime_seconds);
        for tier in &self.tiers {
            let TierStatus { tier, bytes, evictions } = tier;
            // Writing to a String can't fail.
            let _ = writeln!(page, "{tier}: {bytes} bytes, {evictions} evicted");
        }
        page.push_str("upstreams:\n");
        for upstream in &self.upstreams {
            let _ = writeln!(page, "  {upstream}");
        }
        page
    }
}
