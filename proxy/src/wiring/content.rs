//! The store, as the operator's commands see it: no protocol, so only `fsck`
//! has something to do.

use std::sync::Arc;

use serde_json::Value;
use tidegate_cache::{Answer, Done, Inspect};
use tidegate_name::Destination;
use tidegate_store::Store;

pub(super) struct Content(pub(super) Arc<Store>);

impl Inspect for Content {
    fn protocol(&self) -> &'static str {
        "store"
    }

    fn explain<'a>(&'a self, _: &'a Destination) -> Answer<'a, Option<Value>> {
        Box::pin(async { None })
    }

    fn purge<'a>(&'a self, _: &'a Destination) -> Answer<'a, Done> {
        Box::pin(async { Done::default() })
    }

    fn fsck(&self) -> Answer<'_, Done> {
        Box::pin(async {
            match self.0.verify().await {
                Ok(audit) => Done {
                    bytes: audit.bytes,
                    problems: audit
                        .damages
                        .iter()
                        .map(|damage| format!("{}: {}", damage.path.display(), damage.problem))
                        .collect(),
                    ..Done::default()
                },
                Err(error) => Done { problems: vec![error.to_string()], ..Done::default() },
            }
        })
    }

    fn warm<'a>(&'a self, _: &'a Destination) -> Answer<'a, Done> {
        Box::pin(async { Done::default() })
    }
}
