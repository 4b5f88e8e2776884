//! The name of an upstream as clients write it.

use std::{fmt, net::IpAddr, str::FromStr, sync::Arc};

/// A host name, lower-cased, with an optional port: `github.com`,
/// `git.corp.example:8443`.
///
/// It is the name clients use, not the address that is connected to: where the
/// upstream really is, is the `upstream` room's business.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Upstream(Arc<str>);

/// Text that is no host name. The variant says what is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUpstream {
    /// Nothing there, or over 253 bytes.
    #[error("a host name has 1 to 253 characters")]
    Length,
    /// `user@host`.
    #[error("a host name carries no user name or password")]
    UserInfo,
    /// `host.`
    #[error("a host name is written without a trailing dot")]
    TrailingDot,
    /// A byte that no host name has, `%` among them.
    #[error("a host name has letters, digits, `-`, `_` and `.` only, and is never escaped")]
    Character,
    /// The part behind the colon is no port.
    #[error("the port is not a number from 1 to 65535")]
    Port,
}

impl Upstream {
    /// The name with its port, if it has one.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name without its port; an IPv6 address without its brackets.
    pub fn host(&self) -> &str {
        split_port(&self.0).0.trim_start_matches('[').trim_end_matches(']')
    }

    /// The port, where the name carries one.
    pub fn port(&self) -> Option<u16> {
        split_port(&self.0).1.and_then(|port| port.parse().ok())
    }

    /// Whether this is an address and no name, in any spelling that a resolver
    /// might take for one (`127.0.0.1`, `0x7f.1`, `2130706433`, `[::1]`).
    pub fn is_address(&self) -> bool {
        let host = self.host();
        if host.parse::<IpAddr>().is_ok() {
            return true;
        }
        let last = host.rsplit('.').next().unwrap_or(host);
        last.bytes().all(|byte| byte.is_ascii_digit())
            || last.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
    }
}

/// Splits `host:port`, minding the colons inside `[...]`.
fn split_port(name: &str) -> (&str, Option<&str>) {
    let after = name.find(']').map_or(0, |at| at + 1);
    match name[after..].find(':') {
        Some(at) => (&name[..after + at], Some(&name[after + at + 1..])),
        None => (name, None),
    }
}

impl FromStr for Upstream {
    type Err = InvalidUpstream;

    fn from_str(text: &str) -> Result<Self, InvalidUpstream> {
        if text.is_empty() || text.len() > 253 {
            return Err(InvalidUpstream::Length);
        }
        if text.contains('@') {
            return Err(InvalidUpstream::UserInfo);
        }
        let (host, port) = split_port(text);
        if let Some(port) = port
            && (!port.bytes().all(|b| b.is_ascii_digit()) || !port.parse::<u16>().is_ok_and(|port| port > 0))
        {
            return Err(InvalidUpstream::Port);
        }
        if let Some(inside) = host.strip_prefix('[') {
            let address = inside.strip_suffix(']').ok_or(InvalidUpstream::Character)?;
            address.parse::<std::net::Ipv6Addr>().map_err(|_| InvalidUpstream::Character)?;
        } else {
            if host.ends_with('.') {
                return Err(InvalidUpstream::TrailingDot);
            }
            let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            if !host.bytes().all(good)
                || host.starts_with(['.', '-'])
                || host.contains("..")
                || host.is_empty()
            {
                return Err(InvalidUpstream::Character);
            }
        }
        Ok(Self(text.to_ascii_lowercase().into()))
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_cased_and_may_carry_a_port() {
        let upstream: Upstream = "Git.Corp.Example:8443".parse().unwrap();
        assert_eq!(upstream.as_str(), "git.corp.example:8443");
        assert_eq!((upstream.host(), upstream.port()), ("git.corp.example", Some(8443)));
        let six: Upstream = "[::1]:3000".parse().unwrap();
        assert_eq!((six.host(), six.port()), ("::1", Some(3000)));
    }

    #[test]
    fn every_spelling_of_an_address_is_known_as_one() {
        for text in ["127.0.0.1", "2130706433", "0x7f.1", "0x7f000001", "[::1]", "127.0.0.1:80", "10.1"] {
            assert!(text.parse::<Upstream>().unwrap().is_address(), "{text}");
        }
        for text in ["github.com", "1.example", "x0.com", "0x.example.org"] {
            assert!(!text.parse::<Upstream>().unwrap().is_address(), "{text}");
        }
    }

    #[test]
    fn tricks_are_refused_each_with_its_reason() {
        for (text, why) in [
            ("", InvalidUpstream::Length),
            ("a@b", InvalidUpstream::UserInfo),
            ("a.b.", InvalidUpstream::TrailingDot),
            ("a%2e", InvalidUpstream::Character),
            ("a b", InvalidUpstream::Character),
            ("a..b", InvalidUpstream::Character),
            ("[::1", InvalidUpstream::Port),
            ("a:0", InvalidUpstream::Port),
            ("a:+1", InvalidUpstream::Port),
            ("a:", InvalidUpstream::Port),
            ("a:70000", InvalidUpstream::Port),
        ] {
            assert_eq!(text.parse::<Upstream>(), Err(why), "{text}");
        }
    }
}
