//! Secrets and config that change while we run.

use std::sync::Arc;

use tidegate_http::Identity;
use tidegate_upstream::{
    Ask, CredentialConfig, Error, Kind, SecretSource, Settings, UpstreamConfig, Upstreams,
};

use crate::{
    fake::{Fake, ok, only},
    tls::{Ca, config},
};

#[tokio::test]
async fn a_rotated_credential_is_used_and_a_bad_file_keeps_the_old() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "one\n").unwrap();
    let credential = CredentialConfig {
        username: Some("x".to_owned()),
        password: Some(SecretSource::FromFile(path.clone())),
        bearer: None,
    };
    let config = UpstreamConfig { credential: Some(credential), ..UpstreamConfig::new("git.test") };
    let (upstreams, client) = only(config);
    assert_eq!(client.credential(), Some(Identity::basic("x", "one")));
    // As Kubernetes does it: the name stays, what it points to is swapped.
    let next = folder.path().join("next");
    std::fs::write(&next, "two").unwrap();
    std::fs::rename(&next, &path).unwrap();
    assert_eq!(upstreams.reload_secrets(), []);
    assert_eq!(client.credential(), Some(Identity::basic("x", "two")));
    std::fs::remove_file(&path).unwrap();
    let problems = upstreams.reload_secrets();
    assert_eq!(problems[0].path, "upstreams[0].credential.password");
    assert_eq!(client.credential(), Some(Identity::basic("x", "two")));
}

#[tokio::test]
async fn a_rotated_ca_is_used_and_a_broken_one_keeps_the_old() {
    let (old, new, folder) = (Ca::new(), Ca::new(), tempfile::tempdir().unwrap());
    let fake = Fake::start_at("127.0.0.1:0", Some(new.server("127.0.0.1", &[])), |_| ok("")).await;
    let config = config(&fake, "127.0.0.1", &old, &folder);
    let path = folder.path().join("ca.pem");
    let (upstreams, client) = only(config);
    let error = client.send(Ask::get(Kind::Refs, "/")).await.unwrap_err();
    assert!(matches!(error, Error::Tls { .. }), "{error:?}");
    std::fs::write(&path, new.pem()).unwrap();
    assert_eq!(upstreams.reload_secrets(), []);
    assert!(client.send(Ask::get(Kind::Refs, "/")).await.is_ok());
    std::fs::write(&path, "-----BEGIN nonsense").unwrap();
    assert_eq!(upstreams.reload_secrets()[0].path, "upstreams[0].ca");
    assert!(client.send(Ask::get(Kind::Refs, "/")).await.is_ok());
}

#[tokio::test]
async fn a_start_without_a_secret_is_refused_with_all_problems() {
    let missing = SecretSource::FromFile("/nonexistent/secret".into());
    let one = UpstreamConfig { ca: Some(missing.clone()), ..UpstreamConfig::new("one.test") };
    let credential = CredentialConfig { bearer: Some(missing), ..CredentialConfig::default() };
    let two = UpstreamConfig { credential: Some(credential), ..UpstreamConfig::new("two.test") };
    let bad = UpstreamConfig::new("bad host");
    let problems = Upstreams::new(vec![one, two, bad], Settings::default()).err().unwrap();
    let paths: Vec<_> = problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(paths, ["upstreams[0].ca", "upstreams[1].credential.bearer", "upstreams[2].host"]);
}

#[tokio::test]
async fn a_reload_keeps_unchanged_clients_and_the_budgets_of_changed_ones() {
    let fake = Fake::start(|_| ok("")).await;
    let (same, changed) = (fake.config("same.test"), fake.config("changed.test"));
    let upstreams = Upstreams::new(vec![same.clone(), changed.clone()], Settings::default()).unwrap();
    let get = |name: &str| upstreams.get(&name.parse().unwrap());
    let (kept, before) = (get("same.test").unwrap(), get("changed.test").unwrap());
    before.send(Ask::get(Kind::Refs, "/")).await.unwrap();
    let changed = UpstreamConfig { redirects_to: vec!["cdn.test".to_owned()], ..changed };

    let broken = UpstreamConfig::new("a b");
    assert!(upstreams.reload(vec![broken]).is_err());
    assert!(Arc::ptr_eq(&get("same.test").unwrap(), &kept));

    upstreams.reload(vec![same, changed, fake.config("new.test")]).unwrap();
    assert!(Arc::ptr_eq(&get("same.test").unwrap(), &kept));
    let after = get("changed.test").unwrap();
    assert!(!Arc::ptr_eq(&after, &before));
    assert_eq!(after.budget_remaining(), 299);
    assert_eq!(upstreams.hosts().len(), 3);
    upstreams.reload(vec![]).unwrap();
    assert!(get("same.test").is_none());
}
