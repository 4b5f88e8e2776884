//! A repository's identity: what two spellings of one URL have in common.

use std::{fmt, sync::Arc};

use crate::Upstream;

/// Which spellings an upstream takes for the same repository.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Folding {
    /// `Org/App` is `org/app`.
    pub ignore_case: bool,
    /// `app.git` is `app`.
    pub git_suffix: bool,
}

/// One repository of one upstream.
///
/// The path has no leading or trailing slash and is folded the way its
/// upstream folds it, so that all spellings share one mirror. It names content,
/// never a verdict: a verdict belongs to the spelling that was asked for.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Repository {
    upstream: Upstream,
    path: Arc<str>,
}

impl Repository {
    /// The repository at `path` (slashes at either end don't count).
    pub fn new(upstream: Upstream, path: &str, folding: Folding) -> Self {
        let mut path = path.trim_matches('/').to_owned();
        if folding.ignore_case {
            path.make_ascii_lowercase();
        }
        if folding.git_suffix
            && let Some(bare) = path.strip_suffix(".git")
            && !bare.is_empty()
            && !bare.ends_with('/')
        {
            path.truncate(bare.len());
        }
        Self { upstream, path: path.into() }
    }

    /// Who hosts it.
    pub fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// Its path on the upstream: `org/app`.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.upstream, self.path)
    }
}

impl fmt::Debug for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(path: &str, folding: Folding) -> String {
        Repository::new("h".parse().unwrap(), path, folding).to_string()
    }

    #[test]
    fn spellings_fold_only_where_the_upstream_folds() {
        let folds = Folding { ignore_case: true, git_suffix: true };
        for path in ["/Org/App.git", "org/app", "ORG/app.GIT/", "/org/app/"] {
            assert_eq!(repository(path, folds), "h/org/app", "{path}");
        }
        assert_eq!(repository("/Org/App.git/", Folding::default()), "h/Org/App.git");
        assert_eq!(repository("/.git", folds), "h/.git");
    }
}
