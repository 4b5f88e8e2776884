//! The programs from outside that scenarios need, and what happens without one:
//! a loud line, and a failure where `CI=true`.

use std::env;
use std::path::{Path, PathBuf};

/// The folder of this package, where the Go client and its binary live.
pub fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The go-git client, when `conformance/setup.sh` has built it.
pub fn gogit(scenario: &str) -> Option<PathBuf> {
    found(scenario, "gogit", package().join("go/bin/gogit"))
}

/// The gix client, when `conformance/setup.sh` has built it.
pub fn gixclient(scenario: &str) -> Option<PathBuf> {
    found(scenario, "gixclient", package().join("gix/bin/gixclient"))
}

/// A program on the path: `strace`, `curl`.
pub fn on_path(scenario: &str, name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let program = env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    program.or_else(|| missing(scenario, name))
}

fn found(scenario: &str, name: &str, file: PathBuf) -> Option<PathBuf> {
    if file.is_file() { Some(file) } else { missing(scenario, name) }
}

fn missing(scenario: &str, name: &str) -> Option<PathBuf> {
    let line = format!("NOT RUN: {scenario}: {name} missing (conformance/setup.sh installs it)");
    assert!(env::var("CI").as_deref() != Ok("true"), "{line}");
    eprintln!("{line}");
    None
}
