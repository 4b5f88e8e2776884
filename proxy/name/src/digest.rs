//! Content digests as OCI writes them (`sha256:<hex>`), and the hasher that
//! makes them. Grammar: OCI image specification, "Digests".

use std::{fmt, str::FromStr};

use sha2::{Digest as _, Sha256, Sha512};

/// A hash function that content may be named by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// SHA-256, 32 bytes.
    Sha256,
    /// SHA-512, 64 bytes.
    Sha512,
}

impl Algorithm {
    /// The name before the colon.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// How many bytes a digest of this kind has.
    pub const fn size(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }
}

/// The name of some content: a hash function and its result.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest {
    algorithm: Algorithm,
    bytes: [u8; 64],
}

/// Text that is not a digest tidegate can verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a sha256 or sha512 digest in lower-case hex")]
pub struct InvalidDigest;

impl Digest {
    /// The SHA-256 digest of `content`.
    pub fn of(content: &[u8]) -> Self {
        let mut hasher = Hasher::new(Algorithm::Sha256);
        hasher.update(content);
        hasher.finish()
    }

    /// Which hash function made it.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The raw hash: 32 or 64 bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.algorithm.size()]
    }

    /// The hash in lower-case hex, without the algorithm.
    pub fn to_hex(&self) -> String {
        hex::encode(self.as_bytes())
    }

    /// Builds a digest from a raw hash of the right length.
    pub fn from_bytes(algorithm: Algorithm, raw: &[u8]) -> Result<Self, InvalidDigest> {
        if raw.len() != algorithm.size() {
            return Err(InvalidDigest);
        }
        let mut bytes = [0; 64];
        bytes[..raw.len()].copy_from_slice(raw);
        Ok(Self { algorithm, bytes })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm.as_str(), self.to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let (name, encoded) = text.split_once(':').ok_or(InvalidDigest)?;
        let algorithm = match name {
            "sha256" => Algorithm::Sha256,
            "sha512" => Algorithm::Sha512,
            _ => return Err(InvalidDigest),
        };
        if encoded.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(InvalidDigest);
        }
        let raw = hex::decode(encoded).map_err(|_| InvalidDigest)?;
        Self::from_bytes(algorithm, &raw)
    }
}

/// Hashes content as it arrives.
#[derive(Clone, Debug)]
pub enum Hasher {
    /// Makes a [`Algorithm::Sha256`] digest.
    Sha256(Sha256),
    /// Makes a [`Algorithm::Sha512`] digest.
    Sha512(Sha512),
}

impl Hasher {
    /// A hasher that has seen nothing yet.
    pub fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Sha256 => Self::Sha256(Sha256::new()),
            Algorithm::Sha512 => Self::Sha512(Sha512::new()),
        }
    }

    /// Takes in the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
        }
    }

    /// The digest of everything taken in.
    pub fn finish(self) -> Digest {
        let mut bytes = [0; 64];
        let algorithm = match self {
            Self::Sha256(hasher) => {
                bytes[..32].copy_from_slice(&hasher.finalize());
                Algorithm::Sha256
            }
            Self::Sha512(hasher) => {
                bytes.copy_from_slice(&hasher.finalize());
                Algorithm::Sha512
            }
        };
        Digest { algorithm, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_digest_reads_back_as_it_was_written() {
        assert_eq!(Digest::of(b"").to_string(), EMPTY);
        assert_eq!(EMPTY.parse(), Ok(Digest::of(b"")));
    }

    #[test]
    fn sha512_has_its_own_length() {
        let mut hasher = Hasher::new(Algorithm::Sha512);
        hasher.update(b"tide");
        let digest = hasher.finish();
        assert_eq!(digest.as_bytes().len(), 64);
        assert_eq!(digest.to_string().parse(), Ok(digest));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "sha256", "sha256:", "md5:00", &EMPTY[..70], &EMPTY.to_uppercase()] {
            assert_eq!(text.parse::<Digest>(), Err(InvalidDigest), "{text}");
        }
    }
}
