//! Places for HTTP connections. Whoever sends slowly, or nothing, makes place for whoever comes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// Connections of a number at a time.
#[derive(Debug)]
pub struct Places {
    max: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    all: HashMap<u64, Connection>,
}

#[derive(Debug)]
struct Connection {
    /// Requests of it that are being answered.
    answering: usize,
    /// Since when it is as it is.
    since: Instant,
    task: Option<AbortHandle>,
}

/// A place; it is free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    id: u64,
}

/// A request that is being answered; dropped when it was.
#[derive(Debug)]
pub struct Answering(Arc<Place>);

impl Places {
    /// So many places.
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, taken: Mutex::default() })
    }

    /// Takes a place. When all are taken, the connection that has asked for nothing for longest is
    /// ended; `None`: all of them are being answered.
    pub fn take(self: &Arc<Self>) -> Option<Arc<Place>> {
        let mut taken = self.taken.lock();
        if taken.all.len() >= self.max {
            let idle = taken.all.iter().filter(|(_, connection)| connection.answering == 0);
            let (&longest, _) = idle.min_by_key(|(_, connection)| connection.since)?;
            let ended = taken.all.remove(&longest);
            if let Some(task) = ended.and_then(|ended| ended.task) {
                task.abort();
            }
        }
        taken.next += 1;
        let id = taken.next;
        let fresh = Connection { answering: 0, since: Instant::now(), task: None };
        taken.all.insert(id, fresh);
        Some(Arc::new(Place { places: self.clone(), id }))
    }
}

impl Place {
    /// The task that serves the connection.
    pub fn served_by(&self, task: AbortHandle) {
        match self.places.taken.lock().all.get_mut(&self.id) {
            Some(connection) => connection.task = Some(task),
            None => task.abort(),
        }
    }

    /// A request of the connection is being answered from now on.
    pub fn answer(self: &Arc<Self>) -> Answering {
        self.change(|answering| answering + 1);
        Answering(self.clone())
    }

    fn change(&self, how: impl FnOnce(usize) -> usize) {
        if let Some(connection) = self.places.taken.lock().all.get_mut(&self.id) {
            connection.answering = how(connection.answering);
            connection.since = Instant::now();
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.change(|answering| answering.saturating_sub(1));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken.lock().all.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_idle_makes_place_and_nobody_who_is_answered() {
        let places = Places::new(2);
        let first = places.take().expect("a place");
        let second = places.take().expect("a place");
        let busy = first.answer();
        let third = places.take().expect("the second one's place");
        assert!(!places.taken.lock().all.contains_key(&second.id));
        assert!(places.taken.lock().all.contains_key(&first.id));
        let also_busy = third.answer();
        assert!(places.take().is_none(), "all are answered");
        drop(busy);
        assert!(places.take().is_some());
        drop((first, second, third, also_busy));
        assert!(places.taken.lock().all.is_empty(), "all places are free again");
    }
}
