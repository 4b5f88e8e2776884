//! One piece of verified content, open for reading.

use std::{
    fmt, fs, fs::File, ops::Range, os::unix::fs::MetadataExt as _, path::Path, path::PathBuf, sync::Arc,
};

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use tidegate_http::Body;
use tidegate_name::Digest;

use crate::{catalog::Pin, error::Error, read, store::Store};

/// The largest content that [`Entry::bytes`] gives in one piece.
const WHOLE: u64 = 64 << 20;

/// Verified content. While any clone of it, or a body made from it, lives, the
/// content is not evicted; a purge ends neither.
#[derive(Clone)]
pub struct Entry {
    shared: Arc<Shared>,
}

struct Shared {
    size: u64,
    content: Content,
    pin: Pin,
    store: Arc<Store>,
}

/// Where the bytes of an entry are.
pub(crate) enum Content {
    /// In memory, and perhaps in a file too.
    Memory(Bytes),
    /// In this open file.
    File(Arc<File>),
}

impl Entry {
    pub(crate) fn new(store: &Arc<Store>, pin: Pin, size: u64, content: Content) -> Self {
        Self { shared: Arc::new(Shared { size, content, pin, store: Arc::clone(store) }) }
    }

    /// What it is named by.
    pub fn digest(&self) -> &Digest {
        self.shared.pin.digest()
    }

    /// How many bytes it has.
    pub fn size(&self) -> u64 {
        self.shared.size
    }

    /// The bytes of `range`, or all of them. What of the range lies beyond the
    /// end is left out.
    pub fn reader(&self, range: Option<Range<u64>>) -> Body {
        let range = range.unwrap_or(0..self.shared.size);
        let end = range.end.min(self.shared.size);
        let start = range.start.min(end);
        match &self.shared.content {
            Content::Memory(bytes) => tidegate_http::full(slice(bytes, start, end)),
            Content::File(_) => {
                let entry = self.clone();
                tidegate_http::stream(stream::try_unfold((entry, start), move |(entry, at)| async move {
                    if at >= end {
                        return Ok(None);
                    }
                    let bytes = entry.chunk(at, end - at).await?;
                    let next = at + bytes.len() as u64;
                    Ok(Some((bytes, (entry, next))))
                }))
            }
        }
    }

    /// The whole content in one piece; meant for small ones, refused over 64 MiB.
    pub async fn bytes(&self) -> Result<Bytes, Error> {
        if let Content::Memory(bytes) = &self.shared.content {
            return Ok(bytes.clone());
        }
        if self.shared.size > WHOLE {
            return Err(Error::TooLarge { limit: WHOLE });
        }
        let mut whole = BytesMut::new();
        while (whole.len() as u64) < self.shared.size {
            let at = whole.len() as u64;
            whole.extend_from_slice(&self.chunk(at, self.shared.size - at).await?);
        }
        Ok(whole.freeze())
    }

    async fn chunk(&self, at: u64, most: u64) -> Result<Bytes, Error> {
        match &self.shared.content {
            Content::Memory(bytes) => Ok(slice(bytes, at, at.saturating_add(most).min(self.shared.size))),
            Content::File(file) => read::chunk(file, at, most).await.map_err(Error::io("read", &self.path())),
        }
    }

    /// Its file. There may be none, if the disk had no room for it.
    pub fn path(&self) -> PathBuf {
        self.shared.store.layout.content(self.digest())
    }

    /// Keeps the content under another name too, without a second copy. From
    /// then on its bytes count where the link is. Blocks.
    pub fn link(&self, to: &Path) -> Result<(), Error> {
        match fs::hard_link(self.path(), to) {
            Ok(()) => {
                self.shared.store.catalog.set_linked(self.digest(), true);
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !self.path().exists() => {
                Err(Error::NotOnDisk { digest: *self.digest() })
            }
            Err(error) => Err(Error::io("link content to", to)(error)),
        }
    }

    /// Looks whether the file was linked by its path, past [`Self::link`]: its
    /// bytes then count where the link is. Blocks.
    pub fn notice_links(&self) {
        let linked = fs::metadata(self.path()).is_ok_and(|metadata| metadata.nlink() > 1);
        self.shared.store.catalog.set_linked(self.digest(), linked);
    }

    /// Another pin on the same content, without its open file.
    pub fn pin(&self) -> Pin {
        self.shared.pin.clone()
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({}, {} bytes)", self.digest(), self.size())
    }
}

fn slice(bytes: &Bytes, start: u64, end: u64) -> Bytes {
    let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
    bytes.slice(place(start)..place(end))
}
