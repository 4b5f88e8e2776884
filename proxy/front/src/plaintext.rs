//! Credentials that came over plain HTTP from another machine: served, since
//! fleets do it inside a cluster, but never unnoticed.

use std::{
    collections::HashSet,
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

use http::{HeaderMap, header};
use tidegate_http::Client;

/// How many addresses are remembered; past it they start over.
const REMEMBERED: usize = 4_096;

/// The addresses that were told of already.
#[derive(Debug, Default)]
pub(crate) struct Plaintext {
    told: Mutex<HashSet<IpAddr>>,
}

/// What to do about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Nothing.
    Fine,
    /// Count it.
    Count,
    /// Count it, and log it: the first of its address.
    Tell,
}

impl Plaintext {
    pub(crate) fn notice(&self, client: Client, headers: &HeaderMap) -> Notice {
        let secret = [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION];
        let address = client.address.ip().to_canonical();
        if client.encrypted || address.is_loopback() || !secret.iter().any(|name| headers.contains_key(name))
        {
            return Notice::Fine;
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.contains(&address) {
            return Notice::Count;
        }
        if told.len() >= REMEMBERED {
            told.clear();
        }
        told.insert(address);
        Notice::Tell
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_credential_in_the_clear_is_told_once_for_each_address() {
        let plaintext = Plaintext::default();
        let mut headers = HeaderMap::new();
        let from = |address: &str, encrypted| Client { address: address.parse().unwrap(), encrypted };
        assert_eq!(plaintext.notice(from("192.0.2.1:9", false), &headers), Notice::Fine);
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static("Basic x"));
        for (address, encrypted, notice) in [
            ("127.0.0.1:9", false, Notice::Fine),
            ("[::ffff:127.0.0.1]:9", false, Notice::Fine),
            ("192.0.2.1:9", true, Notice::Fine),
            ("192.0.2.1:9", false, Notice::Tell),
            ("192.0.2.1:10", false, Notice::Count),
            ("[2001:db8::1]:9", false, Notice::Tell),
        ] {
            assert_eq!(plaintext.notice(from(address, encrypted), &headers), notice, "{address}");
        }
    }
}
