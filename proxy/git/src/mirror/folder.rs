//! The layout of a mirror's folder, and how a file becomes visible in it.
//!
//! ```text
//! packs/pack-<checksum>.{pack,idx}   never changed in place
//! generations/<number>               what one snapshot consists of
//! current                            the number of the newest one
//! quarantine/                        work in progress, swept at start
//! ```
//!
//! Always: write aside, fsync, rename, fsync the folder. Nothing here knows
//! what the files say.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use gix_hash::ObjectId;

use super::error::Error;

/// The folder of one mirror.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
}

impl Folder {
    /// Opens it, made if absent.
    pub(super) fn open(root: &Path) -> Result<Self, Error> {
        let folder = Self::at(root);
        for part in [folder.packs(), folder.generations(), folder.quarantine_root()] {
            fs::create_dir_all(&part).map_err(Error::io("create", &part))?;
        }
        sync_folder(root)?;
        Ok(folder)
    }

    /// The folder at `root`, as it is.
    pub(super) fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn packs(&self) -> PathBuf {
        self.root.join("packs")
    }

    pub(super) fn generations(&self) -> PathBuf {
        self.root.join("generations")
    }

    fn quarantine_root(&self) -> PathBuf {
        self.root.join("quarantine")
    }

    fn current(&self) -> PathBuf {
        self.root.join("current")
    }

    pub(super) fn generation(&self, number: u64) -> PathBuf {
        self.generations().join(number.to_string())
    }

    /// Where a pack lives; its index has `.idx` instead.
    pub(super) fn pack(&self, checksum: &ObjectId) -> PathBuf {
        self.packs().join(pack_name(checksum))
    }

    /// A place for work in progress, gone when dropped.
    pub(super) fn quarantine(&self) -> Result<Quarantine, Error> {
        let path = self.quarantine_root().join("pack");
        clear(&path)?;
        fs::create_dir_all(&path).map_err(Error::io("create", &path))?;
        Ok(Quarantine { path })
    }

    /// The number in `current`; `None` when there is none or it is not a number.
    pub(super) fn read_current(&self) -> Option<u64> {
        let bytes = read_at_most(&self.current(), 64).ok()?;
        let text = std::str::from_utf8(&bytes).ok()?;
        text.strip_suffix('\n')?.parse().ok()
    }

    /// Makes `number` the current generation; its file must be durable already.
    pub(super) fn write_current(&self, number: u64) -> Result<(), Error> {
        self.write_durably(&self.current(), format!("{number}\n").as_bytes())
    }

    /// The generation files, newest first.
    pub(super) fn list_generations(&self) -> Result<Vec<u64>, Error> {
        let mut numbers: Vec<u64> =
            names(&self.generations())?.iter().filter_map(|name| name.parse().ok()).collect();
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        Ok(numbers)
    }

    /// Writes a whole file so that a crash leaves the old one or the new one.
    pub(super) fn write_durably(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        let aside = self.quarantine_root().join("writing");
        let mut file = File::create(&aside).map_err(Error::io("create", &aside))?;
        file.write_all(bytes).map_err(Error::io("write", &aside))?;
        file.sync_all().map_err(Error::io("fsync", &aside))?;
        drop(file);
        fs::rename(&aside, path).map_err(Error::io("rename", &aside))?;
        sync_folder(path.parent().unwrap_or(&self.root))
    }

    /// Moves a pack and its index from quarantine among the packs, where nothing names them yet.
    pub(super) fn adopt(&self, pack: &Path, checksum: &ObjectId) -> Result<Adopted, Error> {
        let adopted = Adopted { path: self.pack(checksum), kept: false };
        for extension in ["pack", "idx"] {
            let from = pack.with_extension(extension);
            fs::rename(&from, adopted.path.with_extension(extension)).map_err(Error::io("rename", &from))?;
        }
        sync_folder(&self.packs())?;
        Ok(adopted)
    }

    /// Unlinks generations and packs that nobody needs. Readers keep what they have mapped.
    pub(super) fn keep_only(&self, generations: &[u64], packs: &HashSet<ObjectId>) -> Result<(), Error> {
        for name in names(&self.generations())? {
            if !name.parse().is_ok_and(|number| generations.contains(&number)) {
                remove(&self.generations().join(name))?;
            }
        }
        let needed: HashSet<_> = packs.iter().map(pack_stem).collect();
        for name in names(&self.packs())? {
            let stem = Path::new(&name).file_stem().and_then(|stem| stem.to_str());
            if !stem.is_some_and(|stem| needed.contains(stem)) {
                remove(&self.packs().join(name))?;
            }
        }
        Ok(())
    }

    /// Removes what a crash left in quarantine.
    pub(super) fn sweep(&self) -> Result<(), Error> {
        let root = self.quarantine_root();
        clear(&root)?;
        fs::create_dir_all(&root).map_err(Error::io("create", &root))
    }

    /// Bytes on disk.
    pub(super) fn bytes(&self) -> u64 {
        let folders = [self.packs(), self.generations()];
        folders.iter().map(|folder| folder_bytes(folder)).sum()
    }
}

/// Work in progress.
#[derive(Debug)]
pub(super) struct Quarantine {
    path: PathBuf,
}

impl Quarantine {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Quarantine {
    fn drop(&mut self) {
        // Left behind, it is swept at the next start.
        drop(fs::remove_dir_all(&self.path));
    }
}

/// A pack among the packs that no generation names; gone when dropped, unless kept.
#[derive(Debug)]
pub(super) struct Adopted {
    path: PathBuf,
    kept: bool,
}

impl Adopted {
    /// The index.
    pub(super) fn index(&self) -> PathBuf {
        self.path.with_extension("idx")
    }

    /// Leaves the files where they are: a generation may name them from now on.
    pub(super) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Adopted {
    fn drop(&mut self) {
        if !self.kept {
            drop(fs::remove_file(&self.path));
            drop(fs::remove_file(self.index()));
        }
    }
}

/// The file name of a pack.
pub(super) fn pack_name(checksum: &ObjectId) -> String {
    format!("{}.pack", pack_stem(checksum))
}

fn pack_stem(checksum: &ObjectId) -> String {
    format!("pack-{}", checksum.to_hex())
}

/// Reads a file that may not be longer than `limit`.
pub(super) fn read_at_most(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    use io::Read;
    let file = File::open(path)?;
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is too long"));
    }
    Ok(bytes)
}

/// Makes renames in a folder survive a power cut.
pub(super) fn sync_folder(path: &Path) -> Result<(), Error> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(Error::io("fsync", path))
}

/// Makes a file's bytes survive a power cut.
pub(super) fn sync_file(path: &Path) -> Result<(), Error> {
    File::open(path).and_then(|file| file.sync_all()).map_err(Error::io("fsync", path))
}

/// The sum of the sizes of the files in a folder; 0 if it cannot be read.
pub(super) fn folder_bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries
        .filter_map(|entry| entry.ok()?.metadata().ok())
        .filter(fs::Metadata::is_file)
        .map(|m| m.len())
        .sum()
}

fn names(folder: &Path) -> Result<Vec<String>, Error> {
    let entries = fs::read_dir(folder).map_err(Error::io("list", folder))?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
}

fn clear(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path)(error)),
        _ => Ok(()),
    }
}

fn remove(path: &Path) -> Result<(), Error> {
    let result = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path)(error)),
        _ => Ok(()),
    }
}
