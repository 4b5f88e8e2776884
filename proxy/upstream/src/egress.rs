//! The way out through an egress proxy: what is configured for an upstream, else
//! what the environment says, by the rules that curl and Go share.
//!
//! `HTTPS_PROXY` (or lower case) counts for https, `http_proxy` (or upper case)
//! for http, `NO_PROXY` for both: a comma-separated list of `*`, hosts (with
//! all below them), `.suffixes`, addresses and CIDR ranges, each with a port if
//! need be. Loopback is no exception unless it is listed.

use std::{fmt, net::IpAddr, str::FromStr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderValue, Uri};
use ipnet::IpNet;
use percent_encoding::percent_decode_str;

use crate::{
    config::{Problem, ProxyUrl},
    locate,
};

/// The variables of the environment that tell the way out.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProxyEnvironment {
    https: Option<String>,
    http: Option<String>,
    no_proxy: Option<String>,
}

impl ProxyEnvironment {
    /// Those of this process.
    pub fn of_process() -> Self {
        Self::from_lookup(|name| std::env::var(name).ok())
    }

    /// Those that `lookup` finds.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let first = |names: [&str; 2]| {
            names.iter().find_map(|name| lookup(name).filter(|value| !value.trim().is_empty()))
        };
        Self {
            https: first(["HTTPS_PROXY", "https_proxy"]),
            http: first(["http_proxy", "HTTP_PROXY"]),
            no_proxy: first(["NO_PROXY", "no_proxy"]),
        }
    }
}

impl fmt::Debug for ProxyEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("proxy environment(redacted)")
    }
}

/// The way out for one upstream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Egress {
    https: Option<Proxy>,
    http: Option<Proxy>,
    direct: Vec<Direct>,
}

/// One proxy. Its `Debug` never prints the password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Proxy {
    /// Name or address.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// What it is shown of us.
    pub(crate) authorization: Option<HeaderValue>,
}

/// One entry of `NO_PROXY`.
#[derive(Clone, Debug, PartialEq)]
enum Direct {
    Everything,
    Host { name: String, below_only: bool, port: Option<u16> },
    Net(IpNet),
}

impl Egress {
    /// What is configured decides alone; without it the environment does.
    pub(crate) fn new(
        configured: Option<&ProxyUrl>,
        environment: &ProxyEnvironment,
    ) -> Result<Self, Problem> {
        let parse = |place: &str, url: &String| {
            url.parse::<Proxy>().map_err(|text| Problem { path: place.to_owned(), text })
        };
        if let Some(ProxyUrl(url)) = configured {
            if url == "none" {
                return Ok(Self::default());
            }
            let proxy = parse("proxy", url)?;
            return Ok(Self { https: Some(proxy.clone()), http: Some(proxy), direct: Vec::new() });
        }
        Ok(Self {
            https: environment.https.as_ref().map(|url| parse("HTTPS_PROXY", url)).transpose()?,
            http: environment.http.as_ref().map(|url| parse("HTTP_PROXY", url)).transpose()?,
            direct: environment.no_proxy.as_deref().map(direct_list).unwrap_or_default(),
        })
    }

    /// The proxy that a request to `uri` goes through, if one.
    pub(crate) fn proxy(&self, uri: &Uri) -> Option<&Proxy> {
        let proxy = match uri.scheme_str() {
            Some("https") => self.https.as_ref(),
            _ => self.http.as_ref(),
        }?;
        let host = locate::bare_host(uri).to_ascii_lowercase();
        let port = locate::port(uri);
        (!self.direct.iter().any(|direct| direct.covers(&host, port))).then_some(proxy)
    }
}

impl Direct {
    fn covers(&self, host: &str, at: u16) -> bool {
        match self {
            Self::Everything => true,
            Self::Net(net) => host.parse::<IpAddr>().is_ok_and(|address| net.contains(&address)),
            Self::Host { name, below_only, port } => {
                let is = host == name && !below_only;
                let below = host.strip_suffix(name.as_str()).is_some_and(|left| left.ends_with('.'));
                (is || below) && port.is_none_or(|port| port == at)
            }
        }
    }
}

fn direct_list(list: &str) -> Vec<Direct> {
    // Bounded: every request is held against each of them.
    list.split(',').map(str::trim).filter(|entry| !entry.is_empty()).take(1000).map(direct_entry).collect()
}

fn direct_entry(entry: &str) -> Direct {
    if entry == "*" {
        return Direct::Everything;
    }
    if let Ok(net) = entry.parse::<IpNet>() {
        return Direct::Net(net);
    }
    if let Ok(address) = entry.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Direct::Net(address.into());
    }
    let (name, port) = match entry.rsplit_once(':').map(|(name, port)| (name, port.parse())) {
        Some((name, Ok(port))) => (name, Some(port)),
        _ => (entry, None),
    };
    let name = name.trim_matches(['[', ']']).to_ascii_lowercase();
    let suffix = name.strip_prefix("*.").or_else(|| name.strip_prefix('.'));
    Direct::Host { name: suffix.unwrap_or(&name).to_owned(), below_only: suffix.is_some(), port }
}

impl FromStr for Proxy {
    type Err = String;

    /// `http://[user:password@]host[:port]`; the scheme may be left out. The
    /// error text doesn't repeat the URL.
    fn from_str(url: &str) -> Result<Self, String> {
        const FORM: &str = "a proxy is written http://[user:password@]host:port";
        let rest = match url.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
            Some((scheme, _)) => {
                let known = ["https", "socks4", "socks5", "socks5h"].into_iter().find(|it| *it == scheme);
                return Err(format!("{} proxies are not supported; {FORM}", known.unwrap_or("such")));
            }
            None => url,
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (user, place) = match rest.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, rest),
        };
        let place: tidegate_name::Upstream = place.parse().map_err(|error| format!("{FORM}: {error}"))?;
        let authorization = match user {
            None => None,
            Some(user) => {
                let (name, password) = user.split_once(':').unwrap_or((user, ""));
                let plain: Vec<u8> = percent_decode_str(name)
                    .chain([b':'].iter().copied())
                    .chain(percent_decode_str(password))
                    .collect();
                let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(plain)))
                    .map_err(|_| format!("{FORM}: the user name or password can't be sent"))?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        Ok(Self { host: place.host().to_owned(), port: place.port().unwrap_or(3128), authorization })
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "proxy {}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn egress(pairs: &[(&str, &str)]) -> Egress {
        let environment = ProxyEnvironment::from_lookup(|name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        });
        Egress::new(None, &environment).unwrap()
    }

    fn port_for(egress: &Egress, uri: &str) -> Option<u16> {
        egress.proxy(&uri.parse().unwrap()).map(|proxy| proxy.port)
    }

    #[test]
    fn each_scheme_has_its_variable() {
        let egress = egress(&[("HTTPS_PROXY", "http://p:1"), ("http_proxy", "p:2"), ("HTTP_PROXY", "p:3")]);
        assert_eq!(port_for(&egress, "https://github.com/a"), Some(1));
        assert_eq!(port_for(&egress, "http://github.com/a"), Some(2));
        assert_eq!(port_for(&egress, "https://127.0.0.1:9/"), Some(1));
    }

    #[test]
    fn no_proxy_covers_hosts_suffixes_addresses_and_ranges() {
        let egress = egress(&[
            ("https_proxy", "p:1"),
            ("NO_PROXY", "corp.example, .only.below,*.star.example,10.0.0.0/8,[::1],git.test:8443,9.9.9.9"),
        ]);
        for direct in [
            "https://corp.example/",
            "https://git.CORP.example/",
            "https://a.only.below/",
            "https://x.star.example/",
            "https://10.1.2.3/",
            "https://[::1]:3000/",
            "https://git.test:8443/",
            "https://9.9.9.9/",
        ] {
            assert_eq!(port_for(&egress, direct), None, "{direct}");
        }
        for proxied in [
            "https://notcorp.example/",
            "https://only.below/",
            "https://star.example/",
            "https://11.1.2.3/",
            "https://git.test/",
            "https://127.0.0.1/",
        ] {
            assert_eq!(port_for(&egress, proxied), Some(1), "{proxied}");
        }
        assert_eq!(port_for(&self::egress(&[("https_proxy", "p:1"), ("no_proxy", "*")]), "https://a/"), None);
    }

    #[test]
    fn what_is_configured_goes_before_the_environment() {
        let environment = ProxyEnvironment::from_lookup(|_| Some("env:1".to_owned()));
        let configured = |url: &str| Egress::new(Some(&ProxyUrl(url.to_owned())), &environment).unwrap();
        assert_eq!(port_for(&configured("http://mine:7"), "https://github.com/"), Some(7));
        assert_eq!(port_for(&configured("none"), "https://github.com/"), None);
    }

    #[test]
    fn the_password_is_decoded_and_never_printed() {
        let proxy: Proxy = "http://us%40er:p%3Ass@[::1]:8080/".parse().unwrap();
        assert_eq!((proxy.host.as_str(), proxy.port), ("::1", 8080));
        let sent = proxy.authorization.as_ref().unwrap().to_str().unwrap();
        assert_eq!(sent, format!("Basic {}", STANDARD.encode("us@er:p:ss")));
        assert!(!format!("{proxy:?}").contains("ss"));
        let error = "socks5://user:hunter2@h:1".parse::<Proxy>().unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
        let error = "hunter2://user:p@h:1".parse::<Proxy>().unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
