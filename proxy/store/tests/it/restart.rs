//! What survives a restart, a kill and a lost or damaged index.

use std::fs;

use bytes::Bytes;
use tidegate_name::Digest;
use tidegate_store::{Error, Store};

use crate::{Place, begin, config, content, until};

#[tokio::test]
async fn a_killed_fill_leaves_a_temporary_file_that_the_next_start_sweeps() {
    let place = Place::new(&config()).await;
    let (mut writer, growing) = place.store.begin(&begin()).unwrap();
    writer.write(content(100_000)).await.unwrap();
    writer.flush().await.unwrap();
    // As if killed: nothing of it runs any more.
    std::mem::forget(writer);
    drop(growing);
    assert_eq!(place.files_in_tmp(), 1);
    let place = place.reopened().await;
    assert_eq!(place.files_in_tmp(), 0);
    assert_eq!(place.store.usage().disk, 0);
}

#[tokio::test]
async fn content_survives_a_restart() {
    let place = Place::new(&config()).await;
    let bytes = content(100_000);
    let digest = *place.store.put(bytes.clone()).await.unwrap().digest();
    let usage = place.store.usage();
    let place = place.reopened().await;
    assert_eq!(place.store.get(&digest).await.unwrap().bytes().await.unwrap(), bytes);
    assert_eq!((place.store.usage().disk, place.store.usage().entries), (usage.disk, 1));
}

#[tokio::test]
async fn without_its_index_everything_is_still_there_at_once() {
    for damage in [None, Some(b"not an index".to_vec()), Some(vec![0; 70_000])] {
        let place = Place::new(&config()).await;
        let digests = [1000, 70_000].map(content);
        for bytes in &digests {
            place.store.put(bytes.clone()).await.unwrap();
        }
        let usage = place.store.usage();
        let folder = place.closed().await;
        let index = folder.path().join("index.redb");
        match damage {
            None => fs::remove_file(index).unwrap(),
            Some(garbage) => fs::write(index, garbage).unwrap(),
        }
        let store = Store::open(folder.path(), &config()).await.unwrap();
        for bytes in &digests {
            assert_eq!(store.get(&Digest::of(bytes)).await.unwrap().bytes().await.unwrap(), bytes);
        }
        until(|| store.is_reconciled()).await;
        assert_eq!((store.usage().disk, store.usage().entries), (usage.disk, 2));
        store.shutdown().await;
    }
}

#[tokio::test]
async fn an_index_damaged_anywhere_never_stops_the_start() {
    let place = Place::new(&config()).await;
    let table = place.store.table("verdicts", 1000);
    for number in 0..500_u32 {
        table.put(&number.to_be_bytes(), number.to_string());
    }
    let bytes = content(1000);
    place.store.put(bytes.clone()).await.unwrap();
    let folder = place.closed().await;
    let index = folder.path().join("index.redb");
    let whole = fs::read(&index).unwrap();
    for part in 0..40 {
        let mut damaged = whole.clone();
        let at = part * whole.len() / 40;
        damaged[at..(at + 64).min(whole.len())].fill(0xa5);
        if part % 4 == 0 {
            damaged.truncate(at);
        }
        fs::write(&index, damaged).unwrap();
        let store = Store::open(folder.path(), &config()).await.unwrap();
        assert!(store.get(&Digest::of(&bytes)).await.is_some(), "damaged at {at}");
        for (key, value) in store.table("verdicts", 1000).rows() {
            let number = u32::from_be_bytes(key[..].try_into().unwrap());
            assert_eq!(value, number.to_string());
        }
        store.shutdown().await;
    }
}

#[tokio::test]
async fn a_record_without_its_file_is_forgotten() {
    let place = Place::new(&config()).await;
    let kept = place.store.put(Bytes::from("kept")).await.unwrap();
    let lost = place.store.put(Bytes::from("lost")).await.unwrap();
    fs::remove_file(lost.path()).unwrap();
    let (kept, lost) = (*kept.digest(), *lost.digest());
    let place = place.reopened().await;
    assert!(place.store.get(&lost).await.is_none());
    assert!(place.store.get(&kept).await.is_some());
    until(|| place.store.is_reconciled()).await;
    assert_eq!(place.store.usage().entries, 1);
}

#[tokio::test]
async fn a_folder_in_use_is_refused_before_anything_is_touched() {
    let place = Place::new(&config()).await;
    let (mut writer, _) = place.store.begin(&begin()).unwrap();
    writer.write(content(1000)).await.unwrap();
    writer.flush().await.unwrap();
    let error = Store::open(place.folder.path(), &config()).await.unwrap_err();
    assert!(matches!(error, Error::InUse { .. }));
    assert!(error.to_string().contains("is in use by another tidegate"));
    assert_eq!(place.files_in_tmp(), 1);
}

#[tokio::test]
async fn a_table_survives_a_restart_with_its_newest_values() {
    let place = Place::new(&config()).await;
    let table = place.store.table("verdicts", 100);
    table.put(b"a", "1");
    table.put(b"b", "2");
    table.put(b"a", "3");
    table.put(b"c", "4");
    assert!(table.delete(b"c"));
    assert!(!table.delete(b"c"));
    table.flush().await.unwrap();
    table.put(b"d", "5");
    let place = place.reopened().await;
    let table = place.store.table("verdicts", 100);
    assert_eq!(table.get(b"a").unwrap(), "3");
    assert_eq!(table.get(b"b").unwrap(), "2");
    assert_eq!(table.get(b"c"), None);
    // An orderly end loses nothing, flushed or not.
    assert_eq!(table.get(b"d").unwrap(), "5");
    assert!(place.store.table("schedule", 100).is_empty());
}

#[tokio::test]
async fn a_full_table_loses_its_least_recently_used_row() {
    let place = Place::new(&config()).await;
    let table = place.store.table("tags", 3);
    for key in ["a", "b", "c"] {
        table.put(key.as_bytes(), key);
    }
    table.get(b"a").unwrap();
    table.put(b"d", "d");
    assert_eq!(table.get(b"b"), None);
    assert_eq!(table.len(), 3);
    let order: Vec<_> = table.rows().into_iter().map(|(key, _)| key).collect();
    assert_eq!(order, ["c", "a", "d"]);
    let place = place.reopened().await;
    // With a smaller cap the oldest go, at the next start too.
    let table = place.store.table("tags", 2);
    assert_eq!(table.len(), 2);
    assert!(table.get(b"d").is_some());
}

#[tokio::test]
async fn after_shutdown_tables_still_answer_but_say_that_they_are_not_saved() {
    let place = Place::new(&config()).await;
    let table = place.store.table("verdicts", 10);
    place.store.shutdown().await;
    table.put(b"a", "1");
    assert_eq!(table.get(b"a").unwrap(), "1");
    assert!(matches!(table.flush().await, Err(Error::IndexAway { .. })));
}
