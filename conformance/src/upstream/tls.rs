//! A private certificate authority and one certificate signed by it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;

/// An authority with its root, and a certificate for some names, as PEM files.
pub struct Authority {
    folder: TempDir,
}

impl Authority {
    /// A new root, and a certificate by it for `names`.
    pub fn new(names: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder for certificates");
        let authority = Self { folder };
        let root_key = KeyPair::generate().expect("a key for the authority");
        let mut root = CertificateParams::new(Vec::<String>::new()).expect("no names, no error");
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        root.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let root_certificate = root.self_signed(&root_key).expect("a root signs itself");
        let issuer = Issuer::new(root, root_key);
        let key = KeyPair::generate().expect("a key for the server");
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let leaf = CertificateParams::new(names).expect("plain names");
        let certificate = leaf.signed_by(&key, &issuer).expect("the authority signs");
        authority.write("ca.pem", &root_certificate.pem());
        authority.write("cert.pem", &certificate.pem());
        authority.write("key.pem", &key.serialize_pem());
        authority
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).expect("a PEM file is written");
    }

    /// The folder with `ca.pem`, `cert.pem` and `key.pem`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The root, as clients and tidegate take it.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let file = |name: &str| self.folder.path().join(name);
        let chain = CertificateDer::pem_file_iter(file("cert.pem"))
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .expect("our own certificate reads back");
        let key = PrivateKeyDer::from_pem_file(file("key.pem")).expect("our own key reads back");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider's own versions")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("our own certificate fits our key");
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}
