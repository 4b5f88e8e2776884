//! Secrets come from the environment or from files, never from the config file
//! itself, and are never printed.

use std::{
    fmt,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
};
use zeroize::Zeroizing;

/// Longest secret that is read; a CA bundle is the longest kind there is.
const LIMIT: u64 = 4 * 1024 * 1024;

/// Where a secret is: `{from_env: NAME}` or `{from_file: PATH}`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum SecretSource {
    /// In an environment variable of the process.
    FromEnv(String),
    /// In a file; the newline at its end doesn't count. Read again on change.
    FromFile(PathBuf),
}

/// A secret's text. It is wiped when dropped and its `Debug` prints nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(Zeroizing<String>);

/// A secret that can't be had. The text names the place, never the content.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// No such variable.
    #[error("the environment variable {0} is not set")]
    NoVariable(String),
    /// No such file, or it may not be read.
    #[error("{} can't be read: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Empty, too long or not text.
    #[error("{place} {fault}")]
    Unusable {
        /// The file or variable.
        place: String,
        /// What is wrong with it.
        fault: &'static str,
    },
}

impl SecretSource {
    /// Reads the secret as it is now. Blocking: a file may be on a slow disk.
    pub fn read(&self) -> Result<SecretText, SecretError> {
        let text = match self {
            Self::FromEnv(name) => Zeroizing::new(match std::env::var(name) {
                Ok(text) => text,
                Err(std::env::VarError::NotPresent) => return Err(SecretError::NoVariable(name.clone())),
                Err(std::env::VarError::NotUnicode(_)) => return Err(self.unusable("is not UTF-8 text")),
            }),
            Self::FromFile(path) => self.read_file(path)?,
        };
        let trimmed = text.strip_suffix('\n').map_or(text.as_str(), |line| line.trim_end_matches('\r'));
        if trimmed.is_empty() {
            return Err(self.unusable("is empty"));
        }
        Ok(SecretText(Zeroizing::new(trimmed.to_owned())))
    }

    fn read_file(&self, path: &Path) -> Result<Zeroizing<String>, SecretError> {
        let unreadable = |source| SecretError::Unreadable { path: path.to_owned(), source };
        let file = File::open(path).map_err(unreadable)?;
        let mut bytes = Zeroizing::new(Vec::new());
        file.take(LIMIT + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > LIMIT {
            return Err(self.unusable("is longer than 4 MiB"));
        }
        match std::str::from_utf8(&bytes) {
            Ok(text) => Ok(Zeroizing::new(text.to_owned())),
            Err(_) => Err(self.unusable("is not UTF-8 text")),
        }
    }

    fn unusable(&self, fault: &'static str) -> SecretError {
        SecretError::Unusable { place: format!("{self:?}"), fault }
    }
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FromEnv(name) => write!(f, "the environment variable {name}"),
            Self::FromFile(path) => write!(f, "the file {}", path.display()),
        }
    }
}

impl SecretText {
    /// The secret itself; for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("secret(redacted)")
    }
}

/// By hand, since serde's own messages would quote a secret that was written
/// straight into the file.
impl<'de> Deserialize<'de> for SecretSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SourceVisitor)
    }
}

const EXPECTED: &str =
    "{from_env: NAME} or {from_file: PATH}; a secret is never written into the config file";

struct SourceVisitor;

impl<'de> Visitor<'de> for SourceVisitor {
    type Value = SecretSource;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<SecretSource, E> {
        Err(E::custom(format!("expected {EXPECTED}")))
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<SecretSource, E> {
        self.visit_str("")
    }

    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<SecretSource, E> {
        self.visit_str("")
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<SecretSource, E> {
        self.visit_str("")
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<SecretSource, E> {
        self.visit_str("")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SecretSource, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<String>()? {
            let source = match key.as_str() {
                "from_env" => SecretSource::FromEnv(map.next_value()?),
                "from_file" => SecretSource::FromFile(map.next_value()?),
                // Left to whoever collects unknown keys.
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            if found.replace(source).is_some() {
                return Err(A::Error::custom("from_env and from_file exclude each other"));
            }
        }
        found.ok_or_else(|| A::Error::custom(format!("expected {EXPECTED}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_written_into_the_file_is_refused_and_not_repeated() {
        for json in ["\"hunter2\"", "{\"value\": \"hunter2\"}", "20226612", "true"] {
            let error = serde_json::from_str::<SecretSource>(json).unwrap_err().to_string();
            assert!(
                error.contains("from_env") && !error.contains("hunter2") && !error.contains("2022"),
                "{error}"
            );
        }
    }

    #[test]
    fn one_newline_at_the_end_of_a_file_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let source: SecretSource = serde_json::from_value(serde_json::json!({ "from_file": path })).unwrap();
        for (content, secret) in [("tok en\n", "tok en"), ("tok\r\n", "tok"), (" x ", " x ")] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(source.read().unwrap().expose(), secret);
        }
        for content in ["", "\n"] {
            std::fs::write(&path, content).unwrap();
            assert!(matches!(source.read(), Err(SecretError::Unusable { .. })));
        }
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(source.read(), Err(SecretError::Unreadable { .. })));
    }

    #[test]
    fn no_debug_output_has_a_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "hunter2").unwrap();
        let text = SecretSource::FromFile(path).read().unwrap();
        assert_eq!(format!("{text:?}"), "secret(redacted)");
    }
}
