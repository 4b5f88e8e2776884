//! Which addresses may be connected to. Looked at after name resolution, for
//! every address a name has, since a name can point anywhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// On the public internet.
    Public,
    /// Loopback, private, link-local or otherwise not public; allowed where the
    /// operator says so.
    Private,
    /// No host at all: unspecified, multicast, broadcast.
    Nowhere,
}

/// Classes an address. One that embeds an IPv4 address (mapped, NAT64, 6to4)
/// is where that address is.
pub(crate) fn reach(address: IpAddr) -> Reach {
    match address {
        IpAddr::V4(address) => reach_v4(address),
        IpAddr::V6(address) => reach_v6(address),
    }
}

/// Whether an address may be connected to.
pub(crate) fn allowed(address: IpAddr, allow_private: bool) -> bool {
    match reach(address) {
        Reach::Public => true,
        Reach::Private => allow_private,
        Reach::Nowhere => false,
    }
}

fn reach_v4(address: Ipv4Addr) -> Reach {
    match address.octets() {
        [0, 0, 0, 0] | [224..=239, ..] | [255, 255, 255, 255] => Reach::Nowhere,
        [0 | 10 | 127 | 240..=255, ..]
        | [100, 64..=127, ..] // shared by carriers, RFC 6598
        | [169, 254, ..]
        | [172, 16..=31, ..]
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _] // 6to4 relays, retired
        | [192, 168, ..]
        | [198, 18 | 19, ..] // benchmarks
        | [198, 51, 100, _]
        | [203, 0, 113, _] => Reach::Private,
        _ => Reach::Public,
    }
}

fn reach_v6(address: Ipv6Addr) -> Reach {
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        reach_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] | [0xff00..=0xffff, ..] => Reach::Nowhere,
        // Mapped; NAT64 (RFC 6052); 6to4. Compatible ones (retired, and ::1 among
        // them) would be sent as IPv4 by some stacks.
        [0, 0, 0, 0, 0, 0xffff | 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => embedded(high, low),
        // Protocol assignments (Teredo) and documentation, inside of what is public.
        [0x2001, 0..=0x1ff | 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => Reach::Private,
        [0x2000..=0x3fff, ..] => Reach::Public,
        // All else is not (yet) global unicast: ULA, link-local, site-local,
        // local NAT64, discard.
        _ => Reach::Private,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_that_is_not_public_is_known() {
        for text in [
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "240.0.0.1",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "2002:a00:1::",
            "3fff::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "5f00::1",
            "4000::1",
        ] {
            assert_eq!(reach(text.parse().unwrap()), Reach::Private, "{text}");
        }
    }

    #[test]
    fn no_permission_reaches_what_is_no_host() {
        for text in [
            "0.0.0.0",
            "224.0.0.1",
            "239.1.1.1",
            "255.255.255.255",
            "::",
            "ff02::1",
            "::ffff:0.0.0.0",
            "64:ff9b::e000:1",
        ] {
            assert_eq!(reach(text.parse().unwrap()), Reach::Nowhere, "{text}");
            assert!(!allowed(text.parse().unwrap(), true), "{text}");
        }
    }

    #[test]
    fn public_addresses_pass_in_every_form() {
        for text in [
            "140.82.121.4",
            "100.63.255.255",
            "100.128.0.0",
            "172.32.0.1",
            "192.0.1.1",
            "198.20.0.1",
            "9.9.9.9",
            "::ffff:140.82.121.4",
            "64:ff9b::8c52:7904",
            "2002:8c52:7904::1",
            "2606:50c0:8000::154",
            "2001:4860:4860::8888",
        ] {
            assert_eq!(reach(text.parse().unwrap()), Reach::Public, "{text}");
        }
    }
}
