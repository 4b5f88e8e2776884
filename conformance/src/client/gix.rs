//! gix as a client: the program in `conformance/gix`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::git::{Run, finish};
use crate::tools;

/// A bare clone by gix; `None` after a loud line where it isn't built.
pub fn clone(scenario: &str, url: &str, folder: &Path, depth: Option<u32>) -> Option<Run> {
    let mut command = Command::new(tools::gixclient(scenario)?);
    command.arg("clone").arg(url).arg(folder).args(depth.map(|depth| depth.to_string()));
    command.env_clear().env("HOME", "/nonexistent").env("GIT_CONFIG_NOSYSTEM", "1");
    Some(finish(command, Duration::from_secs(60)))
}
