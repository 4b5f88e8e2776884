//! Takes in the body of an upload-pack request: inflated, bounded, whole.
//!
//! git compresses bodies over 1 KiB. The caps are on what comes out, in bytes and
//! as a ratio once past 1 MiB, so that a bomb is stopped while it is small.

use std::{io::Write as _, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, header::CONTENT_ENCODING};
use http_body_util::BodyExt as _;
use tidegate_http::{Body, stall_after};

use crate::{Caps, error::Error};

const RATIO_FROM: usize = 1 << 20;
const STALL: Duration = Duration::from_secs(60);

/// Reads the whole body of a request.
pub(crate) async fn read(headers: &HeaderMap, body: Body, caps: &Caps) -> Result<Bytes, Error> {
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    let coding = codings.next().map(http::HeaderValue::as_bytes);
    if codings.next().is_some() {
        return Err(Error::BadRequest("more than one Content-Encoding".into()));
    }
    let body = stall_after(body, STALL);
    match coding.map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"identity") => plain(body, caps).await,
        Some(b"gzip" | b"x-gzip") => gzip(body, caps).await,
        Some(_) => Err(Error::BadRequest("only gzip is understood as Content-Encoding of a request".into())),
    }
}

async fn plain(body: Body, caps: &Caps) -> Result<Bytes, Error> {
    let known = http_body::Body::size_hint(&body).lower();
    if known > caps.body_bytes as u64 {
        return Err(Error::TooLarge);
    }
    let mut body = body;
    let mut whole = Vec::new();
    let mut first: Option<Bytes> = None;
    while let Some(frame) = body.frame().await {
        let Ok(bytes) = frame.map_err(|error| Error::Cut(error.to_string()))?.into_data() else { continue };
        if whole.is_empty() && first.is_none() {
            first = Some(bytes);
            continue;
        }
        if let Some(first) = first.take() {
            whole.extend_from_slice(&first);
        }
        if whole.len() + bytes.len() > caps.body_bytes {
            return Err(Error::TooLarge);
        }
        whole.extend_from_slice(&bytes);
    }
    Ok(first.unwrap_or_else(|| whole.into()))
}

async fn gzip(mut body: Body, caps: &Caps) -> Result<Bytes, Error> {
    let broken = |_| Error::BadRequest("the gzip stream of the request is broken".into());
    let mut inflate = flate2::write::GzDecoder::new(Vec::new());
    let mut taken = 0;
    while let Some(frame) = body.frame().await {
        let Ok(bytes) = frame.map_err(|error| Error::Cut(error.to_string()))?.into_data() else { continue };
        // Small steps, so that no single one can inflate to more than a few MiB.
        for piece in bytes.chunks(4096) {
            taken += piece.len();
            inflate.write_all(piece).map_err(broken)?;
            let out = inflate.get_ref().len();
            if out > caps.body_bytes || (out > RATIO_FROM && out / taken > caps.body_ratio) {
                return Err(Error::TooLarge);
            }
        }
        if inflate.get_ref().len() > RATIO_FROM {
            tokio::task::yield_now().await;
        }
    }
    Ok(inflate.finish().map_err(broken)?.into())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use tidegate_http::full;

    use super::*;

    fn gzipped(content: &[u8]) -> Vec<u8> {
        let mut deflate = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        deflate.write_all(content).unwrap();
        deflate.finish().unwrap()
    }

    async fn take(headers: &HeaderMap, body: Body) -> Result<Bytes, Error> {
        read(headers, body, &Caps::default()).await
    }

    fn as_gzip() -> HeaderMap {
        HeaderMap::from_iter([(CONTENT_ENCODING, HeaderValue::from_static("gzip"))])
    }

    #[tokio::test]
    async fn plain_and_gzip_bodies_come_out_the_same() {
        assert_eq!(take(&HeaderMap::new(), full("0000")).await.unwrap(), "0000");
        assert_eq!(take(&as_gzip(), full(gzipped(b"0000"))).await.unwrap(), "0000");
        assert_eq!(take(&HeaderMap::new(), full("")).await.unwrap(), "");
    }

    #[tokio::test]
    async fn a_bomb_is_stopped_while_it_is_small() {
        let bomb = gzipped(&vec![0; 32 << 20]);
        assert!(matches!(take(&as_gzip(), full(bomb)).await, Err(Error::TooLarge)));
        let huge = vec![b'x'; Caps::default().body_bytes + 1];
        assert!(matches!(take(&HeaderMap::new(), full(huge)).await, Err(Error::TooLarge)));
    }

    #[tokio::test]
    async fn a_cut_gzip_stream_is_a_bad_request() {
        let whole = gzipped(b"want and want and want");
        for end in 1..whole.len() {
            let got = take(&as_gzip(), full(whole[..end].to_vec())).await;
            assert!(matches!(got, Err(Error::BadRequest(_))), "cut at {end}: {got:?}");
        }
    }

    #[tokio::test]
    async fn other_codings_and_stacked_ones_are_refused() {
        let mut twice = as_gzip();
        twice.append(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        for headers in [twice, HeaderMap::from_iter([(CONTENT_ENCODING, HeaderValue::from_static("br"))])] {
            assert!(matches!(take(&headers, full("x")).await, Err(Error::BadRequest(_))));
        }
    }
}
