//! The configuration file: one table per room, put together here.
//!
//! A file is read whole and everything wrong with it is told at once, each with
//! its path. Without a file the defaults serve the built-in upstreams.

mod collect;
mod limits;
mod load;
#[cfg(test)]
mod tests;

use std::{
    ffi::OsString,
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use tidegate_cache::AccessConfig;
use tidegate_front::Listen;
use tidegate_git::GitConfig;
use tidegate_store::StoreConfig;
use tidegate_upstream::{SecretSource, UpstreamConfig};

pub(crate) use limits::Limits;

/// The largest configuration file that is read.
const FILE_LIMIT: u64 = 4 << 20;

/// All of it.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) listen: Vec<Listen>,
    pub(crate) admin: SocketAddr,
    pub(crate) admin_token: Option<SecretSource>,
    pub(crate) data: PathBuf,
    pub(crate) secret: Option<SecretSource>,
    pub(crate) upstreams: Vec<UpstreamConfig>,
    pub(crate) access: AccessConfig,
    pub(crate) git: GitConfig,
    pub(crate) limits: Limits,
    pub(crate) store: StoreConfig,
    pub(crate) log: LogConfig,
}

/// The `log` table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct LogConfig {
    /// How a line looks.
    pub(crate) format: LogFormat,
    /// What is logged: `info`, or a list like `info,tidegate_git=debug`.
    pub(crate) level: String,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines.
    Json,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: "info".into() }
    }
}

/// The `oci` table of a later step: its keys are known, so that a file written
/// for it is accepted.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
struct OciTable {
    #[serde(with = "humantime_serde")]
    refresh_every: Duration,
    revalidate: tidegate_git::Revalidate,
    #[serde(with = "humantime_serde")]
    stale_if_error: Duration,
}

impl Default for OciTable {
    fn default() -> Self {
        Self {
            refresh_every: Duration::from_secs(120),
            revalidate: tidegate_git::Revalidate::default(),
            stale_if_error: Duration::from_secs(24 * 3600),
        }
    }
}

/// What the command line has to say; it goes before the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    pub(crate) data: Option<PathBuf>,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) admin: Option<SocketAddr>,
}

/// Something wrong, in the operator's words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Problem {
    fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into() }
    }

    /// Takes `path: text` or `path text` apart.
    fn said(line: &str) -> Self {
        let (path, text) = line.split_once(' ').unwrap_or((line, "is wrong"));
        Self::new(path.trim_end_matches(':'), text)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.text)
    }
}

/// Where configuration comes from, to be read again when it changes.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The file, if there is one.
    pub(crate) file: Option<PathBuf>,
    /// What the command line has to say.
    pub(crate) overrides: Overrides,
    /// Where data goes if nobody says; none if there is no home.
    pub(crate) data: Option<PathBuf>,
}

impl Source {
    /// A file or none, as the process was started.
    pub(crate) fn new(file: Option<PathBuf>, overrides: Overrides) -> Self {
        Self { file, overrides, data: default_data(std::env::var_os) }
    }

    /// The file's text; empty without a file.
    pub(crate) fn text(&self) -> Result<String, Problem> {
        let Some(path) = &self.file else { return Ok(String::new()) };
        read(path).map_err(|text| Problem::new(path.display().to_string(), text))
    }

    /// Reads all of it, or tells everything that is wrong.
    pub(crate) fn load(&self) -> Result<Config, Vec<Problem>> {
        let text = self.text().map_err(|problem| vec![problem])?;
        self.load_text(&text)
    }

    /// Reads a text that was read already.
    pub(crate) fn load_text(&self, text: &str) -> Result<Config, Vec<Problem>> {
        load::load(self, text)
    }
}

fn read(path: &Path) -> Result<String, String> {
    let size = std::fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?.len();
    if size > FILE_LIMIT {
        return Err("is larger than 4 MiB".into());
    }
    std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))
}

fn default_data(variable: impl Fn(&'static str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    let cache = set("XDG_CACHE_HOME").and_then(absolute).or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(cache.join("tidegate"))
}
