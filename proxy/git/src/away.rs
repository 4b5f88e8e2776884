//! Whether an upstream answers for one repository, and who still waits for it.
//!
//! A look that hangs marks the upstream as away for as long as it hangs, and a
//! failed one for a moment after; whoever can be served without it is woken
//! and waits no longer.

use std::{
    future::Future,
    pin::pin,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};

/// After a sick answer, or while none comes, nobody waits for so long.
const REMEMBER: Duration = Duration::from_secs(10);
/// A look that takes so long hangs. A little less than anybody's patience and
/// the slack of a verdict, so that it is known before they end.
const HANGS: Duration = Duration::from_millis(4_500);

/// What is known of an upstream's absence.
#[derive(Debug, Default)]
pub(crate) struct Away {
    until: Mutex<Option<Instant>>,
    gone: Notify,
}

impl Away {
    /// Whether looking at the upstream lately led nowhere.
    pub(crate) fn is_known(&self) -> bool {
        self.lock().is_some_and(|until| Instant::now() < until)
    }

    /// The upstream gave no usable answer.
    pub(crate) fn begin(&self) {
        *self.lock() = Some(Instant::now() + REMEMBER);
        self.gone.notify_waiters();
    }

    /// It gave one.
    pub(crate) fn end(&self) {
        *self.lock() = None;
    }

    /// Runs a look to its end and takes note while it hangs.
    pub(crate) async fn watch<T>(&self, look: impl Future<Output = T>) -> T {
        let mut look = pin!(look);
        loop {
            tokio::select! {
                biased;
                answer = &mut look => return answer,
                () = sleep(HANGS) => self.begin(),
            }
        }
    }

    /// Waits for a look, at most `patience`. A reader who can be served
    /// without it (`stale`) waits only until the upstream is known to be away.
    pub(crate) async fn wait<T>(
        &self,
        patience: Duration,
        stale: bool,
        look: impl Future<Output = T>,
    ) -> Option<T> {
        let gone = async {
            self.gone.notified().await;
            // A look that has just failed has more to say.
            tokio::task::yield_now().await;
        };
        tokio::select! {
            biased;
            looked = timeout(patience, look) => looked.ok(),
            () = gone, if stale => None,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, sync::Arc};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_look_that_hangs_however_long_it_does() {
        let away = Arc::new(Away::default());
        let look = Arc::clone(&away);
        tokio::spawn(async move { look.watch(sleep(Duration::from_secs(60))).await });
        sleep(PATIENCE).await;
        for second in 5..69 {
            assert!(away.is_known(), "after {second} s");
            sleep(Duration::from_secs(1)).await;
        }
        sleep(REMEMBER).await;
        assert!(!away.is_known());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_who_can_be_served_is_woken_when_the_upstream_turns_out_to_be_away() {
        let away = Arc::new(Away::default());
        let look = Arc::clone(&away);
        tokio::spawn(async move { look.watch(pending::<()>()).await });
        sleep(Duration::from_secs(4)).await;
        let asked = Instant::now();
        assert!(away.wait(PATIENCE, true, pending::<()>()).await.is_none());
        assert_eq!(asked.elapsed(), Duration::from_millis(500));
        let asked = Instant::now();
        assert!(away.wait(PATIENCE, false, pending::<()>()).await.is_none());
        assert_eq!(asked.elapsed(), PATIENCE, "who can't be served otherwise waits");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_ends_the_absence() {
        let away = Away::default();
        away.begin();
        assert!(away.is_known());
        assert_eq!(away.wait(PATIENCE, true, async { 7 }).await, Some(7));
        away.end();
        assert!(!away.is_known());
    }
}
