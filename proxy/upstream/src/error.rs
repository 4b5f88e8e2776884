//! What can go wrong on the way to an upstream.

use std::{net::IpAddr, sync::Arc, time::Duration};

use http::StatusCode;
use tidegate_name::Upstream;

use crate::breaker::Sick;

/// Why something failed, below the words an operator acts on.
pub type Cause = Arc<dyn std::error::Error + Send + Sync>;

/// A request to an upstream that did not end in a usable answer. An answer with
/// any status is no error.
///
/// Each variant is something an operator can act on; none carries a secret, a
/// path or a query. It can be cloned, so that all who waited for one request
/// get the same.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The name resolves to an address that must not be connected to.
    #[error(
        "{upstream} is at {address}, which is no public address; if that is right, set allow_private: true for it"
    )]
    Guard {
        /// Who was asked.
        upstream: Upstream,
        /// The address that was refused.
        address: IpAddr,
    },
    /// No connection: name resolution, TCP or the egress proxy.
    #[error("{upstream} can't be connected to")]
    Connect {
        /// Who was asked.
        upstream: Upstream,
        /// Why.
        source: Cause,
    },
    /// No TLS session.
    #[error("TLS with {upstream} failed; a private CA is given with the key `ca`")]
    Tls {
        /// Who was asked.
        upstream: Upstream,
        /// Why.
        source: Cause,
    },
    /// Connected, but no answer in time.
    #[error("{upstream} did not answer within {} s", .after.as_secs())]
    Timeout {
        /// Who was asked.
        upstream: Upstream,
        /// The deadline.
        after: Duration,
    },
    /// The connection broke, or spoke no HTTP, before the answer's headers were
    /// there.
    #[error("{upstream} broke off before it answered")]
    Broken {
        /// Who was asked.
        upstream: Upstream,
        /// Why.
        source: Cause,
    },
    /// A redirect that isn't followed.
    #[error("{upstream} answered {} with a redirect to {location}, which is not followed: {reason}", .status.as_u16())]
    Redirect {
        /// Who answered.
        upstream: Upstream,
        /// Its status.
        status: StatusCode,
        /// The host it points to; never a path or query, which may carry a
        /// secret.
        location: String,
        /// Why it isn't followed, and what to do.
        reason: &'static str,
    },
    /// Our own budget for this upstream is spent.
    #[error("the request budget for {upstream} is spent; try again in {} s, or raise its budget", seconds(.retry_after))]
    Budget {
        /// Who would have been asked.
        upstream: Upstream,
        /// When there will be some again.
        retry_after: Duration,
    },
    /// The upstream limited this credential, or us as a whole. It was not asked.
    #[error("{upstream} limits our requests; try again in {} s", seconds(.retry_after))]
    Limited {
        /// Who limits.
        upstream: Upstream,
        /// When the limit ends.
        retry_after: Duration,
    },
    /// It failed several times in a row and is left alone for a moment. It was
    /// not asked.
    #[error("{upstream} failed repeatedly; it is asked again in {} s", seconds(.retry_after))]
    Breaker {
        /// Who is left alone.
        upstream: Upstream,
        /// When it is tried again.
        retry_after: Duration,
    },
    /// The credential authenticates a TCP connection, and ours are shared.
    #[error("NTLM and Negotiate can't be used for {upstream} through a cache; use Basic or a token")]
    ConnectionBound {
        /// Who would have been asked.
        upstream: Upstream,
    },
    /// What was to be sent is no HTTP request.
    #[error("this can't be sent to {upstream}: {reason}")]
    Unsendable {
        /// Who would have been asked.
        upstream: Upstream,
        /// Why not.
        reason: &'static str,
    },
}

impl Error {
    /// Whether the upstream is away or unwell, so that what is cached may be
    /// served past its time. False where it did answer, or the request is at
    /// fault.
    pub const fn is_sick(&self) -> bool {
        !matches!(self, Self::Redirect { .. } | Self::ConnectionBound { .. } | Self::Unsendable { .. })
    }

    /// When to try again, if that is known.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Budget { retry_after, .. }
            | Self::Limited { retry_after, .. }
            | Self::Breaker { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }

    /// The word for the `status` label.
    pub const fn metric_status(&self) -> &'static str {
        match self {
            Self::Guard { .. } => "guard",
            Self::Tls { .. } => "tls",
            Self::Timeout { .. } => "timeout",
            Self::Budget { .. } | Self::Limited { .. } => "budget",
            _ => "connect",
        }
    }

    /// The upstream it is about.
    pub const fn upstream(&self) -> &Upstream {
        match self {
            Self::Guard { upstream, .. }
            | Self::Connect { upstream, .. }
            | Self::Tls { upstream, .. }
            | Self::Timeout { upstream, .. }
            | Self::Broken { upstream, .. }
            | Self::Redirect { upstream, .. }
            | Self::Budget { upstream, .. }
            | Self::Limited { upstream, .. }
            | Self::Breaker { upstream, .. }
            | Self::ConnectionBound { upstream }
            | Self::Unsendable { upstream, .. } => upstream,
        }
    }

    /// Whether it tells of the upstream's health (the breaker counts these).
    pub(crate) const fn is_failure(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Tls { .. } | Self::Timeout { .. } | Self::Broken { .. })
    }

    /// How much of the upstream such a failure concerns: where a connection is
    /// had, one large repository may be all that takes too long.
    pub(crate) const fn reach(&self) -> Sick {
        match self {
            Self::Connect { .. } | Self::Tls { .. } => Sick::Whole,
            _ => Sick::Part,
        }
    }
}

/// Whole seconds to wait, at least one.
fn seconds(wait: &Duration) -> u128 {
    wait.as_millis().div_ceil(1000).max(1)
}
