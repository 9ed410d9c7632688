//! A connection as engines know it: what an event came from, and where its answers go.

use crate::msg_trace::StreamPart;
use crate::outlet::Outlet;
use crate::subscription::Subscription;
use parking_lot::Mutex;
use std::sync::Arc;

/// A connection as engines know it.
#[derive(Debug)]
pub struct EnginePeer {
    /// Where its answers go out.
    pub outlet: Arc<Outlet>,
    /// Quick routes of replies to its own inboxes.
    pub mux: MuxRoutes,
    /// A message that is traced; what its stream answers is told.
    traced: Option<TracedAnswer>,
}

/// How the answer to a message that is traced is used.
#[derive(Debug)]
struct TracedAnswer {
    part: StreamPart,
    routes_answer: bool,
}

/// The hint of a message that is traced: no quick route.
pub const TRACED_HINT: u32 = u32::MAX;

/// The connection that an event came from: what engines hand back to the sink with their answers.
pub type Peer = Arc<EnginePeer>;

impl EnginePeer {
    /// Without quick routes.
    #[must_use]
    pub fn new(outlet: Arc<Outlet>) -> Peer {
        Arc::new(Self { outlet, mux: MuxRoutes::default(), traced: None })
    }

    /// For one message that is traced; `routes_answer`: its publisher gets the answer too.
    #[must_use]
    pub fn of_traced(outlet: Arc<Outlet>, part: StreamPart, routes_answer: bool) -> Peer {
        let traced = Some(TracedAnswer { part, routes_answer });
        Arc::new(Self { outlet, mux: MuxRoutes::default(), traced })
    }

    /// A stream has answered a message with the hint [`TRACED_HINT`]; says whether its publisher is to
    /// get that.
    #[cold]
    pub(crate) fn answered(&self, body: &[u8]) -> bool {
        let Some(traced) = &self.traced else { return true };
        traced.part.answered(body);
        traced.routes_answer
    }
}

/// Reply prefixes a connection remembers for the quick path.
pub const MUX_ROUTES_MAX: usize = 8;

/// Target of replies of the form `prefix + one token`, without a look at the account's interest.
#[derive(Clone, Debug)]
pub struct MuxRoute {
    /// Version of the account's interest under which this holds.
    pub version: u64,
    /// The inbox with its final dot.
    pub prefix: Box<[u8]>,
    /// The one subscription that covers it.
    pub sub: Arc<Subscription>,
}

/// The mux routes of a connection.
#[derive(Default, Debug)]
pub struct MuxRoutes(Mutex<Known>);

#[derive(Default, Debug)]
struct Known {
    routes: Vec<MuxRoute>,
    /// The one that is replaced next.
    next: usize,
    closed: bool,
}

impl MuxRoutes {
    /// Remembers a route; returns its hint for [`MuxRoutes::route`]; 0, which is no hint, once the
    /// connection is closed.
    pub fn add(&self, route: MuxRoute) -> u32 {
        let mut known = self.0.lock();
        if known.closed {
            // A route holds its connection, which holds this: the cycle would never be freed.
            return 0;
        }
        if let Some(at) = known.routes.iter().position(|one| one.prefix == route.prefix) {
            known.routes[at] = route;
            return at as u32 + 1;
        }
        if known.routes.len() < MUX_ROUTES_MAX {
            known.routes.push(route);
            return known.routes.len() as u32;
        }
        let at = known.next % MUX_ROUTES_MAX;
        known.next = at + 1;
        known.routes[at] = route;
        at as u32 + 1
    }

    /// The route of a hint, if it holds under this version of the account's interest.
    pub fn route(&self, hint: u32, version: u64) -> Option<MuxRoute> {
        let at = (hint as usize).checked_sub(1)?;
        self.0.lock().routes.get(at).filter(|route| route.version == version).cloned()
    }

    /// Forgets all and takes no more.
    pub fn close(&self) {
        let mut known = self.0.lock();
        known.closed = true;
        known.routes.clear();
    }
}
