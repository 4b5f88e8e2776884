//! Reading a file in chunks without ever blocking an async thread.
//!
//! What is in the page cache (a growing file nearly always is) is read in
//! place by `preadv2(RWF_NOWAIT)`, which costs a copy and nothing else; only
//! what would wait for the disk goes to the blocking pool.

use std::{
    fs::File,
    io::{self, IoSliceMut},
    os::unix::fs::FileExt as _,
    sync::Arc,
};

use bytes::Bytes;
use rustix::io::{ReadWriteFlags, preadv2};

/// How much is read at once.
pub(crate) const CHUNK: u64 = 128 << 10;

/// Reads up to `most` bytes from `at`, at least one. A file that ends before
/// `at` is an error: callers know how long theirs is.
pub(crate) async fn chunk(file: &Arc<File>, at: u64, most: u64) -> io::Result<Bytes> {
    let size = usize::try_from(most.min(CHUNK)).unwrap_or(usize::MAX);
    let mut buffer = vec![0; size];
    let ready = preadv2(&**file, &mut [IoSliceMut::new(&mut buffer)], at, ReadWriteFlags::NOWAIT);
    if let Ok(count @ 1..) = ready {
        buffer.truncate(count);
        return Ok(buffer.into());
    }
    // Not in memory, no such call here, or a true error, which comes again.
    let file = Arc::clone(file);
    let read = tokio::task::spawn_blocking(move || {
        let count = read_some(&file, &mut buffer, at)?;
        buffer.truncate(count);
        Ok(Bytes::from(buffer))
    });
    read.await.map_err(io::Error::other)?
}

/// Reads all of a file that is known to be `size` bytes long. Blocks.
pub(crate) fn whole(file: &File, size: u64) -> io::Result<Bytes> {
    let mut buffer = vec![0; usize::try_from(size).map_err(io::Error::other)?];
    file.read_exact_at(&mut buffer, 0)?;
    Ok(buffer.into())
}

fn read_some(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, at) {
            Ok(0) if !buffer.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
