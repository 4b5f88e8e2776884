//! The slow look at a mirror: every byte of every pack, every object, every link.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::AtomicBool},
};

use gix_features::progress::Discard;
use gix_hash::Kind;
use gix_pack::{cache, data, index};

use super::{Mirror, Snapshot, connect, folder::pack_name, generation::PackFile, load};

/// Everything wrong with the current snapshot as it lies on disk.
pub(super) fn audit(mirror: &Mirror) -> Vec<String> {
    let Some(snapshot) = mirror.snapshot() else { return Vec::new() };
    let mut problems = Vec::new();
    match load::read(&mirror.folder, snapshot.generation) {
        Err(why) => problems.push(format!("generation {}: {why}", snapshot.generation)),
        Ok(written) if written.refs != *snapshot.refs || written.packs != snapshot.files => {
            problems.push(format!("generation {}: it is not what is being served", snapshot.generation));
        }
        Ok(_) => {}
    }
    let hash = snapshot.refs.hash();
    for file in &snapshot.files {
        if let Err(why) = audit_pack(mirror, file, hash) {
            problems.push(format!("{}: {why}", pack_name(&file.checksum)));
        }
    }
    if let Err(why) = audit_links(&snapshot) {
        problems.push(why);
    }
    // A generation that was replaced meanwhile has lost its file, and that is right.
    let replaced = mirror.snapshot().is_none_or(|now| !Arc::ptr_eq(&now, &snapshot));
    if replaced && !problems.is_empty() { audit(mirror) } else { problems }
}

fn audit_pack(mirror: &Mirror, file: &PackFile, hash: Kind) -> Result<(), String> {
    let path = mirror.folder.pack(&file.checksum);
    let limit = usize::try_from(mirror.limits.object_bytes).unwrap_or(usize::MAX);
    let check = || -> Result<(), String> {
        let index = index::File::at(path.with_extension("idx"), hash).map_err(|error| error.to_string())?;
        let data = data::File::at(&path, hash).map_err(|error| error.to_string())?;
        let data = data.with_alloc_limit_bytes(Some(limit));
        if data.checksum() != file.checksum || index.pack_checksum() != file.checksum {
            return Err("it is another pack".to_owned());
        }
        let options = index::verify::integrity::Options {
            verify_mode: index::verify::Mode::HashCrc32,
            traversal: index::traverse::Algorithm::DeltaTreeLookup,
            thread_limit: Some(mirror.limits.index_threads),
            make_pack_lookup_cache: || cache::Never,
        };
        let context = index::verify::PackContext { data: &data, options };
        let outcome = index.verify_integrity(Some(context), &mut Discard, &AtomicBool::new(false));
        outcome.map(|_| ()).map_err(|error| error.to_string())
    };
    // Rotten bytes may be anything; a panic over them is a finding.
    catch_unwind(AssertUnwindSafe(check)).unwrap_or_else(|_| Err("it cannot be read".to_owned()))
}

fn audit_links(snapshot: &Snapshot) -> Result<(), String> {
    let tips = connect::tips(&snapshot.refs, &snapshot.retained, &snapshot.roots);
    match connect::connected(&snapshot.packs, &tips, &snapshot.boundary, None) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}
