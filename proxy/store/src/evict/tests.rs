//! Who goes first, who stays, and what happens when nobody can go.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use bytesize::ByteSize;
use tidegate_name::Algorithm;

use super::*;
use crate::{clock::lock, config::StoreConfig, store::Begin};

const ENTRY: u64 = 100 << 12;

async fn store(entries: u64) -> (tempfile::TempDir, Arc<Store>) {
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        disk_limit: ByteSize::b(entries * ENTRY),
        reserve: Some(ByteSize::b(0)),
        ..StoreConfig::default()
    };
    let store = Store::open(folder.path(), &config).await.unwrap();
    // Evictions here are made by hand, when the test says so.
    store.stop_evicting();
    (folder, store)
}

async fn put(store: &Arc<Store>, number: u8) -> Digest {
    let bytes = Bytes::from(vec![number; usize::try_from(ENTRY).unwrap()]);
    *store.put(bytes).await.unwrap().digest()
}

async fn make_room(store: &Arc<Store>) {
    let store = Arc::clone(store);
    tokio::task::spawn_blocking(move || store.make_room()).await.unwrap();
}

fn held(store: &Arc<Store>, digests: &[Digest]) -> Vec<bool> {
    digests.iter().map(|digest| store.layout.content(digest).exists()).collect()
}

#[derive(Default)]
struct Mirror {
    bytes: AtomicU64,
    used: Mutex<Option<SystemTime>>,
    open: AtomicBool,
}

impl Group for Mirror {
    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn last_used(&self) -> SystemTime {
        lock(&self.used).unwrap_or(UNIX_EPOCH)
    }

    fn evict(&self) -> bool {
        let free = !self.open.load(Ordering::Relaxed);
        if free {
            self.bytes.store(0, Ordering::Relaxed);
        }
        free
    }
}

#[tokio::test]
async fn the_least_recently_used_go_first_down_to_low_water() {
    let (_folder, store) = store(10).await;
    let mut digests = Vec::new();
    for number in 0..10 {
        digests.push(put(&store, number).await);
    }
    make_room(&store).await;
    assert_eq!(store.usage().entries, 10, "at the limit nothing goes");
    // The first one is used again, so the second is the oldest.
    assert!(store.get(&digests[0]).await.is_some());
    digests.push(put(&store, 10).await);
    make_room(&store).await;
    let gone = [1, 2];
    let expected: Vec<_> = (0..11).map(|number| !gone.contains(&number)).collect();
    assert_eq!(held(&store, &digests), expected);
    assert_eq!(store.usage().disk, 9 * ENTRY);
    assert_eq!(store.usage().disk_evictions, 2);
    assert!(store.get(&digests[1]).await.is_none());
}

#[tokio::test]
async fn what_is_pinned_or_open_stays() {
    let (_folder, store) = store(4).await;
    let pinned = store.pin(&put(&store, 0).await);
    let open = {
        let digest = put(&store, 1).await;
        store.get(&digest).await.unwrap()
    };
    let body = open.reader(None);
    let digest = *open.digest();
    drop(open);
    let open = digest;
    let third = put(&store, 2).await;
    for number in 3..6 {
        put(&store, number).await;
    }
    make_room(&store).await;
    assert_eq!(held(&store, &[*pinned.digest(), open, third]), [true, true, false]);
    let released = *pinned.digest();
    drop((pinned, body));
    for number in 6..8 {
        put(&store, number).await;
    }
    make_room(&store).await;
    assert_eq!(held(&store, &[released, open]), [false, false]);
}

#[tokio::test]
async fn a_group_goes_whole_in_its_turn_and_never_while_it_is_open() {
    let (_folder, store) = store(10).await;
    let old = put(&store, 0).await;
    let mirrors = [(); 2].map(|()| Arc::new(Mirror::default()));
    let accounts: Vec<_> =
        mirrors.iter().map(|mirror| store.account(Arc::clone(mirror) as Arc<dyn Group>)).collect();
    for mirror in &mirrors {
        mirror.bytes.store(4 * ENTRY, Ordering::Relaxed);
        *lock(&mirror.used) = Some(SystemTime::now());
    }
    mirrors[0].open.store(true, Ordering::Relaxed);
    let new = put(&store, 1).await;
    make_room(&store).await;
    assert_eq!(store.usage().disk, 10 * ENTRY, "at the limit nothing goes");
    let newest = put(&store, 2).await;
    accounts[0].changed();
    make_room(&store).await;
    // The old entry frees one unit, the open mirror none, the other one four.
    assert_eq!(held(&store, &[old, new, newest]), [false, true, true]);
    assert_eq!(mirrors[0].bytes(), 4 * ENTRY);
    assert_eq!(mirrors[1].bytes(), 0);
    assert_eq!(store.usage().disk, 6 * ENTRY);
    drop(accounts);
    make_room(&store).await;
    assert_eq!(store.usage().disk, 2 * ENTRY);
}

#[tokio::test]
async fn deleting_what_is_linked_elsewhere_frees_nothing_so_it_stays() {
    let (folder, store) = store(4).await;
    let linked = put(&store, 0).await;
    // Behind our back, as a mirror may do it.
    std::fs::hard_link(store.layout.content(&linked), folder.path().join("pack")).unwrap();
    for number in 1..6 {
        put(&store, number).await;
    }
    make_room(&store).await;
    assert_eq!(held(&store, &[linked]), [true]);
    assert_eq!(store.usage().disk, 3 * ENTRY);
    // Once the link is gone its bytes count again, and it is the oldest.
    std::fs::remove_file(folder.path().join("pack")).unwrap();
    for number in 6..8 {
        put(&store, number).await;
    }
    make_room(&store).await;
    assert_eq!(held(&store, &[linked]), [false]);
}

#[tokio::test]
async fn when_nothing_can_go_new_content_passes_through_until_something_can() {
    let (_folder, store) = store(2).await;
    let pins: Vec<_> = [put(&store, 0).await, put(&store, 1).await, put(&store, 2).await]
        .iter()
        .map(|digest| store.pin(digest))
        .collect();
    make_room(&store).await;
    let begin = Begin { algorithm: Algorithm::Sha256, withhold: 0, max: u64::MAX };
    let fill = async |bytes: &'static str| {
        let (mut writer, _growing) = store.begin(&begin).unwrap();
        writer.write(Bytes::from(bytes)).await.unwrap();
        writer.finish(None).await.unwrap()
    };
    assert!(fill("passes through").await.entry().is_none());
    assert!(store.put(Bytes::from("small")).await.is_ok());
    assert!(store.get(&Digest::of(b"small")).await.is_some(), "memory has room for it");
    drop(pins);
    make_room(&store).await;
    assert!(fill("is kept").await.entry().is_some());
}

#[tokio::test]
async fn growth_alone_sets_the_eviction_going() {
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        disk_limit: ByteSize::b(4 * ENTRY),
        reserve: Some(ByteSize::b(0)),
        ..StoreConfig::default()
    };
    let store = Store::open(folder.path(), &config).await.unwrap();
    for number in 0..8 {
        put(&store, number).await;
    }
    while store.usage().disk > 4 * ENTRY {
        tokio::task::yield_now().await;
    }
    assert!(store.usage().disk_evictions >= 4);
}
