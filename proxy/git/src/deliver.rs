//! Puts an answer with a pack on the wire: its head, then the pack framed as
//! the client takes it, then the closing flush.
//!
//! The pack's own bytes are passed on as they are; only the five bytes before
//! each frame are new.

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http_body_util::BodyExt as _;
use tidegate_http::{Body, BoxError};

use crate::wire::{
    answer::Head,
    fetch::{FetchRequest, Sideband},
    protocol::Version,
    sideband,
};

/// How a client takes a pack.
#[derive(Clone, Copy)]
pub(crate) struct Framing {
    pub(crate) version: Version,
    pub(crate) sideband: Sideband,
}

impl Framing {
    pub(crate) fn of(request: &FetchRequest, version: Version) -> Self {
        let sideband = if version == Version::V2 { Sideband::Large } else { request.sideband };
        Self { version, sideband }
    }
}

/// An answer: `head`, then `pack` to its end.
pub(crate) fn body(head: &Head, pack: Body, framing: Framing) -> Body {
    let sideband = framing.sideband;
    let start = Bytes::from(head.encode(framing.version));
    let frames = pack
        .into_data_stream()
        .map_ok(move |bytes| stream::iter(sideband::frames(bytes, sideband).map(Ok::<_, BoxError>)))
        .try_flatten();
    let end = (sideband != Sideband::None).then(|| Ok(Bytes::from_static(b"0000")));
    tidegate_http::stream(stream::once(async { Ok(start) }).chain(frames).chain(stream::iter(end)))
}
