//! go-git v5 as Argo CD and Flux use it: the program in `conformance/go`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::git::{Run, finish};
use crate::tools;

/// The Go client, with or without a credential.
#[derive(Clone, Debug)]
pub struct GoGit {
    program: PathBuf,
    credential: Option<(String, String)>,
}

impl GoGit {
    /// The client, or `None` after a loud line where it isn't built.
    pub fn find(scenario: &str) -> Option<Self> {
        tools::gogit(scenario).map(|program| Self { program, credential: None })
    }

    /// Sends this credential with the first request, as go-git does.
    pub fn sending(mut self, user: &str, password: &str) -> Self {
        self.credential = Some((user.to_owned(), password.to_owned()));
        self
    }

    /// Runs a subcommand; see `conformance/go/cmd/gogit`.
    pub fn run(&self, arguments: &[&str]) -> Run {
        let mut command = Command::new(&self.program);
        command.args(arguments).env_clear().env("HOME", "/nonexistent");
        if let Some((user, password)) = &self.credential {
            command.env("GOGIT_USER", user).env("GOGIT_PASSWORD", password);
        }
        finish(command, Duration::from_secs(60))
    }

    /// Argo CD's ls-remote.
    pub fn list(&self, url: &str) -> Run {
        self.run(&["lsremote", url])
    }

    /// Flux's clone of a branch.
    pub fn branch(&self, url: &str, folder: &Path, name: &str) -> Run {
        self.run(&["branch", url, &folder.to_string_lossy(), name])
    }
}

/// The refs that a subcommand printed.
pub fn refs(run: &Run) -> BTreeMap<String, String> {
    let parsed: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap_or_default();
    let Some(refs) = parsed.get("refs").and_then(serde_json::Value::as_object) else {
        return BTreeMap::new();
    };
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    refs.iter().map(|(name, oid)| (name.clone(), text(oid))).collect()
}

/// The id of HEAD that a subcommand printed.
pub fn head(run: &Run) -> String {
    let parsed: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap_or_default();
    parsed.get("head").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
}
