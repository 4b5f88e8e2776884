//! Packs made from mirrors, kept as content under their pack key.
//!
//! A hit streams a file. A pack being made is followed by everyone who wants
//! the same. Making one takes a permit: as many as there are cores, four per
//! repository, and a short queue; who only reads takes none.

use std::{
    collections::HashMap,
    io::Write,
    sync::{Arc, Mutex, PoisonError},
};

use tidegate_http::Outcome;
use tidegate_name::{Algorithm, Digest, Repository};
use tidegate_store::{Begin, Finished, Store, Table, Writer};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::{
    Caps,
    error::Error,
    flight::{Flight, Flights, Key, Launch, Source, Tag},
};

/// Which pack is kept under which key; forgetting one costs making it again.
const MOST_KEPT: usize = 200_000;
/// The trailer of a pack is shown when the whole pack is there and checked.
const TRAILER: usize = 20;

/// The packs made so far, and those in the making.
pub(crate) struct Responses {
    store: Arc<Store>,
    caps: Caps,
    kept: Table,
    flights: Flights<()>,
    builders: Arc<Semaphore>,
    queue: Arc<Semaphore>,
    per_repository: Mutex<HashMap<Repository, Arc<Semaphore>>>,
}

impl Responses {
    pub(crate) fn new(store: &Arc<Store>, caps: Caps) -> Self {
        Self {
            store: Arc::clone(store),
            caps,
            kept: store.table("packs", MOST_KEPT),
            flights: Flights::default(),
            builders: Arc::new(Semaphore::new(caps.builds)),
            queue: Arc::new(Semaphore::new(caps.builds + caps.build_queue)),
            per_repository: Mutex::default(),
        }
    }

    /// The pack kept under `key`.
    pub(crate) async fn kept(&self, key: &Key) -> Option<Source> {
        let row = self.kept.get(key)?;
        let digest = Digest::from_bytes(Algorithm::Sha256, row.get(..32)?).ok()?;
        let entry = self.store.get(&digest).await;
        if entry.is_none() {
            // Evicted; the key is of no use without it.
            self.kept.delete(key);
        }
        entry.map(Source::Kept)
    }

    fn keep(&self, key: &Key, repository: &Repository, digest: &Digest) {
        self.kept.put(key, [digest.as_bytes(), &mark(repository)].concat());
    }

    /// Removes a repository's packs; says how many there were.
    pub(crate) async fn forget(&self, repository: &Repository) -> usize {
        let mark = mark(repository);
        let rows = self.kept.rows();
        let mine: Vec<_> = rows.into_iter().filter(|(_, row)| row.get(32..) == Some(&mark[..])).collect();
        for (key, row) in &mine {
            self.kept.delete(key);
            if let Ok(digest) = Digest::from_bytes(Algorithm::Sha256, &row[..32]) {
                self.store.remove(&digest).await;
            }
        }
        mine.len()
    }

    /// The pack under `key`: kept, in the making, or made now by `build`.
    pub(crate) async fn get<B>(
        self: &Arc<Self>,
        key: Key,
        repository: &Repository,
        build: B,
    ) -> Result<(Source, Outcome), Error>
    where
        B: FnOnce(&mut dyn Write) -> Result<(), Error> + Send + 'static,
    {
        if let Some(source) = self.kept(&key).await {
            return Ok((source, Outcome::Hit));
        }
        let responses = Arc::clone(self);
        let repository = repository.clone();
        let (flight, joined) = self.flights.join_or(key, || {
            let begin =
                Begin { algorithm: Algorithm::Sha256, withhold: TRAILER, max: responses.caps.pack_bytes };
            let (writer, growing) = responses.store.begin(&begin).map_err(Error::internal)?;
            let (launch, flight) = Flight::new(growing);
            let job = Job { key, tag: flight.tag(), repository, launch, writer };
            tokio::spawn(make(responses, job, build));
            Ok::<_, Error>(flight)
        })?;
        let ((), source) = flight.begun().await?;
        Ok((source, if joined { Outcome::Collapsed } else { Outcome::Hit }))
    }

    async fn permits(&self, repository: &Repository) -> Result<[OwnedSemaphorePermit; 2], Error> {
        let busy = || Error::Busy { wait: self.caps.build_wait };
        let _queued = Arc::clone(&self.queue).try_acquire_owned().map_err(|_| busy())?;
        let own = {
            let mut all = self.per_repository.lock().unwrap_or_else(PoisonError::into_inner);
            // Only those in use are worth remembering.
            all.retain(|_, permits| Arc::strong_count(permits) > 1);
            let fresh = || Arc::new(Semaphore::new(self.caps.builds_per_repository));
            Arc::clone(all.entry(repository.clone()).or_insert_with(fresh))
        };
        let both = async {
            let own = own.acquire_owned().await.map_err(|_| busy())?;
            let any = Arc::clone(&self.builders).acquire_owned().await.map_err(|_| busy())?;
            Ok([own, any])
        };
        timeout(self.caps.build_wait, both).await.unwrap_or_else(|_| Err(busy()))
    }
}

/// A pack to be made.
struct Job {
    key: Key,
    tag: Tag,
    repository: Repository,
    launch: Launch<()>,
    writer: Writer,
}

async fn make<B>(responses: Arc<Responses>, job: Job, build: B)
where
    B: FnOnce(&mut dyn Write) -> Result<(), Error> + Send + 'static,
{
    let Job { key, tag, repository, launch, mut writer } = job;
    let _landing = responses.flights.landing(key, tag);
    let permits = match responses.permits(&repository).await {
        Ok(permits) => permits,
        Err(error) => {
            launch.begin(Err(error));
            return;
        }
    };
    let made = tokio::task::spawn_blocking(move || {
        let _permits = permits;
        launch.begin(Ok(()));
        match build(&mut writer) {
            Ok(()) => writer.finish_blocking(None).map_err(Error::internal),
            Err(error) => {
                writer.fail("the pack could not be made");
                Err(error)
            }
        }
    })
    .await;
    match made.map_err(Error::internal).and_then(|made| made) {
        Ok(Finished::Kept(entry)) => responses.keep(&key, &repository, entry.digest()),
        Ok(Finished::Unkept { .. }) => {}
        Err(error) => tracing::error!(%repository, ?error, "a pack could not be made"),
    }
}

/// Tells whose pack it is, so that a purge finds it.
fn mark(repository: &Repository) -> [u8; 16] {
    let digest = Digest::of(repository.to_string().as_bytes());
    let mut mark = [0; 16];
    mark.copy_from_slice(&digest.as_bytes()[..16]);
    mark
}
