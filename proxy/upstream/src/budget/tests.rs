//! The budget in paused time.

use super::*;

fn budget(per_minute: u32, concurrent: u32, per_credential: u32) -> Arc<Budget> {
    Arc::new(Budget::new(BudgetConfig { per_minute, concurrent, per_credential }))
}

async fn take(
    budget: &Arc<Budget>,
    identity: &Identity,
    priority: Priority,
    patience: u64,
) -> Result<Permit, Refusal> {
    let patience = Duration::from_secs(patience);
    budget.acquire(Want { identity, priority, relay: false, patience }).await
}

async fn anonymous(budget: &Arc<Budget>, priority: Priority) -> Result<Permit, Refusal> {
    take(budget, &Identity::anonymous(), priority, 5).await
}

#[tokio::test(start_paused = true)]
async fn no_minute_sees_more_than_per_minute() {
    for per_minute in [1, 2, 7, 30, 300] {
        let budget = budget(per_minute, 1000, 1000);
        let mut times = Vec::new();
        let end = Instant::now() + Duration::from_secs(200);
        while Instant::now() < end {
            if take(&budget, &Identity::anonymous(), Priority::Client, 300).await.is_ok() {
                times.push(Instant::now());
            }
        }
        assert!(times.len() >= per_minute as usize, "{per_minute}: {}", times.len());
        for (at, start) in times.iter().enumerate() {
            let within = times[at..].iter().take_while(|time| **time - *start < MINUTE).count();
            assert!(within <= per_minute as usize, "{within} of {per_minute}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_fifth_of_the_room_is_kept_for_clients() {
    let budget = budget(6000, 10, 1000);
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(anonymous(&budget, Priority::Background).await.unwrap());
    }
    assert_eq!(anonymous(&budget, Priority::Background).await.unwrap_err(), Refusal::Spent(SOON));
    held.push(anonymous(&budget, Priority::Client).await.unwrap());
    held.push(anonymous(&budget, Priority::Client).await.unwrap());
    let started = Instant::now();
    assert!(anonymous(&budget, Priority::Client).await.is_err());
    assert_eq!(started.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_fifth_of_the_rate_is_kept_for_clients() {
    let budget = budget(100, 1000, 1000);
    let mut background = 0;
    while anonymous(&budget, Priority::Background).await.is_ok() {
        background += 1;
    }
    assert_eq!(background, 8);
    assert!(anonymous(&budget, Priority::Client).await.is_ok());
    assert!(anonymous(&budget, Priority::Client).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn clients_come_before_webhooks_and_the_background_never_waits() {
    let budget = budget(60, 1000, 1000);
    // Only what all share, so that nothing but the order decides who is next.
    while budget.whole.take().is_ok() {}
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for (name, priority) in [("webhook", Priority::Webhook), ("client", Priority::Client)] {
        let (budget, order) = (Arc::clone(&budget), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            take(&budget, &Identity::anonymous(), priority, 20).await.unwrap();
            order.lock().unwrap().push(name);
        }));
        tokio::task::yield_now().await;
    }
    let started = Instant::now();
    assert!(anonymous(&budget, Priority::Background).await.is_err());
    assert_eq!(started.elapsed(), Duration::ZERO);
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), ["client", "webhook"]);
}

#[tokio::test(start_paused = true)]
async fn one_credential_can_not_spend_the_whole() {
    let budget = budget(3000, 1000, 10);
    let (greedy, other) = (Identity::basic("a", "1"), Identity::basic("b", "2"));
    assert!(take(&budget, &greedy, Priority::Client, 0).await.is_ok());
    assert!(matches!(take(&budget, &greedy, Priority::Client, 0).await, Err(Refusal::Spent(_))));
    assert!(take(&budget, &other, Priority::Client, 0).await.is_ok());
    let started = Instant::now();
    assert!(take(&budget, &greedy, Priority::Client, 30).await.is_ok());
    assert!(started.elapsed() > Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_limit_blocks_the_credential_that_got_it_and_no_other() {
    let budget = budget(3000, 1000, 1000);
    let (limited, other) = (Identity::basic("a", "1"), Identity::basic("b", "2"));
    budget.report_limit(&limited, Duration::from_secs(30));
    let refusal = take(&budget, &limited, Priority::Client, 5).await.unwrap_err();
    assert_eq!(refusal, Refusal::Limited(Duration::from_secs(30)));
    assert!(take(&budget, &other, Priority::Client, 5).await.is_ok());
    assert!(anonymous(&budget, Priority::Client).await.is_ok());
    tokio::time::advance(Duration::from_secs(30)).await;
    assert!(take(&budget, &limited, Priority::Client, 5).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn two_credentials_within_ten_seconds_or_an_anonymous_one_block_the_upstream() {
    let (one, two, three) = (Identity::basic("a", "1"), Identity::basic("b", "2"), Identity::basic("c", "3"));
    for (pause, blocked) in [(5, true), (11, false)] {
        let budget = budget(3000, 1000, 1000);
        budget.report_limit(&one, Duration::from_secs(60));
        budget.report_limit(&one, Duration::from_secs(60));
        tokio::time::advance(Duration::from_secs(pause)).await;
        budget.report_limit(&two, Duration::from_secs(60));
        assert_eq!(take(&budget, &three, Priority::Client, 1).await.is_err(), blocked, "after {pause}");
    }
    let budget = budget(3000, 1000, 1000);
    budget.report_limit(&Identity::anonymous(), Duration::from_secs(60));
    assert!(take(&budget, &three, Priority::Client, 1).await.is_err());
    assert_eq!(budget.remaining(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_remembered_of_credentials_is_bounded() {
    let budget = budget(1_000_000, 1000, 10);
    for number in 0..10_000 {
        let identity = Identity::basic("user", &number.to_string());
        let _ = take(&budget, &identity, Priority::Background, 0).await;
        budget.report_limit(&identity, Duration::from_secs(600));
        budget.lock().blocked_until = None;
    }
    let remembered = budget.lock().credentials.len();
    assert!(remembered <= credentials::LIMIT && remembered > credentials::LIMIT / 2, "{remembered}");
}

#[tokio::test(start_paused = true)]
async fn room_that_comes_back_goes_to_who_waits_and_a_leaver_holds_nobody_up() {
    let budget = budget(6000, 1, 1000);
    let held = anonymous(&budget, Priority::Client).await.unwrap();
    let leaver = tokio::spawn({
        let budget = Arc::clone(&budget);
        async move { anonymous(&budget, Priority::Client).await.map(drop) }
    });
    tokio::task::yield_now().await;
    let waiter = tokio::spawn({
        let budget = Arc::clone(&budget);
        async move { anonymous(&budget, Priority::Client).await.map(drop) }
    });
    tokio::task::yield_now().await;
    leaver.abort();
    let _ = leaver.await;
    let started = Instant::now();
    drop(held);
    waiter.await.unwrap().unwrap();
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(budget.lock().in_use, 0);
}

#[tokio::test(start_paused = true)]
async fn relays_at_a_clients_pace_leave_room_for_others() {
    let budget = budget(6000, 4, 1000);
    let identity = Identity::anonymous();
    let want = Want {
        identity: &identity,
        priority: Priority::Client,
        relay: true,
        patience: Duration::from_secs(5),
    };
    let _one = budget.acquire(want).await.unwrap();
    let _two = budget.acquire(want).await.unwrap();
    assert!(budget.acquire(want).await.is_err());
    assert!(anonymous(&budget, Priority::Client).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_remains_of_the_minute_is_known() {
    let budget = budget(300, 100, 100);
    assert_eq!(budget.remaining(), 300);
    for _ in 0..10 {
        anonymous(&budget, Priority::Client).await.unwrap();
    }
    assert_eq!(budget.remaining(), 290);
    tokio::time::advance(MINUTE).await;
    assert_eq!(budget.remaining(), 300);
}
