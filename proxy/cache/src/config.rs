//! The `access` table, for every protocol.

use std::time::Duration;

use serde::Deserialize;

/// How long the upstream's word about a caller is taken.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)] // unknown keys are collected by the loader, with their paths
pub struct AccessConfig {
    /// How long a verdict lasts while the upstream answers. Absent or
    /// `refresh_every`: as long as the protocol's own `refresh_every`, since
    /// verdict and refresh are one request.
    #[serde(deserialize_with = "auth_ttl")]
    pub auth_ttl: Option<Duration>,
    /// How long a caller who was accepted is still served while the upstream
    /// is away.
    #[serde(with = "humantime_serde")]
    pub auth_grace: Duration,
    /// How long after its owner last used it a credential may be used to
    /// refresh the repository it was accepted for. 0 turns borrowing off.
    #[serde(deserialize_with = "duration_or_zero")]
    pub borrow: Duration,
}

impl Default for AccessConfig {
    fn default() -> Self {
        Self { auth_ttl: None, auth_grace: Duration::from_secs(24 * 3600), borrow: Duration::from_secs(600) }
    }
}

impl AccessConfig {
    /// Everything wrong with this table, as `path: text`.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.auth_ttl.is_some_and(|ttl| ttl > Duration::from_secs(3600)) {
            problems
                .push("access.auth_ttl: longer than 1h; a revoked caller would read on for as long".into());
        }
        if self.auth_grace > Duration::from_secs(30 * 24 * 3600) {
            problems.push("access.auth_grace: longer than 30 days".into());
        }
        if self.borrow > Duration::from_secs(3600) {
            problems.push("access.borrow: longer than 1h".into());
        }
        problems
    }
}

fn auth_ttl<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(input)?;
    if text == "refresh_every" {
        return Ok(None);
    }
    humantime::parse_duration(&text).map(Some).map_err(|error| {
        serde::de::Error::custom(format!(
            "`{text}` is no duration (2m, 30s) and not `refresh_every`: {error}"
        ))
    })
}

fn duration_or_zero<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Value {
        Number(u64),
        Text(String),
    }
    match Value::deserialize(input)? {
        Value::Number(0) => Ok(Duration::ZERO),
        Value::Number(n) => {
            Err(serde::de::Error::custom(format!("`{n}` has no unit; write `{n}s` or `{n}m`")))
        }
        Value::Text(text) => humantime::parse_duration(&text)
            .map_err(|error| serde::de::Error::custom(format!("`{text}` is no duration (10m, 0): {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<AccessConfig, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn the_documented_forms_are_read() {
        assert_eq!(read("{}").unwrap(), AccessConfig::default());
        let config = read(r#"{"auth_ttl":"refresh_every","auth_grace":"2h","borrow":0}"#).unwrap();
        assert_eq!(config.auth_ttl, None);
        assert_eq!(config.borrow, Duration::ZERO);
        assert_eq!(read(r#"{"auth_ttl":"30s"}"#).unwrap().auth_ttl, Some(Duration::from_secs(30)));
        assert!(read(r#"{"borrow":10}"#).unwrap_err().to_string().contains("no unit"));
    }
}
