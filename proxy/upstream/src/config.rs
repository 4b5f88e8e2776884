//! The `upstreams` list: one table per upstream.

use std::{fmt, net::IpAddr, str::FromStr as _, time::Duration};

use serde::{Deserialize, Deserializer};
use tidegate_name::{Folding, Upstream};

use crate::{egress::Proxy, guard, known, locate::Base, secret::SecretSource};

/// One upstream, as the operator describes it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)] // unknown keys are collected by the loader, with their paths
pub struct UpstreamConfig {
    /// The name clients use; may carry a port.
    pub host: String,
    /// Other names for it; needed where `host` carries a port and a name must
    /// not.
    pub aliases: Vec<String>,
    /// Where it really is, if not `https://<host>`; may have a path.
    pub url: Option<String>,
    /// Whose credential counts.
    pub access: Access,
    /// Our own credential for it.
    pub credential: Option<CredentialConfig>,
    /// How much it is asked.
    pub budget: BudgetConfig,
    /// Whether it may be at a private, loopback or link-local address.
    pub allow_private: bool,
    /// PEM file of CAs that are trusted for it beside the system's.
    pub ca: Option<SecretSource>,
    /// Which spellings of a repository are one; known for the well-known hosts.
    pub names: Option<NamesConfig>,
    /// The egress proxy, `http://[user:password@]host:port`; `none` for a direct
    /// way whatever the environment says.
    pub proxy: Option<ProxyUrl>,
    /// Which addresses of it are used.
    pub address_family: AddressFamily,
    /// Hosts that its redirects may lead to, beside itself and other upstreams.
    pub redirects_to: Vec<String>,
    /// What happens to a cached name that it says is gone.
    pub on_not_found: OnNotFound,
    /// How long a body may give nothing before it is cut; 60 s when absent.
    #[serde(with = "humantime_serde")]
    pub stall: Option<Duration>,
}

/// Whose credential counts for an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Each caller's own.
    #[default]
    Passthrough,
    /// Tidegate's, under a policy.
    Proxy,
}

/// Our own credential: `{username, password}` or `{bearer}`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CredentialConfig {
    /// For HTTP Basic.
    pub username: Option<String>,
    /// For HTTP Basic.
    pub password: Option<SecretSource>,
    /// A bearer token.
    pub bearer: Option<SecretSource>,
}

/// How much is asked of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct BudgetConfig {
    /// Most requests in any 60 s.
    pub per_minute: u32,
    /// Most requests at a time.
    pub concurrent: u32,
    /// Most requests in any 60 s with one credential.
    pub per_credential: u32,
}

impl Default for BudgetConfig {
    fn default() -> Self {
        Self { per_minute: 300, concurrent: 20, per_credential: 120 }
    }
}

/// Which spellings of a repository an upstream takes for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NamesConfig {
    /// `Org/App` is `org/app`.
    pub ignore_case: bool,
    /// `app.git` is `app`.
    pub git_suffix: bool,
}

/// Which of a host's addresses are used: `any`, `4` or `6`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressFamily {
    /// Both, IPv6 first.
    #[default]
    Any,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// By hand, since YAML reads `4` as a number.
impl<'de> Deserialize<'de> for AddressFamily {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u64),
            Word(String),
        }
        match Written::deserialize(deserializer) {
            Ok(Written::Number(4)) => Ok(Self::V4),
            Ok(Written::Number(6)) => Ok(Self::V6),
            Ok(Written::Word(word)) if word == "any" => Ok(Self::Any),
            Ok(Written::Word(word)) if word == "4" => Ok(Self::V4),
            Ok(Written::Word(word)) if word == "6" => Ok(Self::V6),
            _ => Err(serde::de::Error::custom("may be any, 4 or 6")),
        }
    }
}

/// What happens to a cached name that the upstream says is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnNotFound {
    /// It goes.
    #[default]
    Drop,
    /// It stays as long as stale content may be served.
    Keep,
}

/// The URL of an egress proxy. It may hold a password, so its `Debug` prints
/// nothing.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct ProxyUrl(pub String);

impl fmt::Debug for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("proxy(redacted)")
    }
}

/// Something wrong with the config, in the operator's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where: `upstreams[0].url`.
    pub path: String,
    /// What, and what to do.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.text)
    }
}

impl UpstreamConfig {
    /// A table that says nothing but the name.
    pub fn new(host: impl Into<String>) -> Self {
        Self { host: host.into(), ..Self::default() }
    }

    /// Which spellings of its repositories are one: as configured, else as
    /// known, else none.
    pub fn folding(&self) -> Folding {
        self.names.map_or_else(
            || known::folding(&self.host),
            |names| Folding { ignore_case: names.ignore_case, git_suffix: names.git_suffix },
        )
    }

    /// Everything wrong with this table; paths are relative to it. Reads no
    /// file and resolves no name.
    pub fn problems(&self) -> Vec<Problem> {
        let mut found = Found::default();
        self.check_names(&mut found);
        self.check_place(&mut found);
        self.check_credential(&mut found);
        self.check_figures(&mut found);
        if self.access == Access::Proxy {
            found
                .add("access", "`proxy` needs policies, which this version does not have; use `passthrough`");
        }
        found.0
    }

    fn check_names(&self, found: &mut Found) {
        if self.host.is_empty() {
            found.add("host", "is missing; it is the name clients use, like github.com");
        } else if let Some((_, name)) = self.host.split_once("://") {
            let name = name.split('/').next().unwrap_or(name);
            found.add(
                "host",
                format!("is a URL; write the name alone, `{name}`, and a place that differs in `url`"),
            );
        } else if let Err(error) = Upstream::from_str(&self.host) {
            found.add("host", format!("`{}` is no host name: {error}", self.host));
        }
        let lists = [("aliases", &self.aliases), ("redirects_to", &self.redirects_to)];
        for (list, names) in lists {
            for (at, name) in names.iter().enumerate() {
                if let Err(error) = Upstream::from_str(name) {
                    found.add(&format!("{list}[{at}]"), format!("`{name}` is no host name: {error}"));
                }
            }
        }
    }

    fn check_place(&self, found: &mut Found) {
        let place = if self.url.is_some() { "url" } else { "host" };
        match Base::of(self) {
            // Said already, of the name.
            Err(_) if self.url.is_none() => {}
            Err(fault) => found.add(place, fault),
            Ok(base) => {
                if let Ok(address) = base.host().parse::<IpAddr>()
                    && !guard::allowed(address, self.allow_private)
                {
                    found.add(
                        place,
                        format!("{address} is no public address; set allow_private: true to allow it"),
                    );
                }
            }
        }
        if let Some(ProxyUrl(url)) = &self.proxy
            && url != "none"
            && let Err(fault) = url.parse::<Proxy>()
        {
            found.add("proxy", fault);
        }
    }

    fn check_credential(&self, found: &mut Found) {
        let Some(credential) = &self.credential else { return };
        match (&credential.username, &credential.password, &credential.bearer) {
            (Some(_), Some(_), None) | (None, None, Some(_)) => {}
            _ => found.add("credential", "needs `username` and `password`, or `bearer` alone"),
        }
        if credential.username.as_ref().is_some_and(|name| name.contains(':')) {
            found.add("credential.username", "has a colon, which HTTP Basic can't carry");
        }
    }

    fn check_figures(&self, found: &mut Found) {
        let BudgetConfig { per_minute, concurrent, per_credential } = self.budget;
        for (key, figure, most) in [
            ("per_minute", per_minute, 1_000_000),
            ("concurrent", concurrent, 10_000),
            ("per_credential", per_credential, 1_000_000),
        ] {
            if !(1..=most).contains(&figure) {
                found.add(&format!("budget.{key}"), format!("is {figure}; it may be from 1 to {most}"));
            }
        }
        if self.stall.is_some_and(|stall| stall < Duration::from_secs(1) || stall > Duration::from_secs(3600))
        {
            found.add("stall", "may be from 1s to 1h");
        }
    }
}

#[derive(Default)]
struct Found(Vec<Problem>);

impl Found {
    fn add(&mut self, path: &str, text: impl Into<String>) {
        self.0.push(Problem { path: path.to_owned(), text: text.into() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: serde_json::Value) -> UpstreamConfig {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_example_of_the_contract_is_read() {
        let config = read(serde_json::json!({
            "host": "git.corp.example", "aliases": ["git"], "url": "http://10.0.0.5:3000/git",
            "access": "passthrough", "allow_private": true, "ca": {"from_file": "/ca.pem"},
            "credential": {"username": "x-access-token", "password": {"from_env": "TOKEN"}},
            "budget": {"per_minute": 100}, "names": {"git_suffix": true}, "address_family": 4,
            "redirects_to": ["cdn.corp.example"], "on_not_found": "keep", "stall": "30s",
            "proxy": "http://user:hunter2@proxy.corp.example:3128",
        }));
        assert_eq!(config.problems(), []);
        assert_eq!(config.budget.concurrent, 20);
        assert_eq!(config.stall, Some(Duration::from_secs(30)));
        assert!(!format!("{config:?}").contains("hunter2"));
    }

    #[test]
    fn every_problem_is_reported_at_once() {
        let config = read(serde_json::json!({
            "host": "a b", "aliases": ["ok", "u@h"], "url": "ftp://x", "access": "proxy",
            "credential": {"username": "a:b"}, "budget": {"per_minute": 0, "concurrent": 0},
            "proxy": "socks5://x:1", "stall": "1ms", "redirects_to": ["x/y"],
        }));
        let paths: Vec<_> = config.problems().into_iter().map(|problem| problem.path).collect();
        assert_eq!(
            paths,
            [
                "host",
                "aliases[1]",
                "redirects_to[0]",
                "url",
                "proxy",
                "credential",
                "credential.username",
                "budget.per_minute",
                "budget.concurrent",
                "stall",
                "access",
            ]
        );
    }

    #[test]
    fn an_address_that_is_not_public_needs_permission() {
        for (host, url) in [
            ("127.0.0.1:3000", None),
            ("[::1]:3000", None),
            ("git.test", Some("http://169.254.169.254/")),
            ("git.test", Some("http://[::ffff:10.0.0.1]/")),
        ] {
            let mut config = UpstreamConfig { url: url.map(str::to_owned), ..UpstreamConfig::new(host) };
            assert_eq!(config.problems().len(), 1, "{host}");
            config.allow_private = true;
            assert_eq!(config.problems(), [], "{host}");
        }
    }

    #[test]
    fn spellings_fold_on_the_known_hosts_unless_configured() {
        let mut config = UpstreamConfig::new("github.com");
        assert_eq!(config.folding(), Folding { ignore_case: true, git_suffix: true });
        config.names = Some(NamesConfig::default());
        assert_eq!(config.folding(), Folding::default());
        assert_eq!(UpstreamConfig::new("git.corp.example").folding(), Folding::default());
        let azure = Folding { ignore_case: true, git_suffix: false };
        assert_eq!(UpstreamConfig::new("dev.azure.com").folding(), azure);
    }
}
