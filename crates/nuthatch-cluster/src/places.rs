//! So many connections at a time, of all addresses and of each.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// So many connections at a time.
#[derive(Clone)]
pub(crate) struct Places {
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
    max: usize,
    of_address_max: usize,
}

impl Places {
    /// As many as `max` in all, of which one address may have `of_address_max`.
    pub(crate) fn new(max: usize, of_address_max: usize) -> Self {
        Self { taken: Arc::default(), max, of_address_max }
    }

    /// A place for a connection from an address, if one is free.
    pub(crate) fn take(&self, from: IpAddr) -> Option<Place> {
        let mut taken = self.taken.lock();
        let all: usize = taken.values().sum();
        let here = taken.get(&from).copied().unwrap_or(0);
        if all >= self.max || here >= self.of_address_max {
            return None;
        }
        taken.insert(from, here + 1);
        Some(Place { taken: Arc::clone(&self.taken), from })
    }
}

/// The place of a connection until it is over, however that comes.
pub(crate) struct Place {
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
    from: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.taken.lock();
        match taken.get_mut(&self.from) {
            Some(here) if *here > 1 => *here -= 1,
            _ => drop(taken.remove(&self.from)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_leaves_places_to_others() {
        let places = Places::new(3, 2);
        let address = |last| IpAddr::from([127, 0, 0, last]);
        let first = places.take(address(1)).expect("free");
        let second = places.take(address(1)).expect("free");
        assert!(places.take(address(1)).is_none(), "one address has its share");
        let other = places.take(address(2)).expect("another one has a place");
        assert!(places.take(address(3)).is_none(), "all are taken");
        drop(first);
        let again = places.take(address(1)).expect("a place is free again");
        drop((second, other, again));
        assert!(places.taken.lock().is_empty());
    }
}
