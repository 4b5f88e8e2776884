//! `tidegate fsck --offline`: the audit without a server.

use super::{Exit, load, remote, runtime};
use crate::{config::Source, data_dir::DataDir, wiring::House};

pub(super) fn offline(source: &Source) -> anyhow::Result<Exit> {
    let config = match load(source) {
        Ok(config) => config,
        Err(exit) => return Ok(exit),
    };
    // The lock is what says that no server writes meanwhile.
    let data = DataDir::open(&config.data)?;
    runtime()?.block_on(async {
        let house = House::open(&config, &data).await?;
        let mut rooms = serde_json::Map::new();
        for room in house.inspected() {
            let done = serde_json::to_value(room.fsck().await)?;
            rooms.insert(room.protocol().to_owned(), done);
        }
        house.store.shutdown().await;
        Ok(remote::tell("checked", &rooms.into()))
    })
}
