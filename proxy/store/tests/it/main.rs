//! What the store promises, seen from outside.
#![expect(clippy::unwrap_used, reason = "a test that can't go on should fail")]

mod battery;
mod following;
mod full;
mod restart;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use bytesize::ByteSize;
use tidegate_http::{Body, BoxError, collect};
use tidegate_name::Algorithm;
use tidegate_store::{Begin, Store, StoreConfig};

/// A store that lives as long as this does.
struct Place {
    folder: tempfile::TempDir,
    store: Arc<Store>,
}

impl Place {
    async fn new(config: &StoreConfig) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), config).await.unwrap();
        Self { folder, store }
    }

    /// Closes the store in an orderly way and opens it again.
    async fn reopened(self) -> Self {
        let folder = self.closed().await;
        let store = Store::open(folder.path(), &config()).await.unwrap();
        Self { folder, store }
    }

    async fn closed(self) -> tempfile::TempDir {
        self.store.shutdown().await;
        self.folder
    }

    fn files_in_tmp(&self) -> usize {
        std::fs::read_dir(self.folder.path().join("tmp")).unwrap().count()
    }
}

/// As shipped, but blind to how full the machine is that runs the tests.
fn config() -> StoreConfig {
    StoreConfig { reserve: Some(ByteSize::b(0)), ..StoreConfig::default() }
}

fn begin() -> Begin {
    Begin { algorithm: Algorithm::Sha256, withhold: 20, max: 1 << 30 }
}

/// `size` bytes that repeat nowhere near.
fn content(size: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ size as u64;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&state.to_be_bytes());
    }
    bytes.truncate(size);
    bytes.into()
}

async fn read(body: Body) -> Result<Bytes, BoxError> {
    collect(body, 1 << 30).await
}

/// Lets other tasks and threads go on until `done`.
async fn until(done: impl Fn() -> bool) {
    let waiting = async {
        while !done() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("it happens in the end");
}
