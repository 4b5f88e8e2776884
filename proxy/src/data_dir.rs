//! The data directory: one server at a time, and the secret that lives in it.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use rustix::fs::{FlockOperation, flock};
use tidegate_name::Digest;
use tidegate_upstream::SecretSource;

/// The shortest secret that is taken from the configuration, in bytes.
const SHORTEST_SECRET: usize = 16;

/// The directory, held by this process until it ends.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Makes the directory if need be and takes its lock. Blocks briefly.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let here = || format!("cannot use the data directory {}", path.display());
        DirBuilder::new().recursive(true).mode(0o700).create(path).with_context(here)?;
        // Kept open for as long as we run; the kernel frees it when we die.
        let mut lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(path.join("lock"))
            .with_context(here)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => bail!(
                "another tidegate{} uses the data directory {}; stop it or choose another with --data",
                holder(&mut lock),
                path.display(),
            ),
            Err(error) => return Err(error).with_context(here),
        }
        lock.set_len(0)
            .and_then(|()| write!(lock, "{}", std::process::id()))
            .with_context(|| format!("cannot write to {}", path.join("lock").display()))?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The key under which verdicts are kept: the configured one, else the one
    /// in `secret`, which is made when absent.
    pub(crate) fn secret(&self, source: Option<&SecretSource>) -> anyhow::Result<[u8; 32]> {
        if let Some(source) = source {
            let text = source.read().context("cannot read `secret`")?;
            if text.expose().len() < SHORTEST_SECRET {
                bail!("`secret` is shorter than {SHORTEST_SECRET} bytes");
            }
            return key(Digest::of(text.expose().as_bytes()).as_bytes());
        }
        let path = self.path.join("secret");
        match fs::read(&path) {
            Ok(bytes) => key(&bytes).with_context(|| {
                format!("{} is damaged; remove it, and callers prove themselves again", path.display())
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_secret(&self.path).with_context(|| format!("cannot make {}", path.display()))
            }
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }
}

fn key(bytes: &[u8]) -> anyhow::Result<[u8; 32]> {
    bytes.try_into().context("a key has 32 bytes")
}

fn holder(lock: &mut File) -> String {
    let mut text = String::new();
    let known = lock.take(20).read_to_string(&mut text).is_ok() && text.parse::<u32>().is_ok();
    if known { format!(" (process {text})") } else { String::new() }
}

fn make_secret(dir: &Path) -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let fresh = dir.join("secret.new");
    // One left by a crash has never been used.
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&fresh)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&fresh, dir.join("secret"))?;
    File::open(dir)?.sync_all()?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_second_server_is_refused_with_the_first_ones_process() {
        let dir = tempfile::tempdir().unwrap();
        let held = DataDir::open(dir.path()).unwrap();
        let refused = DataDir::open(dir.path()).unwrap_err().to_string();
        assert!(refused.contains(&format!("(process {})", std::process::id())), "{refused}");
        drop(held);
        DataDir::open(dir.path()).unwrap();
    }

    #[test]
    fn the_secret_is_made_once_and_is_for_us_alone() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path()).unwrap();
        let made = data.secret(None).unwrap();
        assert_eq!(made, data.secret(None).unwrap());
        let permissions = fs::metadata(dir.path().join("secret")).unwrap().permissions();
        assert_eq!(permissions.mode() & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_secret_is_told_and_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path()).unwrap();
        fs::write(dir.path().join("secret"), "short").unwrap();
        assert!(data.secret(None).is_err());
        assert_eq!(fs::read(dir.path().join("secret")).unwrap(), b"short");
    }
}
