//! One update becomes the next generation, or nothing.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime},
};

use gix_hash::ObjectId;

use super::{
    Error, Mirror, Snapshot, Writer,
    folder::{Adopted, Quarantine},
    generation::{Generation, PackFile},
    ingest::Ingest,
    lock,
    settle::{Draft, Merged, Settled, Settling},
};
use crate::{
    pack::{PackSet, Reader},
    refs::RefTable,
};

/// Inflated objects remembered while two copies are compared.
const COMPARE_CACHE: usize = 16 << 20;

/// What the upstream said.
#[derive(Clone, Debug)]
pub struct Update {
    /// All refs, as they are now.
    pub refs: RefTable,
    /// A complete pack file, possibly thin; it must not change any more.
    pub pack: Option<PathBuf>,
    /// Wants accepted on demand that the pack brings.
    pub roots: Vec<ObjectId>,
    /// Commits the upstream sent without their parents.
    pub shallow: Vec<ObjectId>,
    /// Commits whose parents the upstream sent after all.
    pub unshallow: Vec<ObjectId>,
    /// The time.
    pub now: SystemTime,
    /// How long a superseded tip is retained.
    pub keep_superseded: Duration,
    /// How many superseded tips are retained at most.
    pub keep_max: usize,
}

/// A ref that could not be brought to where the upstream has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfetched {
    /// Its name; `HEAD` too.
    pub name: Vec<u8>,
    /// The object that isn't here.
    pub oid: ObjectId,
}

/// What an update came to.
#[derive(Debug)]
pub struct Published {
    /// The state now; the old one if nothing changed.
    pub snapshot: Arc<Snapshot>,
    /// Whether a new generation was made.
    pub changed: bool,
    /// Eager refs that kept their old value, or were left out.
    pub unfetched: Vec<Unfetched>,
}

/// The packs the next snapshot would have.
struct Stage {
    set: Arc<PackSet>,
    files: Vec<PackFile>,
    adopted: Option<Adopted>,
}

impl Mirror {
    /// Verifies an update and makes it the current state; all of it or nothing.
    ///
    /// One at a time; readers never wait. An update that changes nothing writes
    /// nothing and keeps the generation.
    pub fn publish(&self, update: &Update) -> Result<Published, Error> {
        let mut writer = lock(&self.writer);
        if self.removed.load(Ordering::Acquire) {
            return Err(Error::Removed);
        }
        let old = self.snapshot();
        self.check_limits(update, old.as_deref())?;
        let quarantine = self.folder.quarantine()?;
        let stage = self.stage(update, old.as_deref(), &quarantine)?;
        let settling = Settling { mirror: self, update, old: old.as_ref(), set: &stage.set };
        match settling.run()? {
            Settled::Same(same, Merged { unfetched, roots, .. }) => {
                lock(&self.reads).extend(roots.iter().map(|root| (root.oid, root.until)));
                Ok(Published { snapshot: Arc::clone(same), changed: false, unfetched })
            }
            Settled::New(draft) => self.commit(&mut writer, old.as_deref(), stage, *draft),
        }
    }

    fn check_limits(&self, update: &Update, old: Option<&Snapshot>) -> Result<(), Error> {
        for (what, count, limit) in [
            ("the number of refs", update.refs.refs().len(), self.limits.refs),
            ("the number of wanted objects", update.roots.len(), self.limits.roots),
            ("the number of shallow commits", update.shallow.len(), self.limits.boundary),
        ] {
            if count > limit {
                return Err(Error::Limit { what, count: count as u64, limit: limit as u64 });
            }
        }
        let (found, expected) = (update.refs.hash(), old.map_or(update.refs.hash(), |old| old.refs.hash()));
        if found == expected { Ok(()) } else { Err(Error::HashKind { expected, found }) }
    }

    /// Takes the pack into quarantine and looks at it beside those we have.
    fn stage(
        &self,
        update: &Update,
        old: Option<&Snapshot>,
        quarantine: &Quarantine,
    ) -> Result<Stage, Error> {
        let kind = update.refs.hash();
        let held = old.map(|old| &*old.packs);
        let ingest = Ingest { quarantine, held, kind, limits: &self.limits, stop: &self.removed };
        let incoming = update.pack.as_deref().map(|pack| ingest.run(pack)).transpose()?.flatten();
        let mut files = old.map(|old| old.files.clone()).unwrap_or_default();
        let wanted = match (incoming, held) {
            (Some(pack), Some(held)) => brings_something(&pack.path, held)?.then_some(pack),
            (incoming, _) => incoming,
        };
        if let (None, Some(old)) = (&wanted, old) {
            return Ok(Stage { set: Arc::clone(&old.packs), files, adopted: None });
        }
        let mut paths: Vec<_> =
            files.iter().map(|file| self.folder.pack(&file.checksum).with_extension("idx")).collect();
        let adopted = match wanted {
            None => None,
            Some(pack) => {
                let adopted = self.folder.adopt(&pack.path, &pack.file.checksum)?;
                paths.push(adopted.index());
                files.push(pack.file);
                Some(adopted)
            }
        };
        let set = Arc::new(PackSet::open(&paths, kind)?);
        Ok(Stage { set, files, adopted })
    }

    /// Makes the draft durable, then visible, then removes what nobody needs.
    fn commit(
        &self,
        writer: &mut Writer,
        old: Option<&Snapshot>,
        stage: Stage,
        draft: Draft,
    ) -> Result<Published, Error> {
        let Draft { merged, boundary: commits, graph } = draft;
        let number = writer.next;
        let mut boundary: Vec<_> = commits.iter().copied().collect();
        boundary.sort_unstable();
        let generation = Generation {
            number,
            refs: merged.refs,
            packs: stage.files,
            boundary,
            retained: merged.retained,
            roots: merged.roots,
        };
        // Never used twice, even if what follows fails half-way.
        writer.next = number.saturating_add(1);
        // From here on the generation may be on disk even if we fail.
        if let Some(adopted) = stage.adopted {
            adopted.keep();
        }
        self.folder.write_durably(&self.folder.generation(number), &generation.encode())?;
        self.folder.write_current(number)?;
        let snapshot = Arc::new(Snapshot {
            generation: number,
            refs: Arc::new(generation.refs),
            packs: stage.set,
            graph: Arc::new(graph),
            boundary: commits,
            retained: generation.retained,
            roots: generation.roots,
            files: generation.packs,
        });
        self.snapshot.store(Some(Arc::clone(&snapshot)));
        self.tidy(writer, old, &snapshot);
        Ok(Published { snapshot, changed: true, unfetched: merged.unfetched })
    }

    /// What follows a publish; a failure here costs space, never the snapshot.
    fn tidy(&self, writer: &mut Writer, old: Option<&Snapshot>, snapshot: &Snapshot) {
        let checksums =
            |snapshot: &Snapshot| snapshot.files.iter().map(|file| file.checksum).collect::<HashSet<_>>();
        writer.previous = old.map(|old| (old.generation, checksums(old)));
        let mut needed = checksums(snapshot);
        let mut generations = vec![snapshot.generation];
        if let Some((number, packs)) = &writer.previous {
            generations.push(*number);
            needed.extend(packs);
        }
        if let Err(error) = self.folder.keep_only(&generations, &needed) {
            tracing::warn!(mirror = %self.folder.root().display(), %error, "old files stay until the next start");
        }
        let known: HashMap<_, _> = snapshot.roots.iter().map(|root| (root.oid, root.until)).collect();
        lock(&self.reads).retain(|oid, until| known.get(oid).is_some_and(|known| *until > *known));
        self.bytes.store(self.folder.bytes(), Ordering::Relaxed);
    }
}

/// Whether a pack has an object that `held` lacks. One that has an object of
/// `held` with other bytes is refused: one of the two is forged.
pub(super) fn brings_something(pack: &Path, held: &PackSet) -> Result<bool, Error> {
    let path = pack.with_extension("idx");
    let fresh = PackSet::open(std::slice::from_ref(&path), held.hash())?;
    let mut brings = false;
    let mut both = Vec::new();
    for number in 0..fresh.total() {
        match held.number(fresh.oid(number)) {
            Some(known) => both.push((number, known)),
            None => brings = true,
        }
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut our_reader = Reader::new(held, COMPARE_CACHE);
    let mut their_reader = Reader::new(&fresh, COMPARE_CACHE);
    for (number, known) in both {
        let our_kind = our_reader.read(known, &mut ours)?;
        let their_kind = their_reader.read(number, &mut theirs)?;
        if our_kind != their_kind || ours != theirs {
            return Err(Error::Collision { oid: fresh.oid(number).to_owned() });
        }
    }
    Ok(brings)
}
