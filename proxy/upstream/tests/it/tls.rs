//! TLS: private CAs, HTTP/2, addresses in certificates.

use std::sync::Arc;

use http::Version;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use tidegate_upstream::{Ask, Error, Kind, SecretSource, UpstreamConfig};

use crate::fake::{Fake, ok, only, text};

/// A CA, its certificate as PEM, and server configs signed by it.
pub(crate) struct Ca {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Ca {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer }
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    pub(crate) fn server(&self, name: &str, alpn: &[&str]) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

/// A config for a TLS server on loopback, with a CA file in `folder`.
pub(crate) fn config(fake: &Fake, host: &str, ca: &Ca, folder: &tempfile::TempDir) -> UpstreamConfig {
    let path = folder.path().join("ca.pem");
    std::fs::write(&path, ca.pem()).unwrap();
    UpstreamConfig {
        url: Some(format!("https://{host}:{}", fake.address.port())),
        ca: Some(SecretSource::FromFile(path)),
        allow_private: true,
        ..UpstreamConfig::new("git.test")
    }
}

#[tokio::test]
async fn a_private_ca_is_trusted_where_it_is_configured_by_name_and_by_address() {
    let (ca, folder) = (Ca::new(), tempfile::tempdir().unwrap());
    for (host, address, alpn, version) in [
        ("localhost", "127.0.0.1:0", &["h2", "http/1.1"][..], Version::HTTP_2),
        ("127.0.0.1", "127.0.0.1:0", &["http/1.1"], Version::HTTP_11),
        ("[::1]", "[::1]:0", &["h2"], Version::HTTP_2),
        ("127.0.0.1", "127.0.0.1:0", &[], Version::HTTP_11),
    ] {
        let server = ca.server(host.trim_matches(['[', ']']), alpn);
        let fake = Fake::start_at(address, Some(server), |_| ok("private")).await;
        let (_upstreams, client) = only(config(&fake, host, &ca, &folder));
        for _ in 0..2 {
            let response = client.send(Ask::get(Kind::Refs, "/")).await.unwrap();
            assert_eq!(text(response).await, "private");
        }
        assert_eq!(fake.seen()[0].version, version, "{host}");
        assert_eq!(fake.seen()[1].connection, 0, "{host}");
    }
}

#[tokio::test]
async fn an_unknown_ca_or_another_name_is_a_tls_error_that_says_what_to_do() {
    let (ca, folder) = (Ca::new(), tempfile::tempdir().unwrap());
    let fake = Fake::start_at("127.0.0.1:0", Some(ca.server("127.0.0.1", &[])), |_| ok("")).await;
    let mut untrusting = config(&fake, "127.0.0.1", &ca, &folder);
    untrusting.ca = None;
    let other_name = config(&fake, "localhost", &ca, &folder);
    for config in [untrusting, other_name] {
        let (_upstreams, client) = only(config);
        let error = client.send(Ask::get(Kind::Refs, "/")).await.unwrap_err();
        assert!(matches!(error, Error::Tls { .. }) && error.metric_status() == "tls", "{error:?}");
        assert!(error.to_string().contains("`ca`"), "{error}");
    }
    assert!(fake.seen().is_empty());
}

#[tokio::test]
async fn many_requests_share_one_http2_connection_and_bodies_arrive_whole() {
    let (ca, folder) = (Ca::new(), tempfile::tempdir().unwrap());
    let server = ca.server("127.0.0.1", &["h2"]);
    let big = "x".repeat(300_000);
    let fake = Fake::start_at("127.0.0.1:0", Some(server), move |_| ok(&big)).await;
    let (_upstreams, client) = only(config(&fake, "127.0.0.1", &ca, &folder));
    client.send(Ask::get(Kind::Refs, "/")).await.map(text).unwrap().await;
    let asks = (0..10)
        .map(|_| async { text(client.send(Ask::post(Kind::Fetch, "/", "0000")).await.unwrap()).await.len() });
    let lengths = futures_util::future::join_all(asks).await;
    assert!(lengths.iter().all(|length| *length == 300_000));
    assert!(fake.seen().iter().all(|seen| seen.connection == 0));
}
