//! What an upstream's HTTP answer means: accepted, refused for this
//! credential, or sick.
//!
//! Accepted is 200 with the exact media type, parsed to its end. A 203, and a
//! 200 or a redirect that leads to a web page, is a refusal: somebody's login
//! form stands in between.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{
    HeaderMap, Response, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER},
};
use tidegate_cache::Refusal;
use tidegate_http::{Body, collect};
use tidegate_upstream::{Redirected, pause_asked};

use super::{MOST_REF_BYTES, Unseen, sick_answer};
use crate::{error::Sick, wire::AnswerError};

/// Lists longer than this are parsed off the async threads.
const PARSE_INLINE: usize = 256 << 10;
const MOST_TEXT: usize = 1024;

/// An answer with status 200 and the right media type; its body is still to
/// be read.
pub(super) struct Reply {
    pub(super) body: Body,
    /// Where a redirect on the same host led, path and query.
    pub(super) moved_to: Option<String>,
    pub(super) gzip: bool,
}

impl Reply {
    pub(super) async fn judge(response: Response<Body>, media_type: &'static str) -> Result<Self, Unseen> {
        let status = response.status();
        let redirected = response.extensions().get::<Redirected>().cloned();
        let limit = pause_asked(status, response.headers(), SystemTime::now());
        if let Some(wait) = limit {
            // A 403 too may be about a rate, not about who asks.
            let why = format!("it answered {}: it limits our requests", status.as_u16());
            return Err(Unseen::Sick(Sick { wait: Some(wait), limited: true, ..Sick::new(why) }));
        }
        match status.as_u16() {
            200 => {}
            203 => return Err(web_page(203)),
            401 | 403 | 404 | 410 => {
                return Err(Unseen::Denied(Refusal {
                    status,
                    text: text_of(response).await.into(),
                    passing: false,
                }));
            }
            _ => return Err(Unseen::Sick(sick_status(&response))),
        }
        if redirected.as_ref().is_some_and(|to| to.host_changed) {
            // The credential stayed behind at the border, so this says nothing
            // about it.
            return Err(Unseen::Denied(Refusal {
                status: StatusCode::UNAUTHORIZED,
                text: "tidegate: the upstream redirects this repository to another host; ask for it there"
                    .into(),
                passing: false,
            }));
        }
        let found = response.headers().get(CONTENT_TYPE).map(|value| value.as_bytes().to_ascii_lowercase());
        if found.as_deref() != Some(media_type.as_bytes()) {
            let html = found.as_deref().is_some_and(|found| found.starts_with(b"text/html"));
            return Err(if html {
                web_page(200)
            } else {
                let shown = found.map_or_else(
                    || "none".into(),
                    |found| String::from_utf8_lossy(&found[..found.len().min(80)]).into_owned(),
                );
                Unseen::Sick(Sick::new(format!("it answered with media type {shown}, not {media_type}")))
            });
        }
        let gzip = match response.headers().get(CONTENT_ENCODING).map(http::HeaderValue::as_bytes) {
            None | Some(b"identity") => false,
            Some(b"gzip" | b"x-gzip") => true,
            Some(_) => {
                return Err(Unseen::Sick(Sick::new("it answered with an encoding that was not asked for")));
            }
        };
        Ok(Self { moved_to: redirected.map(|to| to.path_and_query), gzip, body: response.into_body() })
    }

    /// Reads the whole body and parses it; only a complete answer counts.
    pub(super) async fn parse<T: Send + 'static>(
        self,
        parser: impl FnOnce(&[u8]) -> Result<T, AnswerError> + Send + 'static,
    ) -> Result<T, Unseen> {
        let bytes = collect(self.body, MOST_REF_BYTES)
            .await
            .map_err(|error| Unseen::Sick(Sick::new(format!("its answer broke off: {error}"))))?;
        let gzip = self.gzip;
        let long = gzip || bytes.len() > PARSE_INLINE;
        let work = move || {
            let bytes = if gzip { inflate(&bytes)? } else { bytes };
            parser(&bytes).map_err(|error| sick_answer(&error))
        };
        if long {
            let done = tokio::task::spawn_blocking(work).await;
            done.unwrap_or_else(|_| Err(Unseen::Sick(Sick::new("parsing its answer failed"))))
        } else {
            work()
        }
    }
}

fn inflate(bytes: &Bytes) -> Result<Bytes, Unseen> {
    use std::io::Read as _;
    let mut out = Vec::new();
    let limit = MOST_REF_BYTES as u64;
    let read = flate2::read::GzDecoder::new(&bytes[..]).take(limit + 1).read_to_end(&mut out);
    match read {
        Ok(_) if out.len() as u64 <= limit => Ok(out.into()),
        Ok(_) => Err(Unseen::Sick(Sick::new("its list of refs is longer than 256 MiB"))),
        Err(error) => Err(Unseen::Sick(Sick::new(format!("its gzip stream is broken: {error}")))),
    }
}

/// A web page where git's protocol was expected: a login form.
pub(super) fn web_page(status: u16) -> Unseen {
    Unseen::Denied(Refusal {
        status: StatusCode::UNAUTHORIZED,
        text: format!(
            "tidegate: authentication or redirect refused: the upstream answered {status} with a web page, not with git's protocol"
        )
        .into(),
        passing: true,
    })
}

/// A redirect that wasn't followed is a refusal; everything else is sick.
pub(super) fn refused_redirect(error: tidegate_upstream::Error) -> Unseen {
    match error {
        tidegate_upstream::Error::Redirect { status, .. } => Unseen::Denied(Refusal {
            status: StatusCode::UNAUTHORIZED,
            text: format!(
                "tidegate: authentication or redirect refused: the upstream answered {} with a redirect that does not lead to the repository",
                status.as_u16()
            )
            .into(),
            passing: true,
        }),
        other => Unseen::Sick(other.into()),
    }
}

fn sick_status(response: &Response<Body>) -> Sick {
    let status = response.status();
    let wait = retry_after(response.headers());
    Sick { wait, ..Sick::new(format!("it answered {}", status.as_u16())) }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse::<u64>().ok()?;
    Some(Duration::from_secs(seconds.min(3600)))
}

/// The first KiB of a refusal's text, if it is plain text.
async fn text_of(response: Response<Body>) -> String {
    let plain = response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().to_ascii_lowercase().starts_with(b"text/plain"));
    if !plain {
        return String::new();
    }
    let read = tokio::time::timeout(Duration::from_secs(5), first_bytes(response.into_body())).await;
    let bytes = read.unwrap_or_default();
    // Control bytes could repaint a terminal.
    String::from_utf8_lossy(&bytes).chars().filter(|c| *c == '\n' || !c.is_control()).collect()
}

async fn first_bytes(mut body: Body) -> Vec<u8> {
    use http_body_util::BodyExt as _;
    let mut bytes = Vec::new();
    while bytes.len() < MOST_TEXT {
        let Some(Ok(frame)) = body.frame().await else { break };
        if let Ok(chunk) = frame.into_data() {
            bytes.extend_from_slice(&chunk[..chunk.len().min(MOST_TEXT - bytes.len())]);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use tidegate_http::empty;

    use super::*;

    async fn judged(status: u16, header: Option<(&'static str, &'static str)>) -> Unseen {
        let mut response = Response::new(empty());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        if let Some((name, value)) = header {
            response.headers_mut().insert(name, value.parse().unwrap());
        }
        Reply::judge(response, "x").await.err().unwrap()
    }

    #[tokio::test]
    async fn a_403_about_a_rate_says_nothing_of_the_credential() {
        for header in [("x-ratelimit-remaining", "0"), ("retry-after", "7")] {
            let unseen = judged(403, Some(header)).await;
            assert!(
                matches!(&unseen, Unseen::Sick(sick) if sick.limited && sick.wait.is_some()),
                "{unseen:?}"
            );
        }
        for header in [None, Some(("x-ratelimit-remaining", "58"))] {
            assert!(matches!(judged(403, header).await, Unseen::Denied(_)));
        }
    }

    #[tokio::test]
    async fn a_429_always_says_when_to_come_back() {
        let unseen = judged(429, None).await;
        assert!(matches!(&unseen, Unseen::Sick(sick) if sick.limited && sick.wait.is_some()), "{unseen:?}");
        let named = judged(429, Some(("retry-after", "30"))).await;
        assert!(matches!(named, Unseen::Sick(sick) if sick.wait == Some(Duration::from_secs(30))));
    }
}
