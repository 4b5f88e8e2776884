//! TLS on tidegate's own name, HTTP/1.1 and 2, and a certificate that changes.

use std::{fs, io::Write as _, net::SocketAddr, path::Path, sync::Arc};

use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustix::process::Signal;
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::program::{Server, eventually};

const CONFIG: &str = "listen:
  - address: 127.0.0.1:0
    tls: {cert: {from_file: DIR/live/tls.crt}, key: {from_file: DIR/live/tls.key}}
";

/// Writes a pair into `folder` and points `live` at it, as Kubernetes does.
fn publish(root: &Path, folder: &str) -> CertificateDer<'static> {
    let CertifiedKey { cert, signing_key } = pair();
    fs::create_dir(root.join(folder)).unwrap();
    fs::write(root.join(folder).join("tls.crt"), cert.pem()).unwrap();
    fs::File::create(root.join(folder).join("tls.key"))
        .unwrap()
        .write_all(signing_key.serialize_pem().as_bytes())
        .unwrap();
    std::os::unix::fs::symlink(folder, root.join("next")).unwrap();
    fs::rename(root.join("next"), root.join("live")).unwrap();
    cert.der().clone()
}

fn pair() -> CertifiedKey<KeyPair> {
    generate_simple_self_signed(["tidegate.test".to_owned()]).unwrap()
}

async fn connect(
    address: SocketAddr,
    trusted: &CertificateDer<'static>,
    alpn: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("tidegate.test").unwrap(), stream).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_swapped_by_symlink_is_shown_to_new_connections() {
    let dir = tempfile::tempdir().unwrap();
    let first = publish(dir.path(), "first");
    let server = Server::start_in(dir, CONFIG, &[]);
    let mut kept = connect(server.clients, &first, "http/1.1").await.unwrap();
    let second = publish(server.dir.path(), "second");
    server.signal(Signal::HUP);
    let runtime = tokio::runtime::Handle::current();
    eventually("the new certificate is shown", || {
        tokio::task::block_in_place(|| runtime.block_on(connect(server.clients, &second, "http/1.1"))).is_ok()
    });
    assert!(connect(server.clients, &first, "http/1.1").await.is_err());
    // What was open is unharmed.
    kept.write_all(b"GET /-/healthz HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut start = [0; 12];
    kept.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_new_key_keeps_the_old_pair() {
    let dir = tempfile::tempdir().unwrap();
    let first = publish(dir.path(), "first");
    let mut server = Server::start_in(dir, CONFIG, &[]);
    fs::write(server.dir.path().join("first/tls.key"), "no key").unwrap();
    server.signal(Signal::HUP);
    server.said(&["listen: no PEM private key", "stays in use"]);
    connect(server.clients, &first, "http/1.1").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_is_chosen_when_the_client_offers_it() {
    let dir = tempfile::tempdir().unwrap();
    let first = publish(dir.path(), "first");
    let server = Server::start_in(dir, CONFIG, &[]);
    let stream = connect(server.clients, &first, "h2").await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    tokio::spawn(connection);
    for (path, status) in [("/-/healthz", 200), ("/evil.test/a", 403)] {
        let uri = format!("https://tidegate.test{path}");
        let request =
            http::Request::get(uri).body(http_body_util::Empty::<hyper::body::Bytes>::new()).unwrap();
        assert_eq!(sender.send_request(request).await.unwrap().status(), status, "{path}");
    }
}
