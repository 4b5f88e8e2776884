//! What the cache did for a request, in the words of RFC 9211.

use std::{fmt::Write as _, time::Duration};

use http::HeaderValue;

/// What the cache did for one request.
///
/// The only list of these words: header, metric label and log field all read
/// it, so they cannot drift apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// Served from a tier, fresh.
    Hit,
    /// Served from a tier past its freshness.
    Stale,
    /// Joined a fetch that another request had started.
    Collapsed,
    /// Fetched from the upstream for this request.
    Miss,
    /// Served from a tier after the upstream was asked and had nothing newer.
    Revalidated,
    /// Passed through, not kept.
    Relay,
    /// Answered by tidegate itself; no cache was involved.
    Bypass,
    /// Refused: by the upstream, a policy or a limit.
    Denied,
    /// Failed.
    Error,
}

impl Outcome {
    /// The word for metric labels and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Stale => "stale",
            Self::Collapsed => "collapsed",
            Self::Miss => "miss",
            Self::Revalidated => "revalidated",
            Self::Relay => "relay",
            Self::Bypass => "bypass",
            Self::Denied => "denied",
            Self::Error => "error",
        }
    }
}

/// How a response came to be. A room leaves it in the response's extensions;
/// the front turns it into `Cache-Status`, `Age` and
/// `Tidegate-Generation`, a metric and a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// What the cache did.
    pub outcome: Outcome,
    /// How long ago the upstream was last seen to agree; on cached answers.
    pub age: Option<Duration>,
    /// How long it stays fresh, in seconds; negative once it is stale.
    pub ttl: Option<i64>,
    /// A word for the `detail` parameter: `relay`, `unverified`.
    pub detail: Option<&'static str>,
    /// The mirror's generation the answer was made from (git only).
    pub generation: Option<u64>,
}

impl Served {
    /// An answer with nothing more to say than its outcome.
    pub const fn new(outcome: Outcome) -> Self {
        Self { outcome, age: None, ttl: None, detail: None, generation: None }
    }

    /// The `Cache-Status` member (RFC 9211 section 2).
    pub fn cache_status(&self) -> HeaderValue {
        let mut text = String::from(match self.outcome {
            Outcome::Hit | Outcome::Stale => "tidegate; hit",
            Outcome::Collapsed => "tidegate; fwd=miss; collapsed",
            Outcome::Miss => "tidegate; fwd=miss; stored",
            Outcome::Revalidated => "tidegate; hit; fwd=stale",
            Outcome::Relay => "tidegate; fwd=bypass",
            Outcome::Bypass => "tidegate; detail=local",
            Outcome::Denied => "tidegate; detail=denied",
            Outcome::Error => "tidegate; detail=error",
        });
        if let Some(ttl) = self.ttl {
            let _ = write!(text, "; ttl={ttl}");
        }
        if let Some(detail) = self.detail {
            let _ = write!(text, "; detail={detail}");
        }
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("tidegate"))
    }
}

impl From<Outcome> for Served {
    fn from(outcome: Outcome) -> Self {
        Self::new(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_hit_says_how_stale() {
        let served =
            Served { ttl: Some(-30), age: Some(Duration::from_secs(150)), ..Served::new(Outcome::Stale) };
        assert_eq!(served.cache_status(), "tidegate; hit; ttl=-30");
    }

    #[test]
    fn a_relay_names_itself() {
        let served = Served { detail: Some("relay"), ..Served::new(Outcome::Relay) };
        assert_eq!(served.cache_status(), "tidegate; fwd=bypass; detail=relay");
    }
}
