//! From the file's text to a [`Config`], or to the list of all its problems.

use std::{
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tidegate_cache::AccessConfig;
use tidegate_front::{Listen, ListenList, Tls, TlsIdentity};
use tidegate_git::GitConfig;
use tidegate_store::StoreConfig;
use tidegate_upstream::{SecretSource, UpstreamConfig, builtin};

use super::{Config, OciTable, Problem, Source, collect::Collector};

/// Reads the text; what the command line says goes before it.
pub(super) fn load(source: &Source, text: &str) -> Result<Config, Vec<Problem>> {
    let mut file = File { tables: tables(source, text)?, collector: Collector::default() };
    let config = file.config(source);
    let File { tables, collector: Collector { mut problems } } = file;
    problems.extend(tables.keys().map(|key| Problem::new(key, "is no known key")));
    if problems.is_empty() {
        problems.extend(unreadable(&config));
    }
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

fn tables(source: &Source, text: &str) -> Result<Map<String, Value>, Vec<Problem>> {
    let name = || source.file.as_ref().map_or_else(|| "config".into(), |path| path.display().to_string());
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    match serde_saphyr::from_str(text) {
        Ok(Value::Object(tables)) => Ok(tables),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) => Err(vec![Problem::new(name(), "is no table of keys")]),
        Err(error) => {
            // The reader quotes the lines around the fault; one line is the rule here.
            let words = error.to_string();
            let first = words.lines().find(|line| !line.trim().is_empty()).unwrap_or("is no YAML");
            let first = first.strip_prefix("error: ").unwrap_or(first);
            // What follows is advice to the reader's programmer.
            let first = first.split(", set DuplicateKeyPolicy").next().unwrap_or(first);
            Err(vec![Problem::new(name(), format!("is no YAML that can be read: {first}"))])
        }
    }
}

struct File {
    tables: Map<String, Value>,
    collector: Collector,
}

impl File {
    fn config(&mut self, source: &Source) -> Config {
        let over = &source.overrides;
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listen = self.listen();
        let admin = self.key("admin").unwrap_or_else(|| local(8081));
        let data = self.key::<PathBuf>("data").or_else(|| source.data.clone());
        let data = over.data.clone().or(data).unwrap_or_else(|| {
            self.collector.add("data", "is missing, and neither XDG_CACHE_HOME nor HOME is set");
            PathBuf::new()
        });
        self.table::<OciTable>("oci");
        let config = Config {
            listen: match over.listen {
                Some(address) => vec![Listen::plain(address)],
                None => listen.unwrap_or_else(|| vec![Listen::plain(local(8080))]),
            },
            admin: over.admin.unwrap_or(admin),
            admin_token: self.key("admin_token"),
            data,
            secret: self.key("secret"),
            upstreams: self.upstreams(),
            access: self.table("access").unwrap_or_default(),
            git: self.table("git").unwrap_or_default(),
            limits: self.table("limits").unwrap_or_default(),
            store: self.table("store").unwrap_or_default(),
            log: self.table("log").unwrap_or_default(),
        };
        self.judge(&config);
        config
    }

    /// A key that is one value.
    fn key<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        let value = self.tables.remove(name)?;
        if value.is_null() {
            return None;
        }
        self.collector.table(name, value)
    }

    /// A room's table; an empty one (`git:`) is its defaults.
    fn table<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        self.key(name)
    }

    fn listen(&mut self) -> Option<Vec<Listen>> {
        match self.tables.remove("listen")? {
            Value::Null => None,
            Value::Array(list) if !list.is_empty() => Some(self.each("listen", list)),
            value => self.collector.table("listen", value).map(|ListenList(list)| list),
        }
    }

    fn upstreams(&mut self) -> Vec<UpstreamConfig> {
        let keep = self.key::<bool>("builtin_upstreams");
        let mut upstreams = match self.tables.remove("upstreams") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(list)) => {
                let tables: Vec<UpstreamConfig> = self.each("upstreams", list);
                if keep != Some(true) {
                    return tables;
                }
                tables
            }
            Some(_) => {
                self.collector.add("upstreams", "is no list; write `- host: <name>` for each upstream");
                return Vec::new();
            }
        };
        if keep == Some(false) {
            return upstreams;
        }
        // What the file says of a built-in host goes before what we know of it.
        let known = builtin().into_iter();
        let new: Vec<_> = known
            .filter(|table| !upstreams.iter().any(|given| given.host.eq_ignore_ascii_case(&table.host)))
            .collect();
        upstreams.extend(new);
        upstreams
    }

    /// The tables of a list, each read for itself; what can't be read is told
    /// and left out.
    fn each<T: DeserializeOwned>(&mut self, name: &str, list: Vec<Value>) -> Vec<T> {
        let read = list.into_iter().enumerate().map(|(at, value)| {
            let table: Option<T> = self.collector.table(&format!("{name}[{at}]"), value);
            table
        });
        read.collect::<Vec<_>>().into_iter().flatten().collect()
    }

    /// What the tables themselves can say against their values.
    fn judge(&mut self, config: &Config) {
        let problems = &mut self.collector.problems;
        for lines in [
            GitConfig::problems(&config.git),
            AccessConfig::problems(&config.access),
            StoreConfig::problems(&config.store),
        ] {
            problems.extend(lines.iter().map(|line| Problem::said(line)));
        }
        problems.extend(config.limits.problems());
        let told = problems.iter().any(|problem| problem.path.starts_with("upstreams"));
        if config.upstreams.is_empty() && !told {
            problems.push(Problem::new("upstreams", "is empty; nothing would be served"));
        }
        let mut names: HashMap<String, usize> = HashMap::new();
        for (at, upstream) in config.upstreams.iter().enumerate() {
            let here = format!("upstreams[{at}]");
            problems.extend(
                upstream
                    .problems()
                    .into_iter()
                    .map(|told| Problem::new(format!("{here}.{}", told.path), told.text)),
            );
            for name in std::iter::once(&upstream.host).chain(&upstream.aliases) {
                if let Some(first) = names.insert(name.to_ascii_lowercase(), at) {
                    let text = format!("`{name}` is the name of upstreams[{first}] already");
                    problems.push(Problem::new(&here, text));
                }
            }
        }
        let ports = config.listen.iter().map(|listen| listen.address);
        if config.admin.port() != 0 && ports.into_iter().any(|address| address == config.admin) {
            problems.push(Problem::new("admin", "is where clients are served already; choose another port"));
        }
        if crate::logging::filter(&config.log.level).is_none() {
            let text = "is no list of levels like `info` or `info,tidegate_git=debug`";
            problems.push(Problem::new("log.level", text));
        }
    }
}

/// Secrets and certificates that the file names and that can't be read now.
fn unreadable(config: &Config) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut secret = |path: String, source: &Option<SecretSource>| {
        if let Some(Err(error)) = source.as_ref().map(SecretSource::read) {
            problems.push(Problem::new(path, error.to_string()));
        }
    };
    secret("secret".into(), &config.secret);
    secret("admin_token".into(), &config.admin_token);
    for (at, upstream) in config.upstreams.iter().enumerate() {
        secret(format!("upstreams[{at}].ca"), &upstream.ca);
        if let Some(credential) = &upstream.credential {
            secret(format!("upstreams[{at}].credential.password"), &credential.password);
            secret(format!("upstreams[{at}].credential.bearer"), &credential.bearer);
        }
    }
    for (at, listen) in config.listen.iter().enumerate() {
        if let Tls::Own(files) = &listen.tls
            && let Err(error) = TlsIdentity::load(files)
        {
            problems
                .push(Problem::new(format!("listen[{at}].tls"), format!("{:#}", anyhow::Error::new(error))));
        }
    }
    problems
}
