//! `/api/v1/`: explain, purge, fsck, warm. Each asks every room and answers with
//! one JSON object that has the rooms' names as keys.

use http::{Response, StatusCode};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};
use tidegate_cache::Done;
use tidegate_http::{Body, Outcome, text};
use tidegate_name::Destination;

use crate::{Admin, address};

impl Admin {
    pub(crate) async fn api(&self, path: &str, query: &str) -> Response<Body> {
        if path == "/api/v1/fsck" {
            return self.fsck().await;
        }
        let destination = match self.destination(query) {
            Ok(destination) => destination,
            Err(words) => return text(StatusCode::BAD_REQUEST, Outcome::Denied, &words),
        };
        let Some(upstream) = (self.upstream)(&destination.upstream) else {
            let words = format!("{} is not an upstream of this tidegate", destination.upstream);
            return text(StatusCode::FORBIDDEN, Outcome::Denied, &words);
        };
        match path {
            "/api/v1/explain" => self.explain(&destination, upstream).await,
            "/api/v1/purge" => self.purge(&destination).await,
            _ => self.warm(&destination).await,
        }
    }

    fn destination(&self, query: &str) -> Result<Destination, String> {
        let url = query.split('&').find_map(|pair| pair.strip_prefix("url="));
        let url = url.ok_or("the parameter `url` is missing: ?url=<host>/<path>")?;
        let url = percent_decode_str(url).decode_utf8().map_err(|_| "the parameter `url` is not UTF-8")?;
        address::read(&url, &|upstream| (self.upstream)(upstream).is_some())
    }

    async fn explain(&self, destination: &Destination, upstream: Value) -> Response<Body> {
        let (mut protocol, mut known) =
            ("raw", json!({ "cached": false, "why": "no room keeps this path; it is relayed" }));
        for room in &self.rooms {
            if let Some(told) = room.explain(destination).await {
                (protocol, known) = (room.protocol(), told);
                break;
            }
        }
        crate::json(&json!({
            "destination": destination.to_string(),
            "room": protocol,
            "upstream": upstream,
            "known": known,
        }))
    }

    async fn purge(&self, destination: &Destination) -> Response<Body> {
        let mut done = Map::new();
        for room in &self.rooms {
            report(&mut done, room.protocol(), room.purge(destination).await);
        }
        tracing::info!(%destination, "purged");
        crate::json(&Value::Object(done))
    }

    async fn fsck(&self) -> Response<Body> {
        let mut done = Map::new();
        for room in &self.rooms {
            report(&mut done, room.protocol(), room.fsck().await);
        }
        crate::json(&Value::Object(done))
    }

    async fn warm(&self, destination: &Destination) -> Response<Body> {
        let mut done = Map::new();
        for room in &self.rooms {
            // The room whose destination it is fetches it, the others have nothing to do.
            if room.explain(destination).await.is_some() {
                report(&mut done, room.protocol(), room.warm(destination).await);
            }
        }
        if done.is_empty() {
            let words = format!("{destination} belongs to no room; there is nothing to warm");
            return text(StatusCode::NOT_FOUND, Outcome::Denied, &words);
        }
        crate::json(&Value::Object(done))
    }
}

fn report(rooms: &mut Map<String, Value>, protocol: &str, done: Done) {
    let Done { repositories, bytes, problems } = done;
    let value = json!({ "repositories": repositories, "bytes": bytes, "problems": problems });
    rooms.insert(protocol.to_owned(), value);
}
