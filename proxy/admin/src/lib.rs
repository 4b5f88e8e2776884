//! The operator's room: `/metrics`, `/status` and `/api/v1/`, on a listener of
//! its own.
//!
//! What it tells and does belongs to others: rooms are asked through
//! [`tidegate_cache::Inspect`], the rest comes in as closures. No protocol here.

mod address;
mod api;
mod gate;
mod status;
mod tiers;

use std::sync::Arc;

use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
};
use prometheus_client::registry::Registry;
use tidegate_cache::Inspect;
use tidegate_http::{Body, Outcome, RoomService, full, local, text};
use tidegate_name::Upstream;
use tower::service_fn;

pub use gate::Gate;
pub use status::{Status, TierStatus};
pub use tiers::Tiers;

/// Describes an upstream to the operator; none if it is not configured.
pub type About = Box<dyn Fn(&Upstream) -> Option<serde_json::Value> + Send + Sync>;

/// The admin listener's application.
pub struct Admin {
    /// Who may ask.
    pub gate: Gate,
    /// What `/metrics` shows.
    pub registry: Registry,
    /// The protocol rooms.
    pub rooms: Vec<Arc<dyn Inspect>>,
    /// What is known of an upstream, if it is configured.
    pub upstream: About,
    /// What `/status` shows.
    pub status: Box<dyn Fn() -> Status + Send + Sync>,
}

impl Admin {
    /// The service to listen with.
    pub fn service(self) -> RoomService {
        let admin = Arc::new(self);
        RoomService::new(service_fn(move |request| {
            let admin = Arc::clone(&admin);
            async move { Ok(admin.answer(request).await) }
        }))
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (parts, _) = request.into_parts();
        if let Err(refusal) = self.gate.admits(&parts) {
            return *refusal;
        }
        // Routes are compared whole: nothing below a known path is let in with it.
        let wanted = match parts.uri.path() {
            "/metrics" | "/status" | "/api/v1/explain" => [Method::GET, Method::HEAD],
            "/api/v1/purge" | "/api/v1/fsck" | "/api/v1/warm" => [Method::POST, Method::POST],
            _ => {
                return local(
                    StatusCode::NOT_FOUND,
                    "there is /metrics, /status and /api/v1/{explain,purge,fsck,warm}",
                );
            }
        };
        if !wanted.contains(&parts.method) {
            return local(StatusCode::METHOD_NOT_ALLOWED, &format!("use {}", wanted[0]));
        }
        match parts.uri.path() {
            "/metrics" => self.metrics(),
            "/status" => (self.status)().answer(&parts),
            path => self.api(path, parts.uri.query().unwrap_or_default()).await,
        }
    }

    fn metrics(&self) -> Response<Body> {
        let mut page = String::new();
        if prometheus_client::encoding::text::encode(&mut page, &self.registry).is_err() {
            return text(StatusCode::INTERNAL_SERVER_ERROR, Outcome::Error, "the metrics can't be written");
        }
        typed("application/openmetrics-text; version=1.0.0; charset=utf-8", page)
    }
}

fn json(value: &serde_json::Value) -> Response<Body> {
    typed("application/json", format!("{value:#}\n"))
}

fn typed(kind: &'static str, page: String) -> Response<Body> {
    let mut response = Response::new(full(page));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests;
