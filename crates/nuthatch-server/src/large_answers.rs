//! Bounds of answers that may be large: how many are made at a time, and how many bytes all of them
//! may keep together until they are sent.

use crate::account_id::SYSTEM_ACCOUNT_ID;
use crate::shares::{AccountTurns, Full, Share, Shares, Turn};
use crate::trim;
use bytes::Bytes;
use nuthatch_streams::AccountId;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Large answers that are made at a time, over HTTP and for requests of accounts.
const MAKING_MAX: usize = 2;
/// Pages of metrics that are made at a time, beside those.
const METRICS_MAKING_MAX: usize = 1;
/// Large answers that are made for other accounts than the system account.
const MAKING_FOR_ACCOUNTS_MAX: usize = 1;
/// Those that are made for one account.
const MAKING_OF_ACCOUNT_MAX: usize = 1;
/// Large documents that are asked for and not made yet: more are refused at once.
const ASKED_MAX: usize = 64;
/// Those of all other accounts than the system account: the rest is for HTTP and for the operator.
const ASKED_FOR_ACCOUNTS_MAX: usize = 48;
/// Those of one of them.
const ASKED_OF_ACCOUNT_MAX: usize = 16;
/// Bytes of answers that have not been sent yet, all together.
const WAITING_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Those of metrics: scrapes wait for no documents that others do not take.
const METRICS_WAITING_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes per permit.
const UNIT_BYTES: usize = 1024;

/// Bounds for all large answers of a server.
#[derive(Debug)]
pub struct LargeAnswers {
    making: Arc<Semaphore>,
    making_for_accounts: Arc<Semaphore>,
    account_turns: Arc<AccountTurns>,
    asked: Arc<Semaphore>,
    asked_for_accounts: Arc<Shares>,
    waiting: Arc<Semaphore>,
    metrics: Arc<Semaphore>,
    metrics_waiting: Arc<Semaphore>,
}

impl Default for LargeAnswers {
    fn default() -> Self {
        Self {
            making: Arc::new(Semaphore::new(MAKING_MAX)),
            making_for_accounts: Arc::new(Semaphore::new(MAKING_FOR_ACCOUNTS_MAX)),
            account_turns: AccountTurns::new(MAKING_OF_ACCOUNT_MAX),
            asked: Arc::new(Semaphore::new(ASKED_MAX)),
            asked_for_accounts: Shares::new(ASKED_FOR_ACCOUNTS_MAX, ASKED_OF_ACCOUNT_MAX),
            waiting: Arc::new(Semaphore::new(WAITING_BYTES_MAX / UNIT_BYTES)),
            metrics: Arc::new(Semaphore::new(METRICS_MAKING_MAX)),
            metrics_waiting: Arc::new(Semaphore::new(METRICS_WAITING_BYTES_MAX / UNIT_BYTES)),
        }
    }
}

/// The endpoint of metrics, whose pages have room of their own.
pub(crate) const METRICS: &str = "/metrics";

/// The right to make a large answer.
pub(crate) struct MakingTurn {
    _making: OwnedSemaphorePermit,
    _for_accounts: Option<OwnedSemaphorePermit>,
    _of_account: Option<Turn>,
}

impl LargeAnswers {
    /// An account's place among those who have asked; `None`: who asks needs none, the operator over
    /// HTTP or through the system account.
    pub(crate) fn place_of(&self, asker: Option<AccountId>) -> Result<Option<Share>, Full> {
        let account = asker.filter(|account| *account != SYSTEM_ACCOUNT_ID);
        account.map(|account| self.asked_for_accounts.take(account, 1)).transpose()
    }

    /// Waits for the right to make the answer of an endpoint for an account; `None`: for a request
    /// over HTTP.
    pub(crate) async fn turn(&self, endpoint: &str, asker: Option<AccountId>) -> MakingTurn {
        if endpoint == METRICS {
            let making = permit(&self.metrics).await;
            return MakingTurn { _making: making, _for_accounts: None, _of_account: None };
        }
        let of_account = match asker {
            Some(account) => Some(self.account_turns.turn(account).await),
            None => None,
        };
        let for_accounts = match asker {
            Some(account) if account != SYSTEM_ACCOUNT_ID => {
                Some(permit(&self.making_for_accounts).await)
            }
            _ => None,
        };
        let making = permit(&self.making).await;
        MakingTurn { _making: making, _for_accounts: for_accounts, _of_account: of_account }
    }

    /// Counts a large document that is asked for until it is made; `None`: there are too many.
    pub(crate) fn ask(&self) -> Option<OwnedSemaphorePermit> {
        self.asked.clone().try_acquire_owned().ok()
    }

    /// The bytes of an endpoint's answer, which count until they are sent or dropped; `None`: there are
    /// too many others.
    pub(crate) async fn hold(
        &self,
        endpoint: &str,
        text: Vec<u8>,
        limit: Duration,
    ) -> Option<Bytes> {
        let (waiting, max_bytes) = match endpoint {
            METRICS => (&self.metrics_waiting, METRICS_WAITING_BYTES_MAX),
            _ => (&self.waiting, WAITING_BYTES_MAX),
        };
        let units = text.len().div_ceil(UNIT_BYTES).min(max_bytes / UNIT_BYTES);
        let units = u32::try_from(units).expect("bounded by a constant above");
        let permit = timeout(limit, waiting.clone().acquire_many_owned(units)).await.ok()?.ok()?;
        Some(Bytes::from_owner(AnswerShare { text, _permit: permit }))
    }
}

async fn permit(places: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    places.clone().acquire_owned().await.expect("it is never closed")
}

/// An answer with its share of [`WAITING_BYTES_MAX`].
struct AnswerShare {
    text: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for AnswerShare {
    fn drop(&mut self) {
        trim::freed(self.text.len());
    }
}

impl AsRef<[u8]> for AnswerShare {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Duration = Duration::from_secs(10);

    /// Whether a turn is to be had now.
    async fn is_free(large: &LargeAnswers, asker: Option<AccountId>) -> bool {
        timeout(Duration::from_millis(50), large.turn("/connz", asker)).await.is_ok()
    }

    #[test]
    fn accounts_leave_room_for_the_requests_of_the_operator() {
        let large = LargeAnswers::default();
        let places = |account: u32| {
            let asker = Some(AccountId(account));
            std::iter::repeat_with(|| large.place_of(asker).ok().flatten())
                .map_while(|place| place)
                .collect::<Vec<_>>()
        };
        let held: Vec<_> = (7..17).map(places).collect();
        let counts: Vec<usize> = held.iter().map(Vec::len).collect();
        assert_eq!(counts[..4], [16, 16, 16, 0]);
        const { assert!(ASKED_FOR_ACCOUNTS_MAX < ASKED_MAX) }
        for operator in [None, Some(SYSTEM_ACCOUNT_ID)] {
            assert!(large.place_of(operator).is_ok_and(|place| place.is_none()));
        }
        drop(held);
        assert_eq!(places(20).len(), 16);
    }

    #[tokio::test]
    async fn accounts_leave_a_maker_for_the_operator() {
        let (one, other) = (Some(AccountId(7)), Some(AccountId(8)));
        let large = LargeAnswers::default();
        let held = large.turn("/connz", one).await;
        assert!(!is_free(&large, one).await && !is_free(&large, other).await);
        assert!(is_free(&large, None).await && is_free(&large, Some(SYSTEM_ACCOUNT_ID)).await);
        assert!(timeout(TURN, large.turn(METRICS, None)).await.is_ok());
        drop(held);
        let _over_http = large.turn("/connz", None).await;
        assert!(is_free(&large, other).await);
    }
}
