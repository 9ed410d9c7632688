//! A client's subscription.

use crate::egress::{Addressee, DeliveryContext, EgressBatch, Outgoing};
use crate::identity::SubjectFilter;
use crate::log_id::LogSlot;
use crate::outlet::Outlet;
use nuthatch_protocol::transform::Transform;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// A client's subscription. It is in its connection's table and in its account's trie; both drop it
/// when it ends, while caches may keep it a little longer.
pub struct Subscription {
    /// Where its deliveries go out.
    pub outlet: Arc<Outlet>,
    /// The pattern.
    pub subject: Box<[u8]>,
    /// The queue group, if any.
    pub queue: Option<Box<[u8]>>,
    /// The client's name for it.
    pub sid: Box<[u8]>,
    /// True if the client understands `HMSG`.
    pub headers: bool,
    /// True if the client may see what it publishes itself.
    pub echo: bool,
    /// Subjects that the pattern covers but the client may not see.
    pub denied: Option<Arc<SubjectFilter>>,
    /// True if reply subjects of deliveries become publishable (`allow_responses`).
    pub tracks_replies: bool,
    /// Effect of a matching message.
    pub role: Role,
    /// Its import subscriptions in accounts whose streams its own account imports.
    import_subs: Mutex<Vec<Arc<dyn ImportSubscription>>>,
    delivered: AtomicU64,
    max: AtomicU64,
    closed: AtomicBool,
}

/// Effect of a message that matches a subscription.
pub enum Role {
    /// The client gets it.
    Client,
    /// The subscription of a client in an importing account gets it.
    ImportSubscription {
        /// The client's own subscription.
        of: Arc<Subscription>,
        /// From a subject of the exporting account to the one here; `None`: they are the same.
        inward: Option<Arc<Transform>>,
        /// Traces follow messages into the importing account.
        allow_trace: bool,
    },
    /// The server itself takes it: an imported service, a response to one, a system request.
    Server(Arc<dyn Receiver>),
    /// Another server gets it, whose clients listen there.
    Leaf {
        /// Members of the queue group there; 1 without a group.
        weight: AtomicU32,
    },
}

/// Handler of messages on a subject of the server's own.
pub trait Receiver: Send + Sync {
    /// Takes a message; `false` if it went nowhere.
    fn receive(
        &self,
        sub: &Subscription,
        message: &Outgoing<'_>,
        way: &mut DeliveryContext<'_>,
    ) -> bool;

    /// True if a message that is routed by this subject would go anywhere.
    fn hears(&self, _routed: &[u8]) -> bool {
        true
    }

    /// True if there is room where such messages go; if not, the engine is told when there is.
    fn ready(&self, _routed: &[u8], _slot: LogSlot) -> bool {
        true
    }
}

/// What stands for a subscription in an account whose stream its own account imports.
pub trait ImportSubscription: Send + Sync {
    /// Takes it out of that account; says whether an engine may have delivered to it.
    fn end(&self) -> bool;
}

/// Whether a delivery may be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Deliver.
    Deliver,
    /// Deliver; it was the last one, the subscription is over.
    DeliverLast,
    /// The subscription is over.
    Over,
}

impl Subscription {
    /// A new subscription.
    #[must_use]
    pub fn new(outlet: Arc<Outlet>, subject: &[u8], queue: Option<&[u8]>, sid: &[u8]) -> Self {
        Self {
            outlet,
            subject: subject.into(),
            queue: queue.map(Into::into),
            sid: sid.into(),
            headers: true,
            echo: true,
            denied: None,
            tracks_replies: false,
            role: Role::Client,
            import_subs: Mutex::default(),
            delivered: AtomicU64::new(0),
            max: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// One that goes on in its place, with as many deliveries behind it.
    #[must_use]
    pub fn continued(&self, denied: Option<Arc<SubjectFilter>>, tracks_replies: bool) -> Self {
        let new = Self::new(self.outlet.clone(), &self.subject, self.queue.as_deref(), &self.sid);
        Self {
            headers: self.headers,
            echo: self.echo,
            denied,
            tracks_replies,
            delivered: AtomicU64::new(self.delivered()),
            max: AtomicU64::new(self.max()),
            ..new
        }
    }

    /// The import subscription for a client's subscription in an account whose stream is imported.
    #[must_use]
    pub fn import_sub(
        of: &Arc<Self>,
        inward: Option<Arc<Transform>>,
        allow_trace: bool,
        subject: &[u8],
    ) -> Self {
        let mut import_sub = Self::new(of.outlet.clone(), subject, of.queue.as_deref(), &of.sid);
        import_sub.echo = of.echo;
        import_sub.role = Role::ImportSubscription { of: of.clone(), inward, allow_trace };
        import_sub
    }

    /// A subscription of the server itself.
    #[must_use]
    pub fn of_server(outlet: Arc<Outlet>, subject: &[u8], receiver: Arc<dyn Receiver>) -> Self {
        let mut sub = Self::new(outlet, subject, None, b"");
        sub.role = Role::Server(receiver);
        sub
    }

    /// The same as a member of a queue group.
    #[must_use]
    pub fn in_group(mut self, queue: &[u8]) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// A subscription at another server, under the key of its `LS+`.
    #[must_use]
    pub fn of_leaf(
        outlet: Arc<Outlet>,
        subject: &[u8],
        queue: Option<(&[u8], u32)>,
        key: &[u8],
    ) -> Self {
        let mut sub = Self::new(outlet, subject, queue.map(|(name, _)| name), key);
        let weight = queue.map_or(1, |(_, weight)| weight);
        sub.echo = false;
        sub.role = Role::Leaf { weight: AtomicU32::new(weight) };
        sub
    }

    /// Listeners that it stands for.
    #[must_use]
    pub fn weight(&self) -> i64 {
        match &self.role {
            Role::Leaf { weight } => i64::from(weight.load(Ordering::Relaxed)),
            _ => 1,
        }
    }

    /// Changes the number of listeners that it stands for; returns by how much.
    pub fn set_weight(&self, new: u32) -> i64 {
        match &self.role {
            Role::Leaf { weight } => {
                i64::from(new) - i64::from(weight.swap(new, Ordering::Relaxed))
            }
            _ => 0,
        }
    }

    /// Replaces what stands for it in other accounts; returns what stood there before. A
    /// subscription that is over takes nothing: then the new ones come back.
    pub fn set_import_subs(
        &self,
        import_subs: Vec<Arc<dyn ImportSubscription>>,
    ) -> Vec<Arc<dyn ImportSubscription>> {
        let mut place = self.import_subs.lock();
        if self.is_closed() && !import_subs.is_empty() {
            return import_subs;
        }
        std::mem::replace(&mut *place, import_subs)
    }

    /// Delivers a message to its client, unless it is over or the client may not see the message. Returns
    /// whether it was taken.
    #[inline]
    pub fn deliver(&self, message: &Outgoing<'_>, egress: &mut EgressBatch) -> bool {
        let denied = self.denied.as_ref();
        if denied.is_some_and(|denied| denied.covers(message.subject, self.queue.as_deref())) {
            return false;
        }
        match self.admit() {
            Admission::Deliver => {}
            Admission::DeliverLast => self.ended(),
            Admission::Over => return false,
        }
        if self.tracks_replies && !message.reply.is_empty() {
            self.track_reply(message.reply);
        }
        let (outlet, sid, headers) = (&self.outlet, &*self.sid, self.headers);
        egress.append(&Addressee { outlet, sid, headers }, message);
        true
    }

    #[cold]
    fn ended(&self) {
        if let Some(client) = self.outlet.client() {
            client.end_subscription(&self.sid);
        }
    }

    #[cold]
    fn track_reply(&self, reply: &[u8]) {
        if let Some(client) = self.outlet.client() {
            client.track_reply(reply);
        }
    }

    /// True if it has had as many deliveries as it was to have.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        let max = self.max();
        max > 0 && self.delivered() >= max
    }

    /// Counts a delivery and says whether it may be made.
    #[inline]
    pub fn admit(&self) -> Admission {
        let delivered = self.delivered.fetch_add(1, Ordering::Relaxed) + 1;
        let max = self.max.load(Ordering::Relaxed);
        if max == 0 {
            return if self.is_closed() { Admission::Over } else { Admission::Deliver };
        }
        match delivered.cmp(&max) {
            std::cmp::Ordering::Less => Admission::Deliver,
            std::cmp::Ordering::Equal => Admission::DeliverLast,
            std::cmp::Ordering::Greater => Admission::Over,
        }
    }

    /// Sets the number of deliveries, counted from the beginning, after which it ends.
    /// `false`: that many have been made already.
    pub fn set_max(&self, max: u64) -> bool {
        self.max.store(max, Ordering::Relaxed);
        self.delivered.load(Ordering::Relaxed) < max
    }

    /// Deliveries so far.
    pub fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    /// The limit of deliveries; 0: none.
    pub fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// True if it is over.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Ends it: whoever still has it in a cache delivers nothing more.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription")
            .field("conn", &self.outlet.id)
            .field("subject", &String::from_utf8_lossy(&self.subject))
            .field("sid", &String::from_utf8_lossy(&self.sid))
            .finish_non_exhaustive()
    }
}
