//! The claims about verdicts, refusals, grace and purges.

use tempfile::TempDir;
use tidegate_name::Folding;
use tidegate_store::StoreConfig;
use tokio::time::advance;

use super::*;

const TTL: Duration = Duration::from_secs(120);
const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

async fn access(dir: &TempDir) -> (Arc<Access>, Arc<Store>) {
    let store = Store::open(dir.path(), &StoreConfig::default()).await.unwrap();
    (Access::new(AccessConfig::default(), [7; 32], &store), store)
}

fn asked(access: &Access, path: &str, identity: &Identity) -> Asked {
    let upstream: Upstream = "github.com".parse().unwrap();
    let folds = Folding { ignore_case: true, git_suffix: true };
    Asked {
        spelled: Repository::new(upstream.clone(), path, Folding::default()),
        content: Repository::new(upstream, path, folds),
        caller: access.caller(identity),
    }
}

fn refusal(status: u16) -> Refusal {
    Refusal { status: StatusCode::from_u16(status).unwrap(), text: "no".into(), passing: false }
}

#[tokio::test]
async fn a_verdict_belongs_to_one_spelling_and_one_credential() {
    let dir = TempDir::new().unwrap();
    let (access, _store) = access(&dir).await;
    let (alice, bob) = (Identity::basic("alice", "a"), Identity::basic("bob", "b"));
    let mine = asked(&access, "org/app", &alice);
    access.accept(&mine, &alice, true);
    assert!(matches!(access.standing(&mine, TTL, HOME), Standing::Granted(_)));
    for other in [
        asked(&access, "org/app", &bob),
        asked(&access, "Org/App.git", &alice),
        asked(&access, "org/app2", &alice),
    ] {
        assert!(matches!(access.standing(&other, TTL, HOME), Standing::Unknown), "{other:?}");
        assert!(matches!(access.away(&other), Away::Unproven), "{other:?}");
    }
}

#[tokio::test]
async fn a_refusal_ends_the_verdict_at_once_in_an_outage_too() {
    let dir = TempDir::new().unwrap();
    let (access, _store) = access(&dir).await;
    let alice = Identity::basic("alice", "a");
    let mine = asked(&access, "org/app", &alice);
    access.accept(&mine, &alice, true);
    access.refuse(&mine, refusal(403), Some(HOME));
    assert!(matches!(access.standing(&mine, TTL, HOME), Standing::Refused(_)));
    assert!(matches!(access.away(&mine), Away::Unproven));
    assert!(access.borrow(&mine.content).is_none());
}

#[tokio::test]
async fn a_restart_in_an_outage_refuses_nobody_who_was_proven() {
    let dir = TempDir::new().unwrap();
    let alice = Identity::basic("alice", "a");
    let (first, store) = access(&dir).await;
    first.accept(&asked(&first, "org/app", &alice), &alice, true);
    first.accept(&asked(&first, "org/open", &Identity::anonymous()), &Identity::anonymous(), true);
    first.refuse(&asked(&first, "org/app", &Identity::anonymous()), refusal(401), None);
    store.shutdown().await;
    drop((first, store));
    let (second, _store) = access(&dir).await;
    let nobody = Identity::anonymous();
    let proven = asked(&second, "org/app", &alice);
    assert!(matches!(second.standing(&proven, TTL, HOME), Standing::Unknown));
    assert!(matches!(second.away(&proven), Away::Granted(grant) if grant.by_grace()));
    assert!(matches!(second.away(&asked(&second, "org/app", &Identity::basic("eve", "e"))), Away::Unproven));
    assert!(matches!(second.away(&asked(&second, "org/app", &nobody)), Away::AnonymousRefused));
    assert!(matches!(second.away(&asked(&second, "org/open", &nobody)), Away::Granted(_)));
    assert!(matches!(second.away(&asked(&second, "org/none", &nobody)), Away::Unproven));
}

#[tokio::test]
async fn verdicts_run_out_but_not_under_the_renewal() {
    let dir = TempDir::new().unwrap();
    let (access, _store) = access(&dir).await;
    let alice = Identity::basic("alice", "a");
    let mine = asked(&access, "org/app", &alice);
    access.accept(&mine, &alice, true);
    tokio::time::pause();
    advance(Duration::from_millis(119_999)).await;
    let renewal = access.renewing(&mine);
    advance(Duration::from_secs(3)).await;
    assert!(matches!(access.standing(&mine, TTL, HOME), Standing::Granted(_)));
    drop(renewal);
    assert!(matches!(access.standing(&mine, TTL, HOME), Standing::Unknown));
    let _late = access.renewing(&mine);
    assert!(
        matches!(access.standing(&mine, TTL, HOME), Standing::Unknown),
        "began after the verdict had run out"
    );
}

#[tokio::test]
async fn garbage_logins_are_metered_and_proven_callers_never_notice() {
    let dir = TempDir::new().unwrap();
    let (access, _store) = access(&dir).await;
    let alice = Identity::basic("alice", "a");
    let mine = asked(&access, "org/app", &alice);
    access.accept(&mine, &alice, true);
    for n in 0..10 {
        let garbage = asked(&access, "org/app", &Identity::basic("eve", &n.to_string()));
        assert!(matches!(access.standing(&garbage, TTL, HOME), Standing::Unknown));
        access.refuse(&garbage, refusal(401), Some(HOME));
    }
    let next = asked(&access, "org/app", &Identity::basic("eve", "11"));
    assert!(matches!(access.standing(&next, TTL, HOME), Standing::Metered(_)));
    let elsewhere = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));
    assert!(matches!(access.standing(&next, TTL, elsewhere), Standing::Unknown));
    assert!(matches!(access.standing(&mine, TTL, HOME), Standing::Granted(_)));
    let nobody = asked(&access, "org/app", &Identity::anonymous());
    assert!(matches!(access.standing(&nobody, TTL, HOME), Standing::Unknown));
}

#[tokio::test]
async fn a_purge_forgets_every_spelling() {
    let dir = TempDir::new().unwrap();
    let (access, _store) = access(&dir).await;
    let alice = Identity::basic("alice", "a");
    for path in ["org/app", "Org/App.git"] {
        access.accept(&asked(&access, path, &alice), &alice, true);
    }
    access.forget(&asked(&access, "org/app", &alice).content);
    for path in ["org/app", "Org/App.git"] {
        let mine = asked(&access, path, &alice);
        assert!(matches!(access.standing(&mine, TTL, HOME), Standing::Unknown));
        assert!(matches!(access.away(&mine), Away::Unproven));
    }
    assert!(access.borrow(&asked(&access, "org/app", &alice).content).is_none());
}

#[tokio::test]
async fn a_web_page_in_between_is_forgotten_after_half_a_minute() {
    let dir = TempDir::new().unwrap();
    let (access, _store) = access(&dir).await;
    let nobody = asked(&access, "org/open", &Identity::anonymous());
    access.accept(&nobody, &Identity::anonymous(), true);
    access.refuse(&nobody, Refusal { passing: true, ..refusal(401) }, None);
    assert!(matches!(access.standing(&nobody, TTL, HOME), Standing::Refused(_)));
    assert!(matches!(access.away(&nobody), Away::Unproven));
    tokio::time::pause();
    advance(Duration::from_secs(31)).await;
    assert!(matches!(access.standing(&nobody, TTL, HOME), Standing::Unknown));
}
