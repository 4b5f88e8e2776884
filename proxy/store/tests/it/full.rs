//! A disk that takes no more: answers go on, keeping ends.

use std::{io::Write as _, time::Duration};

use http_body_util::BodyExt as _;
use tidegate_name::Digest;
use tidegate_store::{Error, Finished, StoreConfig};
use tokio::time::Instant;

use crate::{Place, begin, config, content, read};

const SIZE: usize = 20 << 20;

async fn small_disk() -> Place {
    Place::new(&StoreConfig { write_limit: Some(300_000), ..config() }).await
}

#[tokio::test]
async fn what_the_disk_does_not_take_passes_through() {
    let place = small_disk().await;
    let bytes = content(SIZE);
    let (mut writer, growing) = place.store.begin(&begin()).unwrap();
    let followers =
        [0, 100_000, 10_000_000].map(|from| (from, tokio::spawn(read(growing.reader(from as u64)))));
    writer.write(bytes.slice(..200_000)).await.unwrap();
    writer.flush().await.unwrap();
    assert!(writer.path().is_some());
    writer.write(bytes.slice(200_000..)).await.unwrap();
    writer.flush().await.unwrap();
    assert!(writer.path().is_none());
    let finished = writer.finish(Some(Digest::of(&bytes))).await.unwrap();
    assert!(matches!(finished, Finished::Unkept { size, .. } if size == SIZE as u64));
    for (from, follower) in followers {
        assert!(follower.await.unwrap().unwrap() == bytes.slice(from..), "from {from}");
    }
    assert!(place.store.get(&Digest::of(&bytes)).await.is_none());
    assert_eq!(place.files_in_tmp(), 0);
}

#[tokio::test]
async fn a_late_joiner_of_an_unkept_fill_is_refused_at_once() {
    let place = small_disk().await;
    let (mut writer, growing) = place.store.begin(&begin()).unwrap();
    writer.write(content(SIZE)).await.unwrap();
    assert!(!growing.holds(0));
    let error = read(growing.reader(0)).await.unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(Error::Passed { at: 0 })));
    assert!(growing.holds(SIZE as u64 - 1000));
    writer.finish(None).await.unwrap();
}

#[tokio::test]
async fn a_bad_digest_fails_followers_of_an_unkept_fill_too() {
    let place = small_disk().await;
    let (mut writer, growing) = place.store.begin(&begin()).unwrap();
    let follower = tokio::spawn(read(growing.reader(0)));
    writer.write(content(SIZE)).await.unwrap();
    assert!(writer.finish(Some(Digest::of(b""))).await.is_err());
    assert!(follower.await.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_stalls_does_not_stop_the_others() {
    let place = small_disk().await;
    let bytes = content(SIZE);
    let started = Instant::now();
    let (mut writer, growing) = place.store.begin(&begin()).unwrap();
    let mut stalled = growing.reader(0);
    stalled.frame().await_first(&mut writer, &bytes).await;
    let follower = tokio::spawn(read(growing.reader(0)));
    writer.write(bytes.slice(1000..)).await.unwrap();
    writer.finish(Some(Digest::of(&bytes))).await.unwrap();
    assert!(follower.await.unwrap().unwrap() == bytes);
    let error = read(stalled).await.unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(Error::Stalled { seconds: 60 })));
    assert_eq!(started.elapsed().as_secs(), 60);
}

/// Writes a first piece while the reader waits for it.
trait AwaitFirst {
    async fn await_first(self, writer: &mut tidegate_store::Writer, bytes: &bytes::Bytes);
}

impl<F: Future> AwaitFirst for F {
    async fn await_first(self, writer: &mut tidegate_store::Writer, bytes: &bytes::Bytes) {
        let (_, written) = tokio::join!(self, writer.write(bytes.slice(..1000)));
        written.unwrap();
    }
}

#[tokio::test]
async fn a_slow_follower_holds_the_writer_back_not_the_memory() {
    let place = small_disk().await;
    let bytes = content(SIZE);
    let (mut writer, growing) = place.store.begin(&begin()).unwrap();
    let mut body = growing.reader(0);
    let input = bytes.clone();
    let write = tokio::spawn(async move {
        writer.write(input.clone()).await.unwrap();
        writer.finish(Some(Digest::of(&input))).await.unwrap()
    });
    let mut seen = 0_usize;
    while let Some(frame) = body.frame().await {
        let piece = frame.unwrap().into_data().unwrap();
        assert_eq!(piece, bytes.slice(seen..seen + piece.len()));
        seen += piece.len();
        // Disk, window, queue and what is on its way: no more is ever ahead.
        assert!(growing.len() <= (seen + (11 << 20)) as u64);
    }
    assert_eq!(seen, SIZE);
    assert!(write.await.unwrap().entry().is_none());
}

#[tokio::test]
async fn a_blocking_writer_passes_through_as_well() {
    let place = small_disk().await;
    let bytes = content(SIZE);
    let (mut writer, growing) = place.store.begin(&begin()).unwrap();
    let follower = tokio::spawn(read(growing.reader(0)));
    let input = bytes.clone();
    let written = tokio::task::spawn_blocking(move || {
        for piece in input.chunks(100_000) {
            writer.write_all(piece).unwrap();
        }
        writer.finish_blocking(Some(Digest::of(&input))).unwrap()
    });
    assert!(tokio::time::timeout(Duration::from_secs(60), written).await.unwrap().unwrap().entry().is_none());
    assert!(follower.await.unwrap().unwrap() == bytes);
}
