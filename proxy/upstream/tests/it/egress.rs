//! The way out through a proxy.

use std::sync::{Arc, Mutex};

use tidegate_upstream::{Ask, Error, Kind, ProxyEnvironment, ProxyUrl, Settings, UpstreamConfig};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
};

use crate::{
    fake::{Fake, ok, only, status, text, with_settings},
    tls::{Ca, config},
};

/// A proxy that opens tunnels to one place, whatever it is asked for. Gives its
/// address and the heads it read.
async fn tunnels_to(place: std::net::SocketAddr) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let heads = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&heads);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let kept = Arc::clone(&kept);
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                kept.lock().unwrap().push(String::from_utf8(head).unwrap());
                stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
                let mut upstream = TcpStream::connect(place).await.unwrap();
                let _ = copy_bidirectional(&mut stream, &mut upstream).await;
            });
        }
    });
    (address, heads)
}

#[tokio::test]
async fn https_goes_through_a_tunnel_and_the_proxy_resolves_the_name() {
    let (ca, folder) = (Ca::new(), tempfile::tempdir().unwrap());
    let server = ca.server("git.invalid", &["h2", "http/1.1"]);
    let fake = Fake::start_at("127.0.0.1:0", Some(server), |_| ok("through")).await;
    let (proxy, heads) = tunnels_to(fake.address).await;
    let mut config = config(&fake, "git.invalid", &ca, &folder);
    config.url = Some("https://git.invalid".to_owned());
    config.allow_private = false;
    config.proxy = Some(ProxyUrl(format!("http://user:pass@{proxy}")));
    let (_upstreams, client) = only(config.clone());
    assert_eq!(text(client.send(Ask::get(Kind::Refs, "/")).await.unwrap()).await, "through");
    let head = heads.lock().unwrap()[0].clone();
    assert!(head.starts_with("CONNECT git.invalid:443 HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("Proxy-Authorization: Basic dXNlcjpwYXNz\r\n"), "{head}");
    assert_eq!(fake.seen()[0].header("proxy-authorization"), None);

    config.proxy = None;
    let proxy_environment =
        ProxyEnvironment::from_lookup(|name| (name == "HTTPS_PROXY").then(|| format!("http://{proxy}")));
    let settings = Settings { proxy_environment, ..Settings::default() };
    let (_upstreams, client) = with_settings(config, settings);
    assert_eq!(text(client.send(Ask::get(Kind::Refs, "/")).await.unwrap()).await, "through");
    assert_eq!(heads.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn plain_http_is_asked_of_the_proxy_in_absolute_form() {
    let proxy = Fake::start(|_| ok("through")).await;
    let config = UpstreamConfig {
        url: Some("http://git.invalid:8000/base".to_owned()),
        proxy: Some(ProxyUrl(format!("http://user:pass@{}", proxy.address))),
        ..UpstreamConfig::new("git.test")
    };
    let (_upstreams, client) = only(config);
    assert_eq!(text(client.send(Ask::get(Kind::Refs, "/a?b")).await.unwrap()).await, "through");
    let seen = &proxy.seen()[0];
    assert_eq!(seen.uri, "http://git.invalid:8000/base/a?b");
    assert_eq!(seen.header("host"), Some("git.invalid:8000"));
    assert_eq!(seen.header("proxy-authorization"), Some("Basic dXNlcjpwYXNz"));
}

#[tokio::test]
async fn a_proxy_that_refuses_is_a_connect_error_that_names_it() {
    let proxy = Fake::start(|_| status(407)).await;
    let config = UpstreamConfig { proxy: Some(ProxyUrl(proxy.url())), ..UpstreamConfig::new("git.invalid") };
    let (_upstreams, client) = only(config);
    let error = client.send(Ask::get(Kind::Refs, "/")).await.unwrap_err();
    let Error::Connect { source, .. } = &error else { panic!("{error:?}") };
    assert!(source.to_string().contains("proxy"), "{source}");
}

#[tokio::test]
async fn an_address_inside_is_not_asked_of_the_proxy_either() {
    let proxy = Fake::start(|_| ok("metadata")).await;
    let fake = Fake::start(|_| ok("")).await;
    let mut config = fake.config("git.test");
    config.proxy = Some(ProxyUrl(proxy.url()));
    config.allow_private = false;
    config.url = Some("http://169.254.169.254".to_owned());
    assert_eq!(config.problems().len(), 1);
    config.url = Some("http://redirects.invalid".to_owned());
    config.redirects_to = vec!["169.254.169.254".to_owned()];
    let proxy = Fake::start(|seen| match seen.uri.host() {
        Some("redirects.invalid") => crate::fake::redirect(302, "http://169.254.169.254/latest"),
        _ => ok("metadata"),
    })
    .await;
    config.proxy = Some(ProxyUrl(proxy.url()));
    let (_upstreams, client) = only(config);
    let error = client.send(Ask::get(Kind::Refs, "/")).await.unwrap_err();
    assert!(matches!(error, Error::Guard { .. }), "{error:?}");
    assert_eq!(proxy.seen().len(), 1);
}
