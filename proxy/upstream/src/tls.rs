//! TLS for connections outward: aws-lc-rs, the system's roots and an upstream's
//! own CAs, HTTP/2 or 1.1 by ALPN.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore, crypto::CryptoProvider};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use tokio_rustls::TlsConnector;

/// What all upstreams' TLS has in common.
pub(crate) struct Tls {
    provider: Arc<CryptoProvider>,
    roots: RootCertStore,
    ordinary: TlsConnector,
}

impl Tls {
    /// Reads the system's roots (`SSL_CERT_FILE` and `SSL_CERT_DIR` count).
    /// Blocking.
    pub(crate) fn of_system() -> Result<Self, String> {
        let loaded = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(loaded.certs);
        for error in &loaded.errors {
            tracing::warn!(%error, "some of the system's root certificates can't be read");
        }
        if added == 0 {
            tracing::warn!("no root certificates: https works only for upstreams with a `ca` of their own");
        }
        // Chosen here and never installed for the process: a library must not.
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let ordinary = connector(&provider, roots.clone())?;
        Ok(Self { provider, roots, ordinary })
    }

    /// For upstreams without a CA of their own.
    pub(crate) fn ordinary(&self) -> TlsConnector {
        self.ordinary.clone()
    }

    /// Trusts these CAs too.
    pub(crate) fn trusting(&self, pem: &str) -> Result<TlsConnector, String> {
        let mut roots = self.roots.clone();
        let before = roots.len();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate.map_err(|error| format!("is no PEM: {error}"))?;
            roots.add(certificate).map_err(|error| format!("has a certificate that is no CA: {error}"))?;
        }
        if roots.len() == before {
            return Err("has no certificate; it must be PEM, `-----BEGIN CERTIFICATE-----`".to_owned());
        }
        connector(&self.provider, roots)
    }
}

fn connector(provider: &Arc<CryptoProvider>, roots: RootCertStore) -> Result<TlsConnector, String> {
    let mut config = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS can't be set up: {error}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
