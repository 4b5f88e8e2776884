//! Where things lie: `content-v2/<algorithm>/ab/cd/<rest>` as cacache lays it
//! out, so that a blob is a plain file named by its digest; `tmp/` for what is
//! not verified yet; `quarantine/` for what turned out bad; `index.redb`.

use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions},
    io,
    ops::ControlFlow,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use tidegate_name::{Algorithm, Digest};

use crate::error::Error;

/// The folder of one store.
#[derive(Debug)]
pub(crate) struct Layout {
    root: PathBuf,
    next: AtomicU64,
}

/// One file met on a walk through the content.
pub(crate) enum Found {
    /// Content, by its name.
    Content(Digest, PathBuf, Box<Metadata>),
    /// A file whose name is no digest.
    Strange(PathBuf),
}

impl Layout {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), next: AtomicU64::new(0) }
    }

    /// Makes the folders.
    pub(crate) fn make(&self) -> Result<(), Error> {
        for folder in [self.root.clone(), self.root.join("content-v2"), self.tmp()] {
            make_private(&folder).map_err(Error::io("make the folder", &folder))?;
        }
        Ok(())
    }

    /// Removes what a killed process left half-written.
    pub(crate) fn sweep(&self) -> Result<(), Error> {
        let tmp = self.tmp();
        let left = children(&tmp)?;
        for path in &left {
            let gone = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
            gone.map_err(Error::io("remove", path))?;
        }
        if !left.is_empty() {
            tracing::info!(files = left.len(), "removed unfinished content of the last run");
        }
        Ok(())
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn index(&self) -> PathBuf {
        self.root.join("index.redb")
    }

    fn tmp(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// A name in `tmp/` that nobody else has in this run.
    pub(crate) fn temp(&self, kind: &str) -> PathBuf {
        self.tmp().join(format!("{kind}-{}", self.next.fetch_add(1, Ordering::Relaxed)))
    }

    /// Where the content of `digest` lies.
    pub(crate) fn content(&self, digest: &Digest) -> PathBuf {
        let hex = digest.to_hex();
        self.root
            .join("content-v2")
            .join(digest.algorithm().as_str())
            .join(&hex[..2])
            .join(&hex[2..4])
            .join(&hex[4..])
    }

    /// Makes the folders above a content file, durably.
    pub(crate) fn make_parents(&self, content: &Path) -> io::Result<()> {
        let Some(parent) = content.parent() else { return Ok(()) };
        if parent.is_dir() {
            return Ok(());
        }
        let missing: Vec<_> =
            parent.ancestors().take_while(|folder| *folder != self.root && !folder.is_dir()).collect();
        for folder in missing.iter().rev() {
            make_private(folder)?;
            if let Some(above) = folder.parent() {
                sync_folder(above)?;
            }
        }
        Ok(())
    }

    /// Visits every file under `content-v2/`, until `visit` says stop. What
    /// vanishes meanwhile is skipped.
    pub(crate) fn walk(&self, visit: &mut dyn FnMut(Found) -> ControlFlow<()>) -> Result<(), Error> {
        for algorithm in [Algorithm::Sha256, Algorithm::Sha512] {
            let top = self.root.join("content-v2").join(algorithm.as_str());
            for first in children(&top)? {
                for second in children(&first)? {
                    let mut found =
                        children(&second)?.into_iter().filter_map(|file| found(algorithm, &top, file));
                    if found.any(|found| visit(found).is_break()) {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Moves a bad file out of the way, keeping a few for whoever looks into it.
    pub(crate) fn quarantine(&self, digest: &Digest) -> Result<(), Error> {
        const KEPT: usize = 16;
        let folder = self.root.join("quarantine");
        let from = self.content(digest);
        let held = children(&folder)?.len();
        let gone = if held >= KEPT {
            fs::remove_file(&from)
        } else {
            make_private(&folder).and_then(|()| fs::rename(&from, folder.join(digest.to_hex())))
        };
        match gone {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io("set aside", &from)(error))
            }
            _ => Ok(()),
        }
    }
}

/// A new private file that can be read while it is written.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Makes a rename or a new name in `folder` survive a power cut.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn make_private(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// What lies in `folder`; nothing if there is no such folder.
fn children(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let items = match fs::read_dir(folder) {
        Ok(items) => items,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(Error::io("read", folder)(error)),
    };
    Ok(items.filter_map(Result::ok).map(|item| item.path()).collect())
}

fn found(algorithm: Algorithm, top: &Path, file: PathBuf) -> Option<Found> {
    let metadata = fs::symlink_metadata(&file).ok()?;
    Some(match digest_of(algorithm, top, &file) {
        Some(digest) if metadata.is_file() => Found::Content(digest, file, Box::new(metadata)),
        _ => Found::Strange(file),
    })
}

fn digest_of(algorithm: Algorithm, top: &Path, file: &Path) -> Option<Digest> {
    let hex: String = file.strip_prefix(top).ok()?.to_str()?.split('/').collect();
    format!("{}:{hex}", algorithm.as_str()).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_lies_where_cacache_puts_it() {
        let folder = tempfile::tempdir().unwrap();
        let integrity = cacache::write_hash_sync(folder.path(), b"tide").unwrap();
        let layout = Layout::new(folder.path());
        let digest = Digest::of(b"tide");
        assert_eq!(fs::read(layout.content(&digest)).unwrap(), b"tide");
        assert_eq!(integrity.to_hex().1, digest.to_hex());
        let mut found = Vec::new();
        layout
            .walk(&mut |item| {
                if let Found::Content(digest, ..) = item {
                    found.push(digest);
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(found, [digest]);
    }

    #[test]
    fn a_file_with_a_strange_name_is_not_content() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path());
        let strange = folder.path().join("content-v2/sha256/ab/cd");
        fs::create_dir_all(&strange).unwrap();
        fs::write(strange.join("readme"), "x").unwrap();
        let mut count = 0;
        layout
            .walk(&mut |item| {
                count += usize::from(matches!(item, Found::Strange(_)));
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(count, 1);
    }
}
