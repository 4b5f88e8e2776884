//! The `limits` table: every cap, one key each. docs/limits.md lists them.

use std::time::Duration;

use bytesize::ByteSize;
use serde::Deserialize;

use super::Problem;

/// Most connections of the admin listener, which only operators use.
const ADMIN_CONNECTIONS: usize = 256;

/// The caps, with their defaults.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Limits {
    /// Header fields in a request.
    pub(crate) headers: usize,
    /// Bytes of a request's head.
    pub(crate) header_bytes: ByteSize,
    /// Connections in all.
    pub(crate) connections: usize,
    /// Connections of one client address.
    pub(crate) connections_per_address: usize,
    /// Deadline for a TLS handshake, and for the head of a request.
    #[serde(with = "humantime_serde")]
    pub(crate) header_read: Duration,
    /// A request's body that gives nothing for this long is given up.
    #[serde(with = "humantime_serde")]
    pub(crate) body_stall: Duration,
    /// A client that takes nothing for this long is cut.
    #[serde(with = "humantime_serde")]
    pub(crate) response_stall: Duration,
    /// A connection without a request is closed after this.
    #[serde(with = "humantime_serde")]
    pub(crate) idle: Duration,
    /// Streams of one HTTP/2 connection.
    pub(crate) h2_streams: u32,
    /// Bytes held for one HTTP/2 stream.
    pub(crate) h2_send_buffer: ByteSize,
    /// How long running answers may take once a shutdown began.
    #[serde(with = "humantime_serde")]
    pub(crate) drain: Duration,
    /// Bytes of an upload-pack request, inflated.
    pub(crate) git_body: ByteSize,
    /// How far an upload-pack request past 1 MiB may inflate.
    pub(crate) git_body_ratio: usize,
    /// Bytes of a pack taken in from an upstream.
    pub(crate) git_pack: ByteSize,
    /// Asks for unknown objects per repository and minute.
    pub(crate) git_unknown_wants: usize,
    /// Packs made at once; as many as there are cores if absent.
    pub(crate) git_builds: usize,
    /// Packs made at once from one repository.
    pub(crate) git_builds_per_repository: usize,
    /// Packs waiting to be made.
    pub(crate) git_build_queue: usize,
    /// How long a pack waits to be made before its client is sent away.
    #[serde(with = "humantime_serde")]
    pub(crate) git_build_wait: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let front = tidegate_front::Limits::default();
        let git = tidegate_git::Caps::default();
        Self {
            headers: front.headers,
            header_bytes: ByteSize::b(front.header_bytes as u64),
            connections: front.connections,
            connections_per_address: front.connections_per_address,
            header_read: front.header_read,
            body_stall: front.body_stall,
            response_stall: front.response_stall,
            idle: front.idle,
            h2_streams: front.h2_streams,
            h2_send_buffer: ByteSize::b(front.h2_send_buffer as u64),
            drain: front.drain,
            git_body: ByteSize::b(git.body_bytes as u64),
            git_body_ratio: git.body_ratio,
            git_pack: ByteSize::b(git.pack_bytes),
            git_unknown_wants: git.unknown_wants,
            git_builds: git.builds,
            git_builds_per_repository: git.builds_per_repository,
            git_build_queue: git.build_queue,
            git_build_wait: git.build_wait,
        }
    }
}

impl Limits {
    /// The caps of the listeners.
    pub(crate) fn front(&self) -> tidegate_front::Limits {
        tidegate_front::Limits {
            headers: self.headers,
            header_bytes: bytes(self.header_bytes),
            connections: self.connections,
            connections_per_address: self.connections_per_address,
            header_read: self.header_read,
            body_stall: self.body_stall,
            response_stall: self.response_stall,
            idle: self.idle,
            h2_streams: self.h2_streams,
            h2_send_buffer: bytes(self.h2_send_buffer),
            drain: self.drain,
        }
    }

    /// The caps of the git room.
    pub(crate) fn git(&self) -> tidegate_git::Caps {
        tidegate_git::Caps {
            body_bytes: bytes(self.git_body),
            body_ratio: self.git_body_ratio,
            pack_bytes: self.git_pack.as_u64(),
            unknown_wants: self.git_unknown_wants,
            builds: self.git_builds,
            builds_per_repository: self.git_builds_per_repository,
            build_queue: self.git_build_queue,
            build_wait: self.git_build_wait,
        }
    }

    /// The caps of the admin listener: the same, with fewer connections.
    pub(crate) fn admin(&self) -> tidegate_front::Limits {
        tidegate_front::Limits {
            connections: ADMIN_CONNECTIONS,
            connections_per_address: ADMIN_CONNECTIONS,
            drain: Duration::from_secs(2),
            ..self.front()
        }
    }

    /// Everything wrong with the table.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut within = |key: &str, value: u64, least: u64, most: u64| {
            if !(least..=most).contains(&value) {
                let text = format!("is {value}; it may be from {least} to {most}");
                problems.push(Problem::new(format!("limits.{key}"), text));
            }
        };
        within("headers", self.headers as u64, 16, 1_000);
        within("header_bytes", self.header_bytes.as_u64(), 8 << 10, 1 << 20);
        within("connections", self.connections as u64, 1, 1_000_000);
        within("connections_per_address", self.connections_per_address as u64, 1, 1_000_000);
        within("h2_streams", u64::from(self.h2_streams), 1, 10_000);
        within("h2_send_buffer", self.h2_send_buffer.as_u64(), 1 << 10, 16 << 20);
        within("git_body", self.git_body.as_u64(), 64 << 10, 1 << 30);
        within("git_body_ratio", self.git_body_ratio as u64, 10, 10_000);
        within("git_pack", self.git_pack.as_u64(), 1 << 20, 1 << 40);
        within("git_unknown_wants", self.git_unknown_wants as u64, 0, 10_000);
        within("git_builds", self.git_builds as u64, 1, 1_024);
        within("git_builds_per_repository", self.git_builds_per_repository as u64, 1, 1_024);
        within("git_build_queue", self.git_build_queue as u64, 1, 100_000);
        for (key, value, longest) in [
            ("git_build_wait", self.git_build_wait, 300),
            ("header_read", self.header_read, 60),
            ("body_stall", self.body_stall, 3_600),
            ("response_stall", self.response_stall, 3_600),
            ("idle", self.idle, 3_600),
            ("drain", self.drain, 3_600),
        ] {
            if value < Duration::from_secs(1) || value > Duration::from_secs(longest) {
                let text = format!("may be from 1s to {longest}s");
                problems.push(Problem::new(format!("limits.{key}"), text));
            }
        }
        problems
    }
}

fn bytes(size: ByteSize) -> usize {
    usize::try_from(size.as_u64()).unwrap_or(usize::MAX)
}
