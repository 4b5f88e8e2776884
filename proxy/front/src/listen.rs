//! The `listen` key: one address, or a list of `{address, tls}`.

use std::{fmt, net::SocketAddr, path::PathBuf};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer, value::SeqAccessDeserializer},
};

/// Where PEM text comes from. Files are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PemSource {
    /// A file.
    File(PathBuf),
    /// An environment variable.
    Env(String),
}

/// A certificate chain and its key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TlsFiles {
    /// The chain, leaf first.
    pub cert: PemSource,
    /// The private key.
    pub key: PemSource,
}

/// What a listener does with TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tls {
    /// Plain HTTP.
    #[default]
    Off,
    /// TLS on tidegate's own name.
    Own(TlsFiles),
}

/// One listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Address and port; port 0 takes a free one.
    pub address: SocketAddr,
    /// What it does with TLS.
    pub tls: Tls,
}

/// All listeners; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenList(pub Vec<Listen>);

impl Listen {
    /// A plain listener.
    pub fn plain(address: SocketAddr) -> Self {
        Self { address, tls: Tls::Off }
    }
}

fn address<E: de::Error>(text: &str) -> Result<SocketAddr, E> {
    text.parse().map_err(|_| {
        E::custom(format_args!(
            "`{text}` is no address with a port; write it like 0.0.0.0:8080 or \"[::]:8080\""
        ))
    })
}

#[derive(Deserialize)]
struct SourceTable {
    from_file: Option<PathBuf>,
    from_env: Option<String>,
}

impl<'de> Deserialize<'de> for PemSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let table = SourceTable::deserialize(deserializer)?;
        match (table.from_file, table.from_env) {
            (Some(path), None) => Ok(Self::File(path)),
            (None, Some(name)) => Ok(Self::Env(name)),
            _ => Err(de::Error::custom("needs exactly one of from_file and from_env")),
        }
    }
}

impl<'de> Deserialize<'de> for Tls {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Tls;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`off` or {cert: {from_file: ...}, key: {from_file: ...}}")
            }

            // YAML readers may take a bare `off` for a boolean.
            fn visit_bool<E: de::Error>(self, on: bool) -> Result<Tls, E> {
                if on { Err(E::invalid_value(de::Unexpected::Bool(on), &self)) } else { Ok(Tls::Off) }
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Tls, E> {
                match word {
                    "off" => Ok(Tls::Off),
                    "intercept" => Err(E::custom("`intercept` is refused until that door exists")),
                    _ => Err(E::invalid_value(de::Unexpected::Str(word), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Tls, A::Error> {
                TlsFiles::deserialize(MapAccessDeserializer::new(map)).map(Tls::Own)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[derive(Deserialize)]
struct ListenTable {
    address: AddressText,
    #[serde(default)]
    tls: Tls,
}

struct AddressText(SocketAddr);

impl<'de> Deserialize<'de> for AddressText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        address(&text).map(Self)
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Listen;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address or {address, tls}")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Listen, E> {
                address(text).map(Listen::plain)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Listen, A::Error> {
                let table = ListenTable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Listen { address: table.address.0, tls: table.tls })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl<'de> Deserialize<'de> for ListenList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = ListenList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address or a list of {address, tls}")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ListenList, E> {
                address(text).map(|address| ListenList(vec![Listen::plain(address)]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<ListenList, A::Error> {
                let list = Vec::deserialize(SeqAccessDeserializer::new(seq))?;
                if list.is_empty() {
                    return Err(de::Error::custom("needs at least one address"));
                }
                Ok(ListenList(list))
            }
        }
        deserializer.deserialize_any(Either)
    }
}
