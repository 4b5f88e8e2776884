//! TLS on tidegate's own name, from PEM that may change while we run.

use std::{
    fs, io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};

use crate::listen::{PemSource, TlsFiles};

/// The largest PEM file that is read.
const PEM_LIMIT: u64 = 1 << 20;

/// Why a certificate and key can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file can't be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The environment variable is not set.
    #[error("the environment variable {0} is not set")]
    Unset(String),
    /// No certificate in it.
    #[error("no PEM certificate in the file for `cert`")]
    NoCertificate,
    /// No key in it.
    #[error("no PEM private key in the file for `key`")]
    NoKey,
    /// They don't belong together, or are of a kind that isn't supported.
    #[error("the certificate and the key cannot be used together")]
    Unusable(#[source] rustls::Error),
}

/// A certificate chain and key in use; see [`TlsIdentity::reload`].
#[derive(Debug)]
pub struct TlsIdentity {
    files: TlsFiles,
    current: ArcSwap<CertifiedKey>,
    seen: Mutex<Vec<u8>>,
}

impl TlsIdentity {
    /// Reads the files for the first time. Blocks.
    pub fn load(files: &TlsFiles) -> Result<Arc<Self>, TlsError> {
        let text = read(files)?;
        let current = ArcSwap::from_pointee(certified(&text)?);
        Ok(Arc::new(Self { files: files.clone(), current, seen: Mutex::new(text.concat()) }))
    }

    /// Reads the files again and takes them over if they changed; says whether
    /// they did. What is wrong is an error and changes nothing. Blocks.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let text = read(&self.files)?;
        let joined = text.concat();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == joined {
            return Ok(false);
        }
        self.current.store(Arc::new(certified(&text)?));
        *seen = joined;
        Ok(true)
    }

    /// A server configuration that always shows the current certificate.
    pub(crate) fn server_config(self: &Arc<Self>) -> Result<Arc<ServerConfig>, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Unusable)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Current(Arc::clone(self))));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

#[derive(Debug)]
struct Current(Arc<TlsIdentity>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.current.load_full())
    }
}

fn read(files: &TlsFiles) -> Result<[Vec<u8>; 2], TlsError> {
    Ok([read_source(&files.cert)?, read_source(&files.key)?])
}

fn read_source(source: &PemSource) -> Result<Vec<u8>, TlsError> {
    match source {
        PemSource::Env(name) => {
            let text = std::env::var(name).map_err(|_| TlsError::Unset(name.clone()))?;
            Ok(text.into_bytes())
        }
        PemSource::File(path) => {
            let failed = |source| TlsError::Read { path: path.clone(), source };
            let size = fs::metadata(path).map_err(failed)?.len();
            if size > PEM_LIMIT {
                return Err(failed(io::Error::other("the file is larger than 1 MiB")));
            }
            fs::read(path).map_err(failed)
        }
    }
}

fn certified([cert, key]: &[Vec<u8>; 2]) -> Result<CertifiedKey, TlsError> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(cert)
        .collect::<Result<_, _>>()
        .map_err(|_| TlsError::NoCertificate)?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate);
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsError::NoKey)?;
    CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).map_err(TlsError::Unusable)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn write_pair(dir: &Path, name: &str) {
        let pair = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        fs::write(dir.join("tls.crt"), pair.cert.pem()).unwrap();
        fs::write(dir.join("tls.key"), pair.signing_key.serialize_pem()).unwrap();
    }

    fn files(dir: &Path) -> TlsFiles {
        TlsFiles { cert: PemSource::File(dir.join("tls.crt")), key: PemSource::File(dir.join("tls.key")) }
    }

    #[test]
    fn a_pair_swapped_by_symlink_is_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["one", "two"] {
            fs::create_dir(dir.path().join(name)).unwrap();
            write_pair(&dir.path().join(name), "tidegate.test");
        }
        let link = dir.path().join("live");
        std::os::unix::fs::symlink("one", &link).unwrap();
        let identity = TlsIdentity::load(&files(&link)).unwrap();
        let before = identity.current.load_full();
        assert!(!identity.reload().unwrap());
        std::os::unix::fs::symlink("two", dir.path().join("next")).unwrap();
        fs::rename(dir.path().join("next"), &link).unwrap();
        assert!(identity.reload().unwrap());
        assert_ne!(before.cert, identity.current.load_full().cert);
    }

    #[test]
    fn a_bad_new_pair_keeps_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        write_pair(dir.path(), "tidegate.test");
        let identity = TlsIdentity::load(&files(dir.path())).unwrap();
        let before = identity.current.load_full();
        fs::write(dir.path().join("tls.key"), "no key").unwrap();
        assert!(matches!(identity.reload(), Err(TlsError::NoKey)));
        let other = rcgen::generate_simple_self_signed(["x".to_owned()]).unwrap();
        fs::write(dir.path().join("tls.key"), other.signing_key.serialize_pem()).unwrap();
        assert!(matches!(identity.reload(), Err(TlsError::Unusable(_))));
        assert_eq!(before.cert, identity.current.load_full().cert);
    }
}
