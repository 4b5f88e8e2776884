//! Which answer a client gets when its request could not be relayed.

use http::{Response, StatusCode};
use tidegate_http::{Body, Outcome, retry_after, text};
use tidegate_upstream::Error;

/// The room's table. The error's own text names the upstream and what to do,
/// and carries no secret.
pub(crate) fn answer(error: &Error) -> Response<Body> {
    let (status, outcome) = match error {
        Error::Timeout { .. } => (StatusCode::GATEWAY_TIMEOUT, Outcome::Error),
        Error::Budget { .. } | Error::Limited { .. } => (StatusCode::TOO_MANY_REQUESTS, Outcome::Denied),
        Error::Breaker { .. } => (StatusCode::SERVICE_UNAVAILABLE, Outcome::Error),
        Error::ConnectionBound { .. } | Error::Unsendable { .. } => {
            (StatusCode::BAD_REQUEST, Outcome::Denied)
        }
        Error::Guard { .. }
        | Error::Connect { .. }
        | Error::Tls { .. }
        | Error::Broken { .. }
        | Error::Redirect { .. } => (StatusCode::BAD_GATEWAY, Outcome::Error),
    };
    let response = text(status, outcome, &error.to_string());
    match error.retry_after() {
        Some(wait) => retry_after(response, wait),
        None => response,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_spent_budget_says_when_to_come_back() {
        let upstream = "git.test".parse().unwrap();
        let error = Error::Budget { upstream, retry_after: Duration::from_millis(1_500) };
        let response = answer(&error);
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()["retry-after"], "2");
    }

    #[test]
    fn a_silent_upstream_is_a_504() {
        let upstream = "git.test".parse().unwrap();
        let response = answer(&Error::Timeout { upstream, after: Duration::from_secs(30) });
        assert_eq!(response.status(), 504);
        assert!(response.headers().get("retry-after").is_none());
    }
}
