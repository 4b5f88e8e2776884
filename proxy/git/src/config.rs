//! The `git` table.

use std::time::Duration;

use serde::Deserialize;

/// Whether a read of refs may be answered before the upstream was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Revalidate {
    /// Within one interval at once; within two, and refreshed behind.
    #[default]
    Stale,
    /// Every read of refs asks the upstream first.
    Always,
}

/// How much history a mirror holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Depth {
    /// What clients ask for decides. Today that means `full`.
    #[default]
    Auto,
    /// Complete history.
    Full,
}

/// How git repositories are kept in step with their upstream.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)] // unknown keys are collected by the loader, with their paths
pub struct GitConfig {
    /// Pause between two looks at the upstream's refs.
    #[serde(with = "humantime_serde")]
    pub refresh_every: Duration,
    /// Whether reads wait for the upstream.
    pub revalidate: Revalidate,
    /// How long refs may still be served while the upstream is away.
    #[serde(with = "humantime_serde")]
    pub stale_if_error: Duration,
    /// How long the old tip of a moved or deleted ref stays fetchable.
    #[serde(with = "humantime_serde")]
    pub keep_superseded: Duration,
    /// Prefixes of refs left out of advertisements. They stay fetchable: this
    /// saves bytes, it protects nothing.
    pub hide: Vec<String>,
    /// How much history a mirror holds.
    pub depth: Depth,
}

impl Default for GitConfig {
    fn default() -> Self {
        Self {
            refresh_every: Duration::from_secs(120),
            revalidate: Revalidate::Stale,
            stale_if_error: Duration::from_secs(24 * 3600),
            keep_superseded: Duration::from_secs(24 * 3600),
            hide: Vec::new(),
            depth: Depth::Auto,
        }
    }
}

impl GitConfig {
    /// Everything wrong with this table, as `path: text`.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.refresh_every < Duration::from_secs(1) {
            problems.push(format!(
                "git.refresh_every: is {}; the shortest allowed is 1s",
                humantime_serde::re::humantime::format_duration(self.refresh_every),
            ));
        }
        if self.stale_if_error < self.refresh_every {
            problems.push("git.stale_if_error: must not be shorter than git.refresh_every".into());
        }
        for (at, prefix) in self.hide.iter().enumerate() {
            if !prefix.starts_with("refs/") {
                problems.push(format!("git.hide[{at}]: `{prefix}` must start with `refs/`"));
            }
        }
        problems
    }

    /// Whether a ref is left out of advertisements.
    pub(crate) fn hides(&self, name: &[u8]) -> bool {
        self.hide.iter().any(|prefix| name.starts_with(prefix.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_is_reported_at_once() {
        let text = r#"{"refresh_every":"500ms","stale_if_error":"100ms","hide":["pull/"]}"#;
        let config: GitConfig = serde_json::from_str(text).unwrap();
        assert_eq!(
            config.problems(),
            [
                "git.refresh_every: is 500ms; the shortest allowed is 1s",
                "git.stale_if_error: must not be shorter than git.refresh_every",
                "git.hide[0]: `pull/` must start with `refs/`",
            ]
        );
    }
}
