//! A bound on slow password checks: bcrypt takes a tenth of a second of a core, and anybody who can
//! connect can ask for it.

use crate::shares::Turns;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Strangers that wait for their check at a time; further ones are turned away.
const WAITING_MAX: usize = 1024;
/// Those of one address.
const WAITING_OF_ADDRESS_MAX: usize = 128;
/// One address has one in so many of those places.
const ADDRESSES_SHARE: usize = 2;
/// Clients that wait for the service of an auth callout at a time; further ones are turned away.
pub const CALLOUTS_MAX: usize = 8192;
/// Checks at once: one in so many of the machine's cores, so that those who are in keep theirs.
const CORES_SHARE: usize = 2;

/// Addresses that end in so many bits of their own are one stranger's.
const ADDRESS_PREFIX_V6_BITS: u32 = 64;

/// Lets a few slow checks run at once, off the threads that serve connections. Of those that come
/// from one address only so many wait for a place with others: who asks a thousand times is one
/// stranger among others.
pub struct SlowChecks {
    places: Semaphore,
    turns: Arc<Turns<IpAddr>>,
    waiting: Mutex<Waiting>,
    /// Those that wait for the service of an auth callout.
    asking: Mutex<Waiting>,
    /// Those that wait for an account, which is asked for.
    fetching: Mutex<Waiting>,
}

/// Who waits.
#[derive(Default)]
struct Waiting {
    total: usize,
    by_address: FxHashMap<IpAddr, usize>,
}

/// Whose turn it is.
fn stranger(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(own) => {
            let bits = u128::MAX << (u128::BITS - ADDRESS_PREFIX_V6_BITS);
            IpAddr::V6(Ipv6Addr::from_bits(own.to_bits() & bits))
        }
        v4 => v4,
    }
}

impl Default for SlowChecks {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self::new((cores / CORES_SHARE).max(1))
    }
}

impl SlowChecks {
    fn new(at_once: usize) -> Self {
        let turns = Turns::new((at_once / ADDRESSES_SHARE).max(1));
        let (waiting, asking, fetching) = Default::default();
        Self { places: Semaphore::new(at_once), turns, waiting, asking, fetching }
    }

    /// A place for a client of this address that waits for the service of an auth callout; `None`: too
    /// many wait already, or too many of that address.
    pub(crate) fn place_to_ask(&self, from: IpAddr) -> Option<WaitingCheck<'_>> {
        let max = (CALLOUTS_MAX, CALLOUTS_MAX / ADDRESSES_SHARE);
        WaitingCheck::new(&self.asking, stranger(from), max)
    }

    /// A place for a client of this address that waits for its account; `None`: too many wait already, or
    /// too many of that address.
    pub(crate) fn place_to_fetch(&self, from: IpAddr) -> Option<WaitingCheck<'_>> {
        let max = (WAITING_MAX, WAITING_OF_ADDRESS_MAX);
        WaitingCheck::new(&self.fetching, stranger(from), max)
    }

    /// Runs a check when there is a place for it. `None`: too many wait already, or `timeout` was
    /// over before its turn came.
    pub async fn run<T: Send + 'static>(
        &self,
        from: IpAddr,
        timeout: Duration,
        check: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let stranger = stranger(from);
        let max = (WAITING_MAX, WAITING_OF_ADDRESS_MAX);
        let waiting = WaitingCheck::new(&self.waiting, stranger, max)?;
        let place = async {
            let turn = self.turns.turn(stranger).await;
            (turn, self.places.acquire().await.expect("it is never closed"))
        };
        let place = tokio::time::timeout(timeout, place).await.ok()?;
        drop(waiting);
        let result = tokio::task::spawn_blocking(check).await.ok();
        drop(place);
        result
    }
}

/// One that waits.
pub(crate) struct WaitingCheck<'a> {
    waiting: &'a Mutex<Waiting>,
    stranger: IpAddr,
}

impl<'a> WaitingCheck<'a> {
    /// One more, if fewer than so many wait in all and of its address.
    fn new(
        waiting: &'a Mutex<Waiting>,
        stranger: IpAddr,
        (all_max, own_max): (usize, usize),
    ) -> Option<Self> {
        let mut all = waiting.lock();
        let own = all.by_address.get(&stranger).copied().unwrap_or_default();
        if all.total >= all_max || own >= own_max {
            return None;
        }
        all.total += 1;
        all.by_address.insert(stranger, own + 1);
        Some(Self { waiting, stranger })
    }
}

impl Drop for WaitingCheck<'_> {
    fn drop(&mut self) {
        let mut all = self.waiting.lock();
        all.total -= 1;
        let own = all.by_address.get_mut(&self.stranger).expect("it was counted");
        *own -= 1;
        if *own == 0 {
            all.by_address.remove(&self.stranger);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const HERE: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

    const TIMEOUT: Duration = Duration::from_secs(60);

    #[test]
    fn few_run_at_once_and_few_wait() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let checks = Arc::new(SlowChecks::new(2 * ADDRESSES_SHARE));
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let one = || {
            let (running, most) = (running.clone(), most.clone());
            move || {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(5));
                running.fetch_sub(1, Ordering::SeqCst);
            }
        };
        runtime.block_on(async {
            let tasks: Vec<_> = (0..20)
                .map(|_| {
                    let (checks, check) = (checks.clone(), one());
                    tokio::spawn(async move { checks.run(HERE, TIMEOUT, check).await })
                })
                .collect();
            for task in tasks {
                assert!(task.await.unwrap().is_some());
            }
        });
        assert_eq!(most.load(Ordering::SeqCst), 2);
        assert_eq!(checks.waiting.lock().total, 0);
        checks.waiting.lock().total = WAITING_MAX;
        assert!(runtime.block_on(checks.run(HERE, TIMEOUT, || ())).is_none());
    }

    #[test]
    fn one_address_leaves_room_for_others_that_wait() {
        let waiting = Mutex::default();
        let other: IpAddr = "192.0.2.1".parse().unwrap();
        let max = (WAITING_MAX, WAITING_OF_ADDRESS_MAX);
        let held: Vec<_> =
            (0..WAITING_MAX).map_while(|_| WaitingCheck::new(&waiting, HERE, max)).collect();
        assert_eq!(held.len(), 128);
        assert!(WaitingCheck::new(&waiting, other, max).is_some());
        drop(held);
        assert!(waiting.lock().total == 0 && waiting.lock().by_address.is_empty());
    }

    #[tokio::test]
    async fn an_address_that_asks_often_waits_for_itself() {
        let checks = Arc::new(SlowChecks::new(2));
        let (other, same_network): (IpAddr, IpAddr) =
            ("192.0.2.1".parse().unwrap(), "::2".parse().unwrap());
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let slow = checks.clone();
        let holding =
            tokio::spawn(
                async move { slow.run(HERE, TIMEOUT, move || ended.recv().is_err()).await },
            );
        while checks.places.available_permits() == 2 {
            tokio::task::yield_now().await;
        }
        let soon = Duration::from_millis(20);
        assert_eq!(checks.run(same_network, soon, || ()).await, None);
        assert_eq!(checks.run(other, TIMEOUT, || 7).await, Some(7));
        drop(end);
        assert_eq!(holding.await.unwrap(), Some(true));
        assert_eq!(checks.run(same_network, TIMEOUT, || 8).await, Some(8));
    }

    #[test]
    fn one_address_does_not_take_all_places_of_those_who_ask_a_service() {
        let checks = SlowChecks::new(1);
        let other: IpAddr = "192.0.2.1".parse().unwrap();
        let held: Vec<_> = (0..CALLOUTS_MAX).map_while(|_| checks.place_to_ask(HERE)).collect();
        assert_eq!(held.len(), CALLOUTS_MAX / 2);
        assert!(checks.place_to_ask(other).is_some());
        drop(held);
        assert!(checks.place_to_ask(HERE).is_some());
    }

    #[test]
    fn the_timeout_ends() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let checks = SlowChecks::new(0);
        let timeout = Duration::from_millis(1);
        assert!(runtime.block_on(checks.run(HERE, timeout, || ())).is_none());
        assert_eq!(checks.waiting.lock().total, 0);
    }
}
