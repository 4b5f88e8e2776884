//! The same steps through two doors: straight to the upstream, and through a
//! running tidegate in front of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use crate::outcome::Outcome;
use crate::tidegate::{Setup, Tidegate};
use crate::upstream::Upstream;

/// One upstream, one tidegate, one place to work in.
pub struct Scene {
    /// The scripted upstream.
    pub upstream: Upstream,
    tidegate: Option<Tidegate>,
    work: TempDir,
    turn: AtomicU32,
}

/// One way to the upstream's repositories.
pub struct Door<'a> {
    base: String,
    work: &'a Path,
    name: &'static str,
    turn: u32,
}

impl Scene {
    /// An upstream on HTTP, and a tidegate in front of it that looks again every two minutes.
    pub fn start() -> Self {
        Self::with(|setup| setup)
    }

    /// The same, with more configuration.
    pub fn with(configure: impl FnOnce(Setup) -> Setup) -> Self {
        Self::before(Upstream::start(), configure)
    }

    /// In front of this upstream. `TIDEGATE_DIRECT_ONLY=1` leaves tidegate out, to test the oracle.
    pub fn before(upstream: Upstream, configure: impl FnOnce(Setup) -> Setup) -> Self {
        let direct_only = std::env::var_os("TIDEGATE_DIRECT_ONLY").is_some();
        let tidegate = (!direct_only).then(|| configure(Setup::of(&upstream)).start());
        let work = tempfile::tempdir().expect("a folder to work in");
        Self { upstream, tidegate, work, turn: AtomicU32::new(0) }
    }

    /// The tidegate.
    pub fn tidegate(&self) -> &Tidegate {
        self.tidegate.as_ref().expect("TIDEGATE_DIRECT_ONLY runs only what compares two doors")
    }

    /// The tidegate, to stop and start it.
    pub fn tidegate_mut(&mut self) -> &mut Tidegate {
        self.tidegate.as_mut().expect("TIDEGATE_DIRECT_ONLY runs only what compares two doors")
    }

    /// A URL through tidegate.
    pub fn url(&self, path: &str) -> String {
        self.tidegate().url(path)
    }

    /// A new folder name under this scene's own temporary folder; nothing is there yet.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.work.path().join(format!("{:03}-{name}", self.next()))
    }

    /// Runs the steps through both doors and wants the same outcome; returns it.
    pub fn both(&self, steps: impl Fn(&Door<'_>) -> Outcome) -> Outcome {
        let direct = steps(&self.door("direct", self.upstream.base()));
        if let Some(tidegate) = &self.tidegate {
            let through = steps(&self.door("tidegate", tidegate.base()));
            direct.must_equal(&through, ("direct", "tidegate"));
        }
        direct
    }

    /// Runs the steps through both doors, through tidegate twice: cold, then warm.
    pub fn cold_and_warm(&self, steps: impl Fn(&Door<'_>) -> Outcome) -> Outcome {
        let direct = self.both(&steps);
        if let Some(tidegate) = &self.tidegate {
            let warm = steps(&self.door("warm", tidegate.base()));
            direct.must_equal(&warm, ("direct", "warm tidegate"));
        }
        direct
    }

    fn door(&self, name: &'static str, base: String) -> Door<'_> {
        Door { base, work: self.work.path(), name, turn: self.next() }
    }

    fn next(&self) -> u32 {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }
}

impl Door<'_> {
    /// The URL of `ok/plain.git` through this door.
    pub fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.base)
    }

    /// What comes before every path.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Whether this is the way around tidegate.
    pub fn is_direct(&self) -> bool {
        self.name == "direct"
    }

    /// A folder name of this door's own; nothing is there yet.
    pub fn folder(&self, name: &str) -> PathBuf {
        let parent = self.work.join(format!("{:03}-{}", self.turn, self.name));
        fs::create_dir_all(&parent).expect("a folder for the door");
        parent.join(name)
    }
}
