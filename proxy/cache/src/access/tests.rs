//! The claims about verdicts, refusals, grace and purges.

use tempfile::TempDir;
use tidegate_name::{Folding, Upstream};
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
    access.accept(&mine, &alice, true, Instant::now());
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
    access.accept(&mine, &alice, true, Instant::now());
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
    first.accept(&asked(&first, "org/app", &alice), &alice, true, Instant::now());
    first.accept(
        &asked(&first, "org/open", &Identity::anonymous()),
        &Identity::anonymous(),
        true,
        Instant::now(),
    );
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
    access.accept(&mine, &alice, true, Instant::now());
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
    access.accept(&mine, &alice, true, Instant::now());
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
        access.accept(&asked(&access, path, &alice), &alice, true, Instant::now());
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
    access.accept(&nobody, &Identity::anonymous(), true, Instant::now());
    access.refuse(&nobody, Refusal { passing: true, ..refusal(401) }, None);
    assert!(matches!(access.standing(&nobody, TTL, HOME), Standing::Refused(_)));
    assert!(matches!(access.away(&nobody), Away::Unproven));
    tokio::time::pause();
    advance(Duration::from_secs(31)).await;
    assert!(matches!(access.standing(&nobody, TTL, HOME), Standing::Unknown));
}

#[tokio::test]
async fn an_answer_that_was_asked_for_before_a_refusal_does_not_undo_it() {
    let dir = TempDir::new().unwrap();
    let (access, _store) = access(&dir).await;
    let alice = Identity::basic("alice", "a");
    let mine = asked(&access, "org/app", &alice);
    tokio::time::pause();
    let slow = Instant::now();
    advance(Duration::from_secs(1)).await;
    access.refuse(&mine, refusal(401), None);
    advance(Duration::from_secs(1)).await;
    access.accept(&mine, &alice, true, slow);
    assert!(matches!(access.standing(&mine, TTL, HOME), Standing::Refused(_)));
    assert!(matches!(access.away(&mine), Away::Unproven) && access.borrow(&mine.content).is_none());
    assert!(access.accepted_since(&mine, slow).is_none());
    let again = Instant::now();
    access.accept(&mine, &alice, true, again);
    assert!(access.accepted_since(&mine, again).is_some());
}

#[tokio::test]
async fn guesses_at_the_same_time_get_no_more_refusals_than_one_after_the_other() {
    let dir = TempDir::new().unwrap();
    let (access, _store) = access(&dir).await;
    let guesses = (0..40).map(|n| asked(&access, "org/app", &Identity::basic("eve", &n.to_string())));
    let tried = futures_util::future::join_all(guesses.map(|guess| {
        let access = Arc::clone(&access);
        async move {
            let trial = access.trial(&guess, Some(HOME)).await;
            if trial.is_ok() {
                tokio::task::yield_now().await;
                access.refuse(&guess, refusal(401), Some(HOME));
            }
            trial.is_ok()
        }
    }));
    assert_eq!(tried.await.into_iter().filter(|tried| *tried).count(), 10);
}

#[tokio::test]
async fn one_whom_the_upstream_knows_waits_for_nobody() {
    let dir = TempDir::new().unwrap();
    let (access, _store) = access(&dir).await;
    let alice = Identity::basic("alice", "a");
    access.accept(&asked(&access, "org/app", &alice), &alice, true, Instant::now());
    let guess = |n: u32| asked(&access, "org/app", &Identity::basic("eve", &n.to_string()));
    let mut held = Vec::new();
    for n in 0..10 {
        held.push(access.trial(&guess(n), Some(HOME)).await.unwrap().unwrap());
    }
    assert!(access.trial(&asked(&access, "org/other", &alice), Some(HOME)).await.unwrap().is_none());
    let eleventh = guess(11);
    let mut waiting = std::pin::pin!(access.trial(&eleventh, Some(HOME)));
    assert!(futures_util::FutureExt::now_or_never(&mut waiting).is_none());
    // The one before it was let in: nobody was refused.
    held.pop();
    assert!(waiting.await.unwrap().is_some());
}

#[tokio::test]
async fn over_the_meter_what_is_public_is_still_read() {
    let dir = TempDir::new().unwrap();
    let (access, _store) = access(&dir).await;
    let nobody = Identity::anonymous();
    access.accept(&asked(&access, "org/open", &nobody), &nobody, true, Instant::now());
    for n in 0..10 {
        access.refuse(
            &asked(&access, "org/app", &Identity::basic("eve", &n.to_string())),
            refusal(401),
            Some(HOME),
        );
    }
    let eve = Identity::basic("eve", "11");
    assert!(matches!(access.standing(&asked(&access, "org/open", &eve), TTL, HOME), Standing::Granted(_)));
    assert!(matches!(access.standing(&asked(&access, "org/app", &eve), TTL, HOME), Standing::Metered(_)));
    tokio::time::pause();
    assert!(access.relay_must_wait(&asked(&access, "org/app", &eve), Some(HOME)).is_some());
    assert!(access.relay_must_wait(&asked(&access, "org/app", &nobody), Some(HOME)).is_none());
}

#[tokio::test]
async fn a_loan_is_for_one_repository_and_ends_ten_minutes_after_its_owner_left() {
    let dir = TempDir::new().unwrap();
    let (access, _store) = access(&dir).await;
    let alice = Identity::basic("alice", "a");
    let mine = asked(&access, "org/app", &alice);
    access.accept(&mine, &alice, true, Instant::now());
    assert!(access.borrow(&asked(&access, "org/other", &alice).content).is_none());
    tokio::time::pause();
    for _ in 0..9 {
        // Background refreshes renew the verdict; they don't bring the owner back.
        advance(Duration::from_secs(66)).await;
        let loan = access.borrow(&mine.content).unwrap();
        assert_eq!(loan.asked, mine);
        access.accept(&loan.asked, &loan.identity, false, Instant::now());
    }
    advance(Duration::from_secs(7)).await;
    assert!(access.borrow(&mine.content).is_none());
}
