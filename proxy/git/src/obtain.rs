//! Packs from the upstream: with whose credential they are asked for, and what
//! it means when that one is refused.

use tidegate_http::Body;

use crate::{
    error::{Error, Sick},
    git::Git,
    speak::{Dialect, FetchError, OnBehalf, Speaker, Unseen},
    wire::fetch::FetchRequest,
};

impl Git {
    /// Asks for a pack: with the configured credential, and where that one is
    /// refused, or there is none, with the caller's own, so that who may read is
    /// never worse off for it. A refusal of the caller's own ends its verdict.
    pub(crate) async fn obtain(
        &self,
        speaker: &Speaker,
        behalf: &OnBehalf,
        dialect: &Dialect,
        request: &FetchRequest,
    ) -> Result<Body, Error> {
        let configured = speaker.client.credential().filter(|configured| *configured != behalf.identity);
        if let Some(identity) = configured {
            let ours = OnBehalf { identity, priority: behalf.priority, proves: None };
            match speaker.fetch(&ours, dialect, request).await {
                Err(FetchError::Unseen(Unseen::Denied(refusal))) => {
                    let (upstream, status) = (speaker.upstream(), refusal.status);
                    tracing::warn!(%upstream, %status, "the configured credential was refused a pack; asking with the caller's own");
                }
                fetched => return fetched.map_err(|error| not_fetched(speaker, error)),
            }
        }
        let fetched = speaker.fetch(behalf, dialect, request).await;
        if let Err(FetchError::Unseen(Unseen::Denied(refusal))) = &fetched
            && let Some(asked) = &behalf.proves
        {
            self.access.refuse(asked, refusal.clone(), None);
        }
        fetched.map_err(|error| not_fetched(speaker, error))
    }
}

impl Error {
    /// Whether it says something of one caller's credential only, so that it is
    /// nothing to those who waited for the same.
    pub(crate) fn is_personal(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Away { .. })
    }

    /// The same for one whose credential it was not.
    pub(crate) fn of_another(self) -> Self {
        match self {
            Self::Refused { upstream, .. } => Self::Away {
                upstream,
                sick: Sick::new("those who asked for the same were refused; ask again"),
            },
            other => other,
        }
    }
}

/// A fetch that failed before its answer, as the reader of an error sees it.
fn not_fetched(speaker: &Speaker, error: FetchError) -> Error {
    let upstream = speaker.upstream().clone();
    match error {
        FetchError::Unseen(Unseen::Denied(refusal)) => Error::Refused { upstream, refusal },
        FetchError::Unseen(Unseen::Sick(sick)) => Error::Away { upstream, sick },
        FetchError::Unseen(Unseen::Foreign(why)) => Error::Away { upstream, sick: Sick::new(why) },
        FetchError::Unsupported(what) => Error::BadFetch(what.to_string()),
    }
}
