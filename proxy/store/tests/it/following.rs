//! Followers of growing content.

use std::io::Write as _;

use bytes::Bytes;
use futures_util::{FutureExt as _, future::join_all};
use http_body_util::BodyExt as _;
use proptest::prelude::*;
use tidegate_name::{Algorithm, Digest, Hasher};
use tidegate_store::{Begin, Error, Finished, StoreConfig};

use crate::{Place, begin, config, content, read, until};

#[tokio::test]
async fn early_and_late_followers_see_the_same_bytes() {
    let place = Place::new(&config()).await;
    let bytes = content(3_000_000);
    let (mut writer, growing) = place.store.begin(&begin()).unwrap();
    let early = tokio::spawn(read(growing.reader(0)));
    writer.write(bytes.slice(..1_000_000)).await.unwrap();
    let middle = tokio::spawn(read(growing.reader(500_000)));
    writer.write(bytes.slice(1_000_000..)).await.unwrap();
    let finished = writer.finish(Some(Digest::of(&bytes))).await.unwrap();
    let late = read(growing.reader(0)).await.unwrap();
    assert_eq!(early.await.unwrap().unwrap(), bytes);
    assert_eq!(middle.await.unwrap().unwrap(), bytes.slice(500_000..));
    assert_eq!(late, bytes);
    let entry = finished.entry().unwrap();
    assert_eq!(read(entry.reader(Some(2_999_990..3_000_000))).await.unwrap(), bytes.slice(2_999_990..));
    assert_eq!(growing.outcome().await.unwrap().digest(), &Digest::of(&bytes));
    assert_eq!(place.files_in_tmp(), 0);
}

#[tokio::test]
async fn the_withheld_end_is_not_seen_before_the_content_is_verified() {
    let place = Place::new(&config()).await;
    let bytes = content(200_000);
    let (mut writer, growing) = place.store.begin(&begin()).unwrap();
    let mut body = growing.reader(0);
    writer.write(bytes.clone()).await.unwrap();
    writer.flush().await.unwrap();
    assert_eq!(growing.len(), 199_980);
    let mut seen = Vec::new();
    while seen.len() < 199_980 {
        seen.extend_from_slice(&body.frame().await.unwrap().unwrap().into_data().unwrap());
    }
    assert!(body.frame().now_or_never().is_none());
    writer.finish(None).await.unwrap();
    seen.extend_from_slice(&read(body).await.unwrap());
    assert_eq!(seen, bytes);
}

#[tokio::test]
async fn a_slow_drip_is_visible_at_once() {
    let place = Place::new(&config()).await;
    let (mut writer, growing) = place.store.begin(&Begin { withhold: 0, ..begin() }).unwrap();
    let mut body = growing.reader(0);
    for byte in *b"drip" {
        writer.write(Bytes::copy_from_slice(&[byte])).await.unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), &[byte][..]);
    }
}

#[tokio::test]
async fn a_bad_digest_publishes_nothing_and_fails_every_follower() {
    let place = Place::new(&config()).await;
    let bytes = content(100_000);
    let (mut writer, growing) = place.store.begin(&begin()).unwrap();
    let follower = tokio::spawn(read(growing.reader(0)));
    writer.write(bytes.clone()).await.unwrap();
    let error = writer.finish(Some(Digest::of(b"something else"))).await.unwrap_err();
    assert!(matches!(error, Error::Mismatch { found, .. } if *found == Digest::of(&bytes)));
    assert!(follower.await.unwrap().is_err());
    assert!(read(growing.reader(0)).await.is_err());
    assert!(matches!(growing.outcome().await, Err(Error::Mismatch { .. })));
    assert!(!growing.holds(0));
    assert!(place.store.get(&Digest::of(&bytes)).await.is_none());
    assert!(place.store.get(&Digest::of(b"something else")).await.is_none());
    until(|| place.files_in_tmp() == 0 && place.store.usage().disk == 100_000).await;
    drop(growing);
    until(|| place.store.usage().disk == 0).await;
}

#[tokio::test]
async fn a_writer_that_gives_up_fails_its_followers_and_leaves_nothing() {
    let place = Place::new(&config()).await;
    let (mut writer, growing) = place.store.begin(&begin()).unwrap();
    writer.write(content(100_000)).await.unwrap();
    writer.flush().await.unwrap();
    assert!(writer.path().unwrap().exists());
    drop(writer);
    assert_eq!(growing.outcome().await.unwrap_err().to_string(), "the fill broke off: its writer gave up");
    let (writer, growing) = place.store.begin(&begin()).unwrap();
    writer.fail("the upstream hung up");
    let error = read(growing.reader(0)).await.unwrap_err();
    assert_eq!(error.to_string(), "the fill broke off: the upstream hung up");
    until(|| place.files_in_tmp() == 0).await;
}

#[tokio::test]
async fn content_over_its_cap_is_refused() {
    let place = Place::new(&config()).await;
    let (mut writer, growing) = place.store.begin(&Begin { max: 1000, ..begin() }).unwrap();
    writer.write(content(1001)).await.unwrap();
    assert!(matches!(writer.flush().await, Err(Error::TooLarge { limit: 1000 })));
    assert!(matches!(writer.write(content(1)).await, Err(Error::TooLarge { limit: 1000 })));
    assert!(matches!(growing.outcome().await, Err(Error::TooLarge { limit: 1000 })));
}

#[tokio::test]
async fn a_finish_that_nobody_waits_for_is_still_made() {
    let place = Place::new(&config()).await;
    let bytes = content(100_000);
    let (mut writer, growing) = place.store.begin(&begin()).unwrap();
    writer.write(bytes.clone()).await.unwrap();
    let mut finish = Box::pin(writer.finish(None));
    assert!(finish.as_mut().now_or_never().is_none());
    drop(finish);
    assert!(matches!(growing.outcome().await, Ok(Finished::Kept(_))));
}

#[tokio::test]
async fn a_blocking_writer_is_followed_like_any_other() {
    let place = Place::new(&config()).await;
    let bytes = content(1_000_000);
    let (mut writer, growing) = place.store.begin(&begin()).unwrap();
    let follower = tokio::spawn(read(growing.reader(0)));
    let input = bytes.clone();
    let finished = tokio::task::spawn_blocking(move || {
        for piece in input.chunks(777) {
            writer.write_all(piece).unwrap();
        }
        std::io::Write::flush(&mut writer).unwrap();
        assert_eq!(std::fs::read(writer.path().unwrap()).unwrap(), input);
        writer.finish_blocking(Some(Digest::of(&input))).unwrap()
    });
    assert!(finished.await.unwrap().entry().is_some());
    assert_eq!(follower.await.unwrap().unwrap(), bytes);
}

#[tokio::test]
async fn a_write_dropped_halfway_spoils_the_fill() {
    let place = Place::new(&config()).await;
    let (mut writer, growing) = place.store.begin(&begin()).unwrap();
    // More than the queue takes at once.
    assert!(writer.write(content(8 << 20)).now_or_never().is_none());
    assert!(writer.finish(None).await.is_err());
    assert!(growing.outcome().await.is_err());
    assert_eq!(place.store.usage().entries, 0);
}

#[tokio::test]
async fn content_that_was_linked_while_it_grew_counts_where_the_link_is() {
    let place = Place::new(&config()).await;
    let bytes = content(100_000);
    let (mut writer, _growing) = place.store.begin(&begin()).unwrap();
    writer.write(bytes.clone()).await.unwrap();
    writer.flush().await.unwrap();
    let pack = place.folder.path().join("pack");
    std::fs::hard_link(writer.path().unwrap(), &pack).unwrap();
    writer.finish(None).await.unwrap();
    assert_eq!(std::fs::read(pack).unwrap(), bytes);
    assert_eq!((place.store.usage().disk, place.store.usage().entries), (0, 1));
}

#[tokio::test]
async fn sha512_content_is_named_by_sha512() {
    let place = Place::new(&config()).await;
    let mut hasher = Hasher::new(Algorithm::Sha512);
    hasher.update(b"tide");
    let digest = hasher.finish();
    let (mut writer, _) = place.store.begin(&Begin { algorithm: Algorithm::Sha512, ..begin() }).unwrap();
    writer.write(Bytes::from("tide")).await.unwrap();
    writer.finish(Some(digest)).await.unwrap();
    assert_eq!(place.store.get(&digest).await.unwrap().bytes().await.unwrap(), "tide");
    assert_eq!(tidegate_store::verify_folder(place.folder.path()).unwrap().damaged, 0);
}

#[tokio::test]
async fn empty_content_is_content() {
    let place = Place::new(&config()).await;
    let (writer, growing) = place.store.begin(&begin()).unwrap();
    let finished = writer.finish(Some(Digest::of(b""))).await.unwrap();
    assert_eq!(finished.size(), 0);
    assert!(read(growing.reader(0)).await.unwrap().is_empty());
    assert!(place.store.get(&Digest::of(b"")).await.is_some());
}

#[tokio::test]
async fn content_filled_twice_at_once_is_kept_once() {
    let place = Place::new(&config()).await;
    let bytes = content(70_000);
    let fills = (0..2).map(|_| async {
        let (mut writer, growing) = place.store.begin(&begin()).unwrap();
        writer.write(bytes.clone()).await.unwrap();
        let finished = writer.finish(None).await.unwrap();
        assert_eq!(read(growing.reader(0)).await.unwrap(), bytes);
        finished.entry().unwrap().clone()
    });
    let entries = join_all(fills).await;
    assert_eq!(entries[0].path(), entries[1].path());
    assert_eq!(place.store.usage().entries, 1);
    assert_eq!(place.files_in_tmp(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// However the bytes come in, wherever followers begin, and wherever the
    /// disk fills up: each sees exactly the content from its first byte.
    #[test]
    fn every_follower_sees_exactly_the_content(
        pieces in prop::collection::vec(0_usize..200_000, 0..12),
        starts in prop::collection::vec(0_u64..400_000, 1..5),
        withhold in 0_usize..3000,
        write_limit in prop::option::of(0_u64..1_000_000),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let place = Place::new(&StoreConfig { write_limit, ..config() }).await;
            let bytes = content(pieces.iter().sum());
            let (mut writer, growing) = place.store.begin(&Begin { withhold, ..begin() }).unwrap();
            let followers: Vec<_> =
                starts.iter().map(|from| (*from, tokio::spawn(read(growing.reader(*from))))).collect();
            let mut at = 0;
            for piece in pieces {
                writer.write(bytes.slice(at..at + piece)).await.unwrap();
                at += piece;
                assert!(growing.len() <= (at as u64).saturating_sub(withhold as u64));
            }
            writer.finish(Some(Digest::of(&bytes))).await.unwrap();
            for (from, follower) in followers {
                let from = usize::try_from(from).unwrap().min(bytes.len());
                assert_eq!(follower.await.unwrap().unwrap(), bytes.slice(from..));
            }
        });
    }
}
