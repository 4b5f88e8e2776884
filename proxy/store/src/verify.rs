//! The audit of everything on disk, by cacache's verified reads.

use std::{
    io,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

use cacache::{Integrity, SyncReader};
use tidegate_name::{Algorithm, Digest};

use crate::{
    error::Error,
    layout::{Found, Layout},
    store::Store,
};

/// The most damages that are listed one by one.
const LISTED: usize = 1000;

/// What an audit found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Files read.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Files that are not what their name says, set aside where possible.
    pub damaged: u64,
    /// Files that are not content by their name; left alone.
    pub strange: u64,
    /// The first thousand of both kinds.
    pub damages: Vec<Damage>,
}

/// One file that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Which file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: String,
}

impl Store {
    /// Reads all content and compares it with its names; what is damaged is set
    /// aside and no longer served. Meant for `fsck`; it reads every byte.
    pub async fn verify(self: &Arc<Self>) -> Result<Audit, Error> {
        let store = Arc::clone(self);
        let audit = tokio::task::spawn_blocking(move || {
            audit(&store.layout, &mut |digest, problem| {
                if let Some(problem) = problem {
                    store.set_aside(digest, problem);
                }
                if store.closing.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
        });
        audit.await.unwrap_or_else(|_| Err(Error::broken_off("the audit broke down")))
    }
}

/// The same for the folder of a store that no process has open. Blocks.
pub fn verify_folder(folder: &Path) -> Result<Audit, Error> {
    let layout = Layout::new(folder);
    let mut refused = None;
    let audit = audit(&layout, &mut |digest, problem| {
        if problem.is_some()
            && let Err(error) = layout.quarantine(digest)
        {
            refused = Some(error);
        }
        ControlFlow::Continue(())
    })?;
    refused.map_or(Ok(audit), Err)
}

/// Told of every file and what is wrong with it, if anything; says whether to go on.
type Judge<'a> = &'a mut dyn FnMut(&Digest, Option<&str>) -> ControlFlow<()>;

fn audit(layout: &Layout, judge: Judge<'_>) -> Result<Audit, Error> {
    let mut audit = Audit::default();
    layout.walk(&mut |found| match found {
        Found::Strange(path) => {
            audit.strange += 1;
            audit.list(path, "not content by its name");
            ControlFlow::Continue(())
        }
        Found::Content(digest, path, metadata) => {
            audit.files += 1;
            audit.bytes += metadata.len();
            // Evicted while we read it: no damage.
            let problem = check(layout, &digest).err().filter(|_| path.exists());
            if let Some(problem) = &problem {
                audit.damaged += 1;
                audit.list(path, problem);
            }
            judge(&digest, problem.as_deref())
        }
    })?;
    Ok(audit)
}

fn check(layout: &Layout, digest: &Digest) -> Result<(), String> {
    let algorithm = match digest.algorithm() {
        Algorithm::Sha256 => cacache::Algorithm::Sha256,
        Algorithm::Sha512 => cacache::Algorithm::Sha512,
    };
    let integrity = Integrity::from_hex(digest.to_hex(), algorithm).map_err(|error| error.to_string())?;
    let mut reader = SyncReader::open_hash(layout.root(), integrity).map_err(|error| error.to_string())?;
    io::copy(&mut reader, &mut io::sink()).map_err(|error| error.to_string())?;
    reader.check().map(drop).map_err(|_| "its bytes don't hash to its name".into())
}

impl Audit {
    fn list(&mut self, path: PathBuf, problem: &str) {
        if self.damages.len() < LISTED {
            self.damages.push(Damage { path, problem: problem.into() });
        }
    }
}
