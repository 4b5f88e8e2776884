//! Takes in a pack from the upstream: demultiplexed as it arrives, checked
//! against its own trailer, spooled into the store.
//!
//! The async side reads and parses; one blocking task hashes and writes. The
//! trailer is not shown to followers before it was checked, so that no cut or
//! altered pack ever ends cleanly.

use std::{
    io::{self, Write as _},
    time::Duration,
};

use bytes::Bytes;
use gix_hash::Kind as Hash;
use http_body_util::BodyExt as _;
use tidegate_http::{Body, stall_after};
use tidegate_store::{Finished, Writer};
use tokio::sync::mpsc::{self, error::TryRecvError};

use crate::{
    error::Error,
    wire::answer::{AnswerParser, Event, Head},
};

/// An upstream that sends nothing for so long is given up.
const STALL: Duration = Duration::from_secs(60);
/// Pieces between the reader and the writer.
const QUEUE: usize = 16;

enum Piece {
    Bytes(Bytes),
    End,
}

/// Reads the upstream's whole answer into `writer`. `on_head` gets what comes
/// before the pack, as soon as it is there.
pub(crate) async fn receive(
    body: Body,
    mut parser: AnswerParser,
    writer: Writer,
    on_head: impl FnOnce(Head),
) -> Result<Finished, Error> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let spooling = tokio::task::spawn_blocking(move || spool(receiver, writer));
    let read = read(body, &mut parser, &sender, on_head).await;
    if read.is_ok() {
        // A writer that failed has closed the channel; its own error counts.
        let _ = sender.send(Piece::End).await;
    }
    drop(sender);
    let spooled = spooling.await.map_err(Error::internal)?;
    read.and(spooled)
}

async fn read(
    body: Body,
    parser: &mut AnswerParser,
    sender: &mpsc::Sender<Piece>,
    on_head: impl FnOnce(Head),
) -> Result<(), Error> {
    let mut body = stall_after(body, STALL);
    let mut on_head = Some(on_head);
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|error| Error::Remote(format!("the upstream's answer broke off: {error}").into()))?;
        let Ok(bytes) = frame.into_data() else { continue };
        let events = parser.push(&bytes).map_err(|error| Error::Remote(error.to_string().into()))?;
        take(events, sender, &mut on_head).await?;
    }
    let events = parser.finish().map_err(|error| Error::Remote(error.to_string().into()))?;
    take(events, sender, &mut on_head).await
}

async fn take(
    events: Vec<Event>,
    sender: &mpsc::Sender<Piece>,
    on_head: &mut Option<impl FnOnce(Head)>,
) -> Result<(), Error> {
    for event in events {
        match event {
            Event::Head(head) => {
                if let Some(on_head) = on_head.take() {
                    on_head(head);
                }
            }
            Event::Pack(bytes) => {
                if sender.send(Piece::Bytes(bytes)).await.is_err() {
                    return Err(Error::internal("the spool file can't be written"));
                }
            }
            Event::Error(text) => return Err(Error::Remote(text.into())),
            Event::Progress(_) | Event::End => {}
        }
    }
    Ok(())
}

fn spool(mut pieces: mpsc::Receiver<Piece>, mut writer: Writer) -> Result<Finished, Error> {
    let mut trailer = Trailer::new(Hash::Sha1);
    loop {
        let next = match pieces.try_recv() {
            Ok(piece) => Some(piece),
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => {
                // Nothing more for now: what is here is shown to the readers.
                io::Write::flush(&mut writer).map_err(Error::internal)?;
                pieces.blocking_recv()
            }
        };
        match next {
            Some(Piece::Bytes(bytes)) => {
                trailer.update(&bytes);
                writer.write_all(&bytes).map_err(Error::internal)?;
            }
            Some(Piece::End) => break,
            None => {
                writer.fail("the upstream broke off");
                return Err(Error::Remote("the upstream broke off".into()));
            }
        }
    }
    if !trailer.matches() {
        writer.fail("the pack doesn't match its checksum");
        return Err(Error::Remote("the upstream sent a pack that doesn't match its checksum".into()));
    }
    writer.finish_blocking(None).map_err(Error::internal)
}

/// Checks a pack's last bytes against the hash of all before them.
struct Trailer {
    hasher: gix_hash::Hasher,
    /// The last bytes seen, at most as many as the hash has: not hashed yet.
    tail: Vec<u8>,
    size: usize,
}

impl Trailer {
    fn new(hash: Hash) -> Self {
        Self { hasher: gix_hash::hasher(hash), tail: Vec::new(), size: hash.len_in_bytes() }
    }

    fn update(&mut self, bytes: &[u8]) {
        if bytes.len() >= self.size {
            self.hasher.update(&self.tail);
            let at = bytes.len() - self.size;
            self.hasher.update(&bytes[..at]);
            self.tail.clear();
            self.tail.extend_from_slice(&bytes[at..]);
        } else {
            self.tail.extend_from_slice(bytes);
            let over = self.tail.len().saturating_sub(self.size);
            self.hasher.update(&self.tail[..over]);
            self.tail.drain(..over);
        }
    }

    fn matches(self) -> bool {
        self.tail.len() == self.size
            && self.hasher.try_finalize().is_ok_and(|hash| hash.as_bytes() == self.tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right(chunks: &[&[u8]]) -> bool {
        let mut trailer = Trailer::new(Hash::Sha1);
        for chunk in chunks {
            trailer.update(chunk);
        }
        trailer.matches()
    }

    #[test]
    fn a_trailer_is_checked_however_the_bytes_are_cut() {
        let mut hasher = gix_hash::hasher(Hash::Sha1);
        hasher.update(b"PACK and some content");
        let mut pack = b"PACK and some content".to_vec();
        pack.extend_from_slice(hasher.try_finalize().unwrap().as_bytes());
        for size in 1..=pack.len() {
            let chunks: Vec<&[u8]> = pack.chunks(size).collect();
            assert!(right(&chunks), "chunks of {size}");
            assert!(!right(&chunks[..chunks.len() - 1]), "cut, chunks of {size}");
        }
        pack[3] ^= 1;
        assert!(!right(&[&pack]));
        assert!(!right(&[]));
    }
}
