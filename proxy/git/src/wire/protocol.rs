//! Which version of the protocol a client or an upstream speaks.
//!
//! A client asks with a header, `Git-Protocol: version=2:foo=1`; the highest
//! version it names and we know wins, anything else in it means nothing to us.

/// A version of git's wire protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Refs come with the first answer.
    V0,
    /// As V0, with a version line before it.
    V1,
    /// Capabilities first, then commands.
    V2,
}

impl Version {
    /// Reads the value of a `Git-Protocol` header; no header is V0.
    pub fn from_header(value: Option<&[u8]>) -> Self {
        value
            .unwrap_or_default()
            .split(|byte| *byte == b':')
            .filter_map(|key| match key {
                b"version=1" => Some(Self::V1),
                b"version=2" => Some(Self::V2),
                _ => None,
            })
            .max()
            .unwrap_or(Self::V0)
    }

    /// The header value that asks for this version; none asks for V0.
    pub fn as_header(self) -> Option<&'static str> {
        match self {
            Self::V0 => None,
            Self::V1 => Some("version=1"),
            Self::V2 => Some("version=2"),
        }
    }

    /// The digit, for logs.
    pub fn number(self) -> u8 {
        match self {
            Self::V0 => 0,
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_known_version_wins() {
        for (value, version) in [
            (None, Version::V0),
            (Some(&b""[..]), Version::V0),
            (Some(b"version=2:foo=1"), Version::V2),
            (Some(b"foo=1:version=1"), Version::V1),
            (Some(b"version=1:version=2:version=0"), Version::V2),
            (Some(b"version=3"), Version::V0),
            (Some(b"xversion=2"), Version::V0),
        ] {
            assert_eq!(Version::from_header(value), version, "{value:?}");
        }
    }

    #[test]
    fn the_header_we_send_is_the_header_we_read() {
        for version in [Version::V0, Version::V1, Version::V2] {
            assert_eq!(Version::from_header(version.as_header().map(str::as_bytes)), version);
        }
    }
}
