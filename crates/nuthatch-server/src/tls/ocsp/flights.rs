//! Requests under way: those who want to know the same wait for one answer.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

/// Why no responder has said anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// Those that were asked do not answer.
    Silent,
    /// None was asked: others are asked so much that the time was over before.
    Busy,
}

pub(super) type Answer = Result<Arc<[u8]>, Unanswered>;

/// What is asked, and how long is waited for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Question {
    pub(super) certificate: String,
    pub(super) request: Vec<u8>,
    pub(super) wait: Duration,
}

/// All requests under way: no more than there are peers that wait.
#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<FxHashMap<Question, Arc<OnceCell<Answer>>>>);

/// One of those who wait for an answer.
pub(super) struct Waiting<'a> {
    flights: &'a Flights,
    question: Question,
    cell: Arc<OnceCell<Answer>>,
}

impl Flights {
    pub(super) fn join(&self, question: Question) -> Waiting<'_> {
        let cell = self.0.lock().entry(question.clone()).or_default().clone();
        Waiting { flights: self, question, cell }
    }
}

impl Waiting<'_> {
    /// The answer, and whether it was asked for here. If whoever asks gives up, the next one asks.
    pub(super) async fn answer(&self, ask: impl Future<Output = Answer>) -> (Answer, bool) {
        let mut has_asked = false;
        let ask = async {
            has_asked = true;
            ask.await
        };
        let answer = self.cell.get_or_init(|| ask).await.clone();
        (answer, has_asked)
    }
}

impl Drop for Waiting<'_> {
    /// Who comes after an answer asks anew; and what nobody waits for any more is forgotten.
    fn drop(&mut self) {
        let mut all = self.flights.0.lock();
        let is_present =
            all.get(&self.question).is_some_and(|present| Arc::ptr_eq(present, &self.cell));
        // One is in the table, the other here; new ones are made under the lock only.
        if is_present && (self.cell.initialized() || Arc::strong_count(&self.cell) == 2) {
            all.remove(&self.question);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> Question {
        let wait = Duration::from_secs(1);
        Question { certificate: "a".to_owned(), request: vec![1], wait }
    }

    #[tokio::test]
    async fn one_asks_for_all_and_the_next_one_if_it_gives_up() {
        let flights = Flights::default();
        let (first, second, third) =
            (flights.join(question()), flights.join(question()), flights.join(question()));
        let never = first.answer(std::future::pending());
        let gives_up = tokio::time::timeout(Duration::from_millis(10), never).await;
        assert!(gives_up.is_err());
        drop(first);
        let said = Ok(Arc::from(&b"x"[..]));
        assert_eq!(second.answer(async { said.clone() }).await, (said.clone(), true));
        assert_eq!(third.answer(async { Err(Unanswered::Busy) }).await, (said, false));
        drop(second);
        assert!(flights.0.lock().is_empty(), "it has an answer");
        let later = flights.join(question());
        drop(third);
        assert_eq!(flights.0.lock().len(), 1, "another request than that of the third");
        drop(later);
        assert!(flights.0.lock().is_empty(), "nobody waits");
    }
}
