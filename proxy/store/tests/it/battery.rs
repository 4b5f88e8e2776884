//! The conformance battery: the same claims for every kind of store, with
//! disk, with disk and memory, and with nothing but memory.

use std::sync::Arc;

use bytes::Bytes;
use bytesize::ByteSize;
use tidegate_name::Digest;
use tidegate_store::{Store, StoreConfig};

use crate::{Place, config, content, read};

async fn a_value_reads_back_as_it_was_stored(store: &Arc<Store>) {
    for size in [0, 1, 4096, 60_000] {
        let bytes = content(size);
        let stored = store.put(bytes.clone()).await.unwrap();
        assert_eq!((stored.digest(), stored.size()), (&Digest::of(&bytes), size as u64));
        let entry = store.get(stored.digest()).await.unwrap();
        assert_eq!(entry.size(), size as u64);
        assert_eq!(entry.bytes().await.unwrap(), bytes);
        assert_eq!(read(entry.reader(None)).await.unwrap(), bytes);
    }
}

async fn any_range_is_read_exactly(store: &Arc<Store>) {
    let bytes = content(50_000);
    let entry = store.put(bytes.clone()).await.unwrap();
    let entry = store.get(entry.digest()).await.unwrap();
    for (start, end) in [(0, 1), (0, 50_000), (49_999, 50_000), (7, 7), (1000, 40_000), (49_000, 90_000)] {
        let expected = bytes.slice(start..end.min(bytes.len()));
        let range = start as u64..end as u64;
        assert_eq!(read(entry.reader(Some(range))).await.unwrap(), expected, "{start}..{end}");
    }
    assert!(read(entry.reader(Some(60_000..70_000))).await.unwrap().is_empty());
}

async fn what_was_never_stored_is_not_there(store: &Arc<Store>) {
    assert!(store.get(&Digest::of(b"never stored")).await.is_none());
}

async fn storing_twice_is_storing_once(store: &Arc<Store>) {
    let entries = store.usage().entries;
    let first = store.put(Bytes::from("twice")).await.unwrap();
    let again = store.put(Bytes::from("twice")).await.unwrap();
    assert_eq!(first.digest(), again.digest());
    assert!(store.usage().entries <= entries + 1);
}

async fn a_removed_value_is_gone_but_is_read_to_its_end(store: &Arc<Store>) {
    let bytes = content(30_000);
    let digest = *store.put(bytes.clone()).await.unwrap().digest();
    let open = store.get(&digest).await.unwrap();
    store.remove(&digest).await;
    assert!(store.get(&digest).await.is_none());
    assert_eq!(read(open.reader(None)).await.unwrap(), bytes);
}

async fn a_hundred_tasks_may_store_at_once(store: &Arc<Store>) {
    let tasks = (0..100).map(|number: usize| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            // Every value is stored by four of them.
            let bytes = content(1000 + number / 4);
            let entry = store.put(bytes.clone()).await.unwrap();
            assert_eq!(store.get(entry.digest()).await.unwrap().bytes().await.unwrap(), bytes);
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

async fn battery(config: &StoreConfig) {
    let place = Place::new(config).await;
    let store = &place.store;
    a_value_reads_back_as_it_was_stored(store).await;
    any_range_is_read_exactly(store).await;
    what_was_never_stored_is_not_there(store).await;
    storing_twice_is_storing_once(store).await;
    a_removed_value_is_gone_but_is_read_to_its_end(store).await;
    a_hundred_tasks_may_store_at_once(store).await;
    assert_eq!(place.files_in_tmp(), 0);
    store.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_of_disk_and_memory_conforms() {
    battery(&config()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_of_disk_alone_conforms() {
    battery(&StoreConfig { memory_limit: ByteSize::b(0), ..config() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_whose_disk_takes_nothing_conforms() {
    battery(&StoreConfig { write_limit: Some(0), ..config() }).await;
}

#[tokio::test]
async fn content_is_a_private_plain_file_named_by_its_digest() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new(&config()).await;
    let entry = place.store.put(Bytes::from("tide")).await.unwrap();
    let hex = entry.digest().to_hex();
    let path = place.folder.path().join("content-v2/sha256").join(&hex[..2]).join(&hex[2..4]).join(&hex[4..]);
    assert_eq!(entry.path(), path);
    assert_eq!(std::fs::read(&path).unwrap(), b"tide");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_link_holds_the_content_without_a_second_copy() {
    use std::os::unix::fs::MetadataExt as _;
    let place = Place::new(&config()).await;
    let entry = place.store.put(content(8192)).await.unwrap();
    assert_eq!(place.store.usage().disk, 8192);
    let link = place.folder.path().join("elsewhere");
    entry.link(&link).unwrap();
    assert_eq!(link.metadata().unwrap().ino(), entry.path().metadata().unwrap().ino());
    // Its bytes count where the link is from now on.
    assert_eq!(place.store.usage().disk, 0);
    // The same if the link was made by the path.
    let other = place.store.put(content(8193)).await.unwrap();
    std::fs::hard_link(other.path(), place.folder.path().join("by its path")).unwrap();
    other.notice_links();
    assert_eq!(place.store.usage().disk, 0);
}

#[tokio::test]
async fn an_audit_sets_damage_aside_and_nothing_else() {
    let place = Place::new(&StoreConfig { memory_limit: ByteSize::b(0), ..config() }).await;
    let good = place.store.put(content(100_000)).await.unwrap();
    let bad = place.store.put(content(100_001)).await.unwrap();
    let mut bytes = std::fs::read(bad.path()).unwrap();
    bytes[5000] ^= 1;
    std::fs::write(bad.path(), bytes).unwrap();
    let audit = place.store.verify().await.unwrap();
    assert_eq!((audit.files, audit.bytes, audit.damaged, audit.strange), (2, 200_001, 1, 0));
    assert_eq!(audit.damages[0].path, bad.path());
    assert!(place.store.get(bad.digest()).await.is_none());
    assert!(place.store.get(good.digest()).await.is_some());
    let after = tidegate_store::verify_folder(place.folder.path()).unwrap();
    assert_eq!((after.files, after.damaged), (1, 0));
}

#[tokio::test]
async fn damaged_small_content_is_never_served() {
    let place = Place::new(&config()).await;
    let entry = place.store.put(Bytes::from("small and good")).await.unwrap();
    let (digest, path) = (*entry.digest(), entry.path());
    std::fs::write(path, "small and evil").unwrap();
    let place = place.reopened().await;
    assert!(place.store.get(&digest).await.is_none());
    // And it is healed by storing it again.
    place.store.put(Bytes::from("small and good")).await.unwrap();
    assert_eq!(place.store.get(&digest).await.unwrap().bytes().await.unwrap(), "small and good");
}
