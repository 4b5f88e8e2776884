//! Decides whether a stored reference may still be served.
//!
//! A reference is a mutable name for immutable content: a git ref, an OCI tag.
//! Content itself is addressed by digest and never goes stale, so nothing here
//! looks at it.
//!
//! Pure: the caller brings the age and acts on the answer. Terms follow
//! RFC 9111 (fresh, stale) and RFC 5861 (stale-while-revalidate,
//! stale-if-error).

use std::time::Duration;

/// How long a reference stays useful after it was last seen upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Served without asking, up to this age.
    pub fresh: Duration,
    /// Then served while a refresh runs, up to this further age.
    pub while_revalidate: Duration,
    /// Served up to this age while the upstream is away.
    pub if_error: Duration,
}

/// What to do with a reference of a given age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Serve it.
    Fresh,
    /// Serve it, and refresh behind the client's back.
    Stale,
    /// Ask the upstream first.
    Expired,
}

impl Lifetime {
    /// The contract's rule: fresh for one interval, served and refreshed
    /// behind for another.
    pub fn of_interval(refresh_every: Duration, if_error: Duration) -> Self {
        Self { fresh: refresh_every, while_revalidate: refresh_every, if_error }
    }

    /// Judges a reference last seen `age` ago; `None` means nobody knows, as
    /// after a restart.
    pub fn judge(self, age: Option<Duration>) -> Freshness {
        match age {
            Some(age) if age < self.fresh => Freshness::Fresh,
            Some(age) if age < self.fresh + self.while_revalidate => Freshness::Stale,
            _ => Freshness::Expired,
        }
    }

    /// Seconds of freshness left; negative once it is stale.
    pub fn ttl(self, age: Duration) -> i64 {
        let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        seconds(self.fresh).saturating_sub(seconds(age))
    }

    /// Whether a reference of this age may be served while the upstream is
    /// away. An unknown age counts from the start of the process.
    pub fn may_outlive_upstream(self, age: Duration) -> bool {
        age <= self.if_error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Lifetime = Lifetime {
        fresh: Duration::from_secs(120),
        while_revalidate: Duration::from_secs(120),
        if_error: Duration::from_secs(3600),
    };

    #[test]
    fn a_reference_is_fresh_then_stale_then_expired() {
        let judge = |seconds| LIFETIME.judge(Some(Duration::from_secs(seconds)));
        assert_eq!(judge(0), Freshness::Fresh);
        assert_eq!(judge(119), Freshness::Fresh);
        assert_eq!(judge(120), Freshness::Stale);
        assert_eq!(judge(239), Freshness::Stale);
        assert_eq!(judge(240), Freshness::Expired);
    }

    #[test]
    fn an_unknown_age_asks_the_upstream_first() {
        assert_eq!(LIFETIME.judge(None), Freshness::Expired);
    }

    #[test]
    fn the_ttl_turns_negative() {
        assert_eq!(LIFETIME.ttl(Duration::from_secs(150)), -30);
    }
}
