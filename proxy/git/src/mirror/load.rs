//! Opening a mirror: which generation is the one, and does it verify.
//!
//! Cheap on purpose: sizes and trailers, not whole files; `fsck` reads those.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64},
    },
};

use arc_swap::ArcSwapOption;
use gix_hash::{Kind, ObjectId};

use super::{
    Error, Limits, Mirror, Snapshot, Writer, connect,
    folder::{Folder, read_at_most},
    generation::{Generation, PackFile},
};
use crate::pack::{Graph, PackSet};

/// No generation file is longer.
const LONGEST_GENERATION: u64 = 1 << 30;

pub(super) fn open(dir: &Path, limits: Limits) -> Result<Mirror, Error> {
    let folder = Folder::open(dir)?;
    folder.sweep()?;
    let mut damage = Vec::new();
    let on_disk = folder.list_generations()?;
    let current = folder.read_current();
    if current.is_none() && (folder.root().join("current").exists() || !on_disk.is_empty()) {
        damage.push("`current` cannot be read".to_owned());
    }
    // Newer files than `current` names were never visible: a crash came between.
    let visible = |number: &&u64| current.is_none_or(|current| **number <= current);
    let mut loaded = Vec::new();
    for &number in on_disk.iter().filter(visible) {
        match load(&folder, number) {
            Ok(found) => loaded.push(found),
            Err(why) => damage.push(format!("generation {number}: {why}")),
        }
        if loaded.len() == 2 {
            break;
        }
    }
    let highest = on_disk.first().copied().into_iter().chain(current).max().unwrap_or(0);
    let mut loaded = loaded.into_iter();
    let (newest, previous) = (loaded.next(), loaded.next());
    let mirror = Mirror {
        folder,
        limits,
        snapshot: ArcSwapOption::empty(),
        writer: Mutex::new(Writer {
            next: highest.saturating_add(1),
            previous: previous.map(|(generation, _)| (generation.number, pack_names(&generation))),
        }),
        reads: Mutex::new(HashMap::new()),
        bytes: AtomicU64::new(0),
        removed: AtomicBool::new(false),
        damage,
    };
    if let Some((generation, snapshot)) = newest {
        mirror.adopt(&generation, snapshot, current)?;
    }
    for problem in &mirror.damage {
        tracing::warn!(mirror = %mirror.folder.root().display(), problem, "a mirror was damaged");
    }
    mirror.bytes.store(mirror.folder.bytes(), std::sync::atomic::Ordering::Relaxed);
    Ok(mirror)
}

impl Mirror {
    /// Makes a generation that was found the current one.
    fn adopt(
        &self,
        generation: &Generation,
        mut snapshot: Snapshot,
        current: Option<u64>,
    ) -> Result<(), Error> {
        let mut writer = super::lock(&self.writer);
        if current != Some(generation.number) {
            // Fallen back: the same content under a number that is new.
            let again = Generation { number: writer.next, ..generation.clone() };
            self.folder.write_durably(&self.folder.generation(again.number), &again.encode())?;
            self.folder.write_current(again.number)?;
            snapshot.generation = again.number;
            writer.next += 1;
        }
        let mut packs = pack_names(generation);
        let mut generations = vec![snapshot.generation];
        if let Some((number, more)) = &writer.previous {
            generations.push(*number);
            packs.extend(more);
        }
        self.folder.keep_only(&generations, &packs)?;
        self.snapshot.store(Some(Arc::new(snapshot)));
        Ok(())
    }
}

pub(super) fn pack_names(generation: &Generation) -> HashSet<ObjectId> {
    generation.packs.iter().map(|pack| pack.checksum).collect()
}

/// Reads a generation file.
pub(super) fn read(folder: &Folder, number: u64) -> Result<Generation, String> {
    let bytes =
        read_at_most(&folder.generation(number), LONGEST_GENERATION).map_err(|error| error.to_string())?;
    let generation = Generation::decode(&bytes).map_err(|damage| damage.to_string())?;
    if generation.number != number {
        return Err(format!("it calls itself {}", generation.number));
    }
    Ok(generation)
}

fn load(folder: &Folder, number: u64) -> Result<(Generation, Snapshot), String> {
    let generation = read(folder, number)?;
    let hash = generation.refs.hash();
    let mut indexes = Vec::new();
    for pack in &generation.packs {
        let path = folder.pack(&pack.checksum);
        check_files(&path, pack, hash)?;
        indexes.push(path.with_extension("idx"));
    }
    let packs = PackSet::open(&indexes, hash).map_err(|error| error.to_string())?;
    let boundary: HashSet<_> = generation.boundary.iter().copied().collect();
    let tips = connect::tips(&generation.refs, &generation.retained, &generation.roots);
    let graph = Graph::build(&packs, &tips, &boundary).map_err(|error| error.to_string())?;
    let snapshot = Snapshot {
        generation: number,
        refs: Arc::new(generation.refs.clone()),
        packs: Arc::new(packs),
        graph: Arc::new(graph),
        boundary,
        retained: generation.retained.clone(),
        roots: generation.roots.clone(),
        files: generation.packs.clone(),
    };
    Ok((generation, snapshot))
}

/// Sizes and trailers: what a crash, a full disk or a stray copy gets wrong.
fn check_files(pack: &Path, expected: &PackFile, hash: Kind) -> Result<(), String> {
    let index = pack.with_extension("idx");
    for (path, bytes, trailer) in
        [(pack, expected.bytes, expected.checksum), (&index, expected.index_bytes, expected.index_checksum)]
    {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let check = || {
            let mut file = File::open(path)?;
            if file.metadata()?.len() != bytes {
                return Ok(false);
            }
            let length = i64::try_from(hash.len_in_bytes()).unwrap_or_default();
            file.seek(SeekFrom::End(-length))?;
            let mut found = Vec::new();
            file.read_to_end(&mut found)?;
            Ok::<_, std::io::Error>(found == trailer.as_slice())
        };
        match check() {
            Ok(true) => {}
            Ok(false) => return Err(format!("{name} is not as it was written")),
            Err(error) => return Err(format!("{name}: {error}")),
        }
    }
    Ok(())
}
