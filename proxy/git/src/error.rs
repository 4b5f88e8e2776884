//! What can go wrong with a git request, in terms that decide what the client
//! is told ([`crate::rescue`] has the table).

use std::{sync::Arc, time::Duration};

use gix_hash::ObjectId;
use tidegate_cache::Refusal;
use tidegate_name::Upstream;

/// A git request that did not end in the answer it was for.
///
/// It can be cloned: all who waited for the same work get the same.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The upstream refused this credential.
    #[error("{upstream} answered {} for this repository and credential", .refusal.status.as_u16())]
    Refused {
        /// Who refused.
        upstream: Upstream,
        /// What it said.
        refusal: Refusal,
    },
    /// Too many refused logins came from this address, or for this upstream.
    #[error("too many refused logins; this credential is not tried at {upstream} yet")]
    Metered {
        /// Who is not asked.
        upstream: Upstream,
        /// When it may be tried again.
        wait: Duration,
    },
    /// The upstream is away, and anonymous callers were refused before.
    #[error("{upstream} can't be asked right now; a credential that it accepted before is still served")]
    Challenge {
        /// Who is away.
        upstream: Upstream,
    },
    /// The upstream is away or may not be asked, and nothing can be served
    /// without it.
    #[error("{upstream} can't be asked right now: {}", .sick.why)]
    Away {
        /// Who is away.
        upstream: Upstream,
        /// How.
        sick: Sick,
    },
    /// A want that nobody knows.
    #[error("upload-pack: not our ref {0}")]
    NotOurRef(ObjectId),
    /// The upstream answered with an `ERR` packet; its text.
    #[error("{0}")]
    Remote(Arc<str>),
    /// The request makes no sense.
    #[error("{0}")]
    BadRequest(String),
    /// The request names something that doesn't exist here; the text goes into
    /// an `ERR` packet.
    #[error("{0}")]
    BadFetch(String),
    /// The request is over a cap.
    #[error("the request body is too large: limits.git_body and limits.git_body_ratio say how much is read")]
    TooLarge,
    /// The client's body broke off.
    #[error("the request body broke off: {0}")]
    Cut(String),
    /// Too many packs are being built.
    #[error("too many packs are being built; try again in {} s", .wait.as_secs())]
    Busy {
        /// When to try again.
        wait: Duration,
    },
    /// The credential belongs to the connection, not to the request.
    #[error(
        "NTLM and Negotiate authenticate a connection, which a cache can't pass on; use a token or password"
    )]
    Scheme,
    /// Our own fault: disk, a broken mirror, a bug. The text is for the log.
    #[error("tidegate failed on this repository; its log says why")]
    Internal(Arc<str>),
}

/// How an upstream is sick: it gave no usable answer, which says nothing about
/// the repository or the caller.
#[derive(Clone, Debug)]
pub(crate) struct Sick {
    /// What happened, without secrets.
    pub(crate) why: Arc<str>,
    /// When it makes sense to ask again.
    pub(crate) wait: Option<Duration>,
    /// Whether the reason is a limit: the upstream's or our own budget.
    pub(crate) limited: bool,
    /// What is behind it, for the log: clients are told no addresses.
    pub(crate) cause: Option<Arc<str>>,
}

impl Sick {
    pub(crate) fn new(why: impl Into<Arc<str>>) -> Self {
        Self { why: why.into(), wait: None, limited: false, cause: None }
    }

    /// All that is known of it, for the operator.
    pub(crate) fn in_full(&self) -> String {
        self.cause.as_ref().map_or_else(|| self.why.to_string(), |cause| format!("{}: {cause}", self.why))
    }

    /// Not asked, since too many logins were refused.
    pub(crate) fn metered(wait: Duration) -> Self {
        let why = "too many logins were refused, so that one more is not tried yet";
        Self { wait: Some(wait), limited: true, ..Self::new(why) }
    }
}

impl From<tidegate_upstream::Error> for Sick {
    fn from(error: tidegate_upstream::Error) -> Self {
        let limited = matches!(
            error,
            tidegate_upstream::Error::Budget { .. } | tidegate_upstream::Error::Limited { .. }
        );
        let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
        let causes: Vec<String> = causes.map(ToString::to_string).collect();
        let cause = (!causes.is_empty()).then(|| causes.join(": ").into());
        Self { why: error.to_string().into(), wait: error.retry_after(), limited, cause }
    }
}

impl Error {
    /// For failures that only the log may know more of.
    pub(crate) fn internal(error: impl std::fmt::Display) -> Self {
        Self::Internal(error.to_string().into())
    }

    /// Whether the client is told inside the protocol, by an `ERR` packet in a
    /// 200, as git itself does where a pack was asked for.
    pub(crate) fn speaks_git(&self) -> bool {
        matches!(self, Self::NotOurRef(_) | Self::Remote(_) | Self::BadFetch(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_gets_the_cause_and_the_client_does_not() {
        let source = Arc::new(std::io::Error::other("10.0.0.5:3000 refuses"));
        let upstream = "git.test".parse().unwrap();
        let sick = Sick::from(tidegate_upstream::Error::Connect { upstream, source });
        assert_eq!(sick.in_full(), "git.test can't be connected to: 10.0.0.5:3000 refuses");
        let upstream = "git.test".parse().unwrap();
        assert!(!Error::Away { upstream, sick }.to_string().contains("10.0.0.5"));
    }
}
