//! What a node was told of the others, and where that is now: names are looked up for as long as it lives.
//!
//! A name stands for one node. Where it is found at several addresses the first counts, so that all nodes of a cluster that
//! is being founded count as many nodes as there are. A name that is not found any more is where it was.

use crate::life::Life;
use crate::route::{Route, is_own};
use nuthatch_log::Reporter;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Weak};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Between two times that a name is looked up.
const AGAIN: Duration = Duration::from_secs(5);

/// The same while it was never found: its node may just be starting.
const SOON: Duration = Duration::from_millis(500);

/// What a node was told of the others.
pub struct Routes {
    /// Where this node listens.
    listen: SocketAddr,
    told: Vec<Route>,
    found: Mutex<Found>,
    changed: Condvar,
}

#[derive(Default)]
struct Found {
    names: BTreeMap<Route, SocketAddr>,
    /// The other nodes, each once.
    others: Vec<SocketAddr>,
}

impl Routes {
    /// Those of a node that listens there. No name is known yet.
    #[must_use]
    pub fn of(listen: SocketAddr, mut told: Vec<Route>) -> Self {
        told.sort_unstable();
        told.dedup();
        let routes = Self { listen, told, found: Mutex::default(), changed: Condvar::new() };
        let others = routes.others_of(&BTreeMap::new());
        routes.found.lock().others = others;
        routes
    }

    /// Has names looked up until the node ends.
    ///
    /// # Errors
    /// The operating system has no thread to give.
    pub(crate) fn look_up(self: &Arc<Self>, life: &Life, report: &Reporter) -> io::Result<()> {
        for name in self.told.iter().filter(|route| matches!(route, Route::Name { .. })) {
            let (routes, name) = (Arc::downgrade(self), name.clone());
            let (life, report) = (life.clone(), report.clone());
            // None of the node's threads: a name server may take longer to answer than the node may take to end.
            Builder::new()
                .name("node-name".to_owned())
                .spawn(move || follow(&routes, &name, &life, &report))?;
        }
        Ok(())
    }

    /// Addresses of the other nodes, as far as they are known.
    #[must_use]
    pub fn others(&self) -> Vec<SocketAddr> {
        self.found.lock().others.clone()
    }

    /// How many nodes these and this one are; none while a name was not found.
    #[must_use]
    pub fn size(&self) -> Option<usize> {
        self.sight().1
    }

    /// [`Routes::others`] and [`Routes::size`] of the same moment.
    #[must_use]
    pub fn sight(&self) -> (Vec<SocketAddr>, Option<usize>) {
        let found = self.found.lock();
        let is_known = self.unknown(&found).next().is_none();
        (found.others.clone(), is_known.then_some(found.others.len() + 1))
    }

    /// That names were not found yet, for people.
    pub(crate) fn told_not_found(&self) -> String {
        let found = self.found.lock();
        let names: Vec<String> = self.unknown(&found).map(Route::to_string).collect();
        format!(
            "no cluster is founded while names of its nodes are not found: {}",
            names.join(", ")
        )
    }

    /// That so many nodes found no cluster, for people, and where names are found.
    pub(crate) fn told_wrong(&self) -> String {
        let found = self.found.lock();
        let at = |(name, address): (&Route, &SocketAddr)| format!("{name} is {address}");
        let names: Vec<String> = found.names.iter().map(at).collect();
        format!(
            "this node, which listens on {}, and its routes are {} nodes, and no cluster is founded by so many: 3 or 5 do, each \
             at an address of its own. Names: {}",
            self.listen,
            found.others.len() + 1,
            names.join(", ")
        )
    }

    /// True if there are names among them.
    pub(crate) fn has_names(&self) -> bool {
        self.told.iter().any(|route| matches!(route, Route::Name { .. }))
    }

    /// Waits for so long until all names were found.
    pub(crate) fn wait(&self, limit: Duration) {
        let (deadline, mut found) = (Instant::now() + limit, self.found.lock());
        while self.unknown(&found).next().is_some()
            && !self.changed.wait_until(&mut found, deadline).timed_out()
        {}
    }

    fn known(&self, name: &Route) -> Option<SocketAddr> {
        self.found.lock().names.get(name).copied()
    }

    fn unknown<'a>(&'a self, found: &'a Found) -> impl Iterator<Item = &'a Route> {
        let is_name = |route: &&Route| matches!(route, Route::Name { .. });
        self.told.iter().filter(is_name).filter(|route| !found.names.contains_key(*route))
    }

    /// Notes where a name is; true if it was elsewhere, or nowhere.
    fn note(&self, name: &Route, address: SocketAddr) -> bool {
        let mut found = self.found.lock();
        if found.names.insert(name.clone(), address) == Some(address) {
            return false;
        }
        let others = self.others_of(&found.names);
        found.others = others;
        self.changed.notify_all();
        true
    }

    fn others_of(&self, names: &BTreeMap<Route, SocketAddr>) -> Vec<SocketAddr> {
        let address = |route: &Route| match route {
            Route::Address(address) => Some(*address),
            Route::Name { .. } => names.get(route).copied(),
        };
        let mut others: Vec<SocketAddr> = self.told.iter().filter_map(address).collect();
        others.sort_unstable();
        others.dedup();
        others.retain(|address| !is_own(self.listen, *address));
        others
    }
}

/// Looks a name up again and again, while somebody wants to know.
fn follow(routes: &Weak<Routes>, name: &Route, life: &Life, report: &Reporter) {
    let mut told = None;
    loop {
        // The node may have ended meanwhile: it is not kept.
        let asked = routes.upgrade().map(|routes| (routes.listen.is_ipv4(), routes.known(name)));
        let Some((prefers_v4, known)) = asked else { return };
        let found = find(name, prefers_v4, known);
        let Some(routes) = routes.upgrade() else { return };
        let (again, text) = match found {
            Ok(address) => {
                let is_new = routes.note(name, address) || told.is_some();
                told = None;
                (AGAIN, is_new.then(|| format!("{name} of the routes is {address}")))
            }
            Err(error) => {
                let text = match known {
                    Some(address) => format!(
                        "{name} of the routes is not found any more ({error}); it was {address}, which counts"
                    ),
                    None => format!("{name} of the routes is not found: {error}"),
                };
                let again = if known.is_some() { AGAIN } else { SOON };
                let is_new = told.as_ref() != Some(&text);
                told = Some(text.clone());
                (again, is_new.then_some(text))
            }
        };
        drop(routes);
        if let Some(text) = text.filter(|_| !life.is_ending()) {
            report.say(&text);
        }
        if life.pause(again) {
            return;
        }
    }
}

/// Where a name is: where it was, if that is still one of its addresses; else at the first one, of the kind that this node
/// listens on if there is one.
fn find(name: &Route, prefers_v4: bool, known: Option<SocketAddr>) -> io::Result<SocketAddr> {
    let (host, port) = match name {
        Route::Address(address) => return Ok(*address),
        Route::Name { host, port } => (host.as_str(), *port),
    };
    let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    let found = chosen(&addresses, prefers_v4, known);
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "it has no address"))
}

fn chosen(
    addresses: &[SocketAddr],
    prefers_v4: bool,
    known: Option<SocketAddr>,
) -> Option<SocketAddr> {
    let stays = known.filter(|known| addresses.contains(known));
    let preferred = addresses.iter().find(|address| address.is_ipv4() || !prefers_v4);
    stays.or(preferred.or(addresses.first()).copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn routes(listen: &str, told: &[&str]) -> Routes {
        let told = told.iter().map(|route| route.parse().expect("a route")).collect();
        Routes::of(at(listen), told)
    }

    #[test]
    fn its_own_address_and_doubles_do_not_count() {
        let all = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:2"];
        let expected = vec![at("127.0.0.1:2"), at("127.0.0.1:3")];
        for listen in ["127.0.0.1:1", "0.0.0.0:1"] {
            assert_eq!(routes(listen, &all).sight(), (expected.clone(), Some(3)), "{listen}");
        }
    }

    #[test]
    fn while_a_name_is_not_found_nobody_knows_how_many_nodes_there_are() {
        let routes = routes("0.0.0.0:1", &["n1:1", "n2:1", "10.255.0.3:1"]);
        let (one, two): (Route, Route) =
            ("n1:1".parse().expect("one"), "n2:1".parse().expect("two"));
        assert_eq!(routes.sight(), (vec![at("10.255.0.3:1")], None));
        assert!(routes.told_not_found().ends_with("not found: n1:1, n2:1"));
        assert!(routes.note(&two, at("10.255.0.2:1")));
        assert_eq!(routes.sight(), (vec![at("10.255.0.2:1"), at("10.255.0.3:1")], None));
        // It is this node's own.
        assert!(routes.note(&one, at("127.0.0.1:1")));
        routes.wait(Duration::from_secs(600));
        assert_eq!(routes.size(), Some(3));
        assert!(!routes.note(&two, at("10.255.0.2:1")));
        assert!(routes.note(&two, at("10.255.0.4:1")), "it has moved");
        assert_eq!(routes.others(), [at("10.255.0.3:1"), at("10.255.0.4:1")]);
    }

    #[test]
    fn a_name_stays_where_it_was_while_it_is_there_too() {
        let [four, five, six] = ["10.0.0.4:1", "10.0.0.5:1", "[::6]:1"].map(at);
        let all = [six, four, five];
        assert_eq!(chosen(&all, true, None), Some(four));
        assert_eq!(chosen(&all, false, None), Some(six));
        assert_eq!(chosen(&all, true, Some(five)), Some(five));
        assert_eq!(chosen(&all[..2], true, Some(five)), Some(four), "it is there no more");
        assert_eq!(chosen(&all[..1], true, None), Some(six));
        assert_eq!(chosen(&[], true, None), None);
    }

    #[test]
    fn names_are_looked_up() {
        let life = Life::default();
        let (told, said) = std::sync::mpsc::channel();
        // Whoever looks a name up may be the last one here.
        let report = Reporter::new(move |text| drop(told.send(text.to_owned())));
        let name = |host: &str| Route::Name { host: host.to_owned(), port: 7 };
        let told = vec![name("localhost"), name("nobody.invalid")];
        let routes = Arc::new(Routes::of(at("127.0.0.2:1"), told));
        routes.look_up(&life, &report).expect("threads");
        let mut texts = [(); 2].map(|()| said.recv_timeout(Duration::from_secs(60)).expect("said"));
        texts.sort();
        assert_eq!(texts[0], "localhost:7 of the routes is 127.0.0.1:7");
        assert!(texts[1].starts_with("nobody.invalid:7 of the routes is not found: "), "{texts:?}");
        assert_eq!(routes.sight(), (vec![at("127.0.0.1:7")], None));
        life.end().expect("none of them is the node's");
    }
}
