//! The caps of the listeners. Every one has a default that holds from the
//! first request on; the `limits` table of the configuration may change it.

use std::time::Duration;

/// What a client may take of us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Header fields in one request.
    pub headers: usize,
    /// Bytes of a request's head.
    pub header_bytes: usize,
    /// Connections over all listeners.
    pub connections: usize,
    /// Connections of one client address.
    pub connections_per_address: usize,
    /// TLS handshake, and then the head of a request, must arrive within this.
    pub header_read: Duration,
    /// A request body that gives no byte for this long is given up.
    pub body_stall: Duration,
    /// A client that takes no byte of an answer for this long is cut.
    pub response_stall: Duration,
    /// A connection without a request is closed after this.
    pub idle: Duration,
    /// Streams at once on one HTTP/2 connection.
    pub h2_streams: u32,
    /// Bytes held for one HTTP/2 stream.
    pub h2_send_buffer: usize,
    /// How long running answers may take once a shutdown began.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            headers: 64,
            header_bytes: 16 << 10,
            connections: 16_384,
            connections_per_address: 4_096,
            header_read: Duration::from_secs(10),
            body_stall: Duration::from_secs(60),
            response_stall: Duration::from_secs(60),
            idle: Duration::from_secs(60),
            h2_streams: 64,
            h2_send_buffer: 64 << 10,
            drain: Duration::from_secs(25),
        }
    }
}
