//! A node of a cluster, put together: its directory, cores, port, links and catalog.

use crate::any_catalog::AnyCatalog;
use crate::catalog::{BucketCatalog, CatalogError, Founder, Founding, found};
use crate::clock::now;
use crate::config::ClusterConfig;
use crate::directory::{QuorumDirectory, apply};
use crate::files::{self, Files};
use crate::group::{self, BUILT_IN, Door};
use crate::group_port::GroupPort;
use crate::heal::{self, DOUBTS_MAX};
use crate::hello::{Hello, Lane};
use crate::host::{ColdPacket, Helpers, Host, Status};
use crate::keeper_dir::KeeperDir;
use crate::key::ClusterKey;
use crate::line_limit::LineLimit;
use crate::links::{Links, Local};
use crate::port;
use crate::replica::Replica;
use crate::small_files;
use crate::start_error::StartError;
use crate::threads::spawn;
use crate::transfer::FileSource;
use crate::trim_holds::TrimHolds;
use nuthatch_log::Reporter;
use nuthatch_log::env::{Disk, Entropy as _, Ownership, RealDisk, SystemEntropy, Tenure};
use nuthatch_object::{Bucket, BucketOptions, open_url};
use nuthatch_quorum::catalog::Call;
use nuthatch_quorum::effect::Effect;
use nuthatch_quorum::node::{Config, Event, Node, Reads};
use nuthatch_quorum::store::{Image, Record};
use nuthatch_quorum::timing::TICK;
use nuthatch_quorum::types::{BootCount, Epoch, Incarnation, Lsn, NodeId, WallTime};
use parking_lot::Mutex;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// How long one request to the catalog is repeated.
const CATALOG_RETRY: Duration = Duration::from_secs(2);

/// Between two looks whether all nodes have named their disks.
const FOUNDING_POLL: Duration = Duration::from_millis(200);

/// Between two parts of a scrub, each of at most 32 entries, in microseconds.
const SCRUB_EVERY: u64 = 1_000_000;

/// Bytes that a scrub reads in a second.
const SCRUB_BYTES_PER_S: u64 = 16 << 20;

/// Messages whose payloads wait to be read, each of at most 16 MiB.
const READS_MAX: usize = 4;

/// How long a handover is waited for at a clean stop.
const HANDOVER: Duration = Duration::from_millis(1_500);

/// How long it may take then until other nodes' sockets have what they are told.
const FLUSH: Duration = Duration::from_millis(200);

/// Takes connections of other nodes for messages of clients.
pub type OnLink = Box<dyn Fn(TcpStream) + Send + Sync>;

/// Hears why a node cannot go on: it must be started again.
pub type OnLost = Box<dyn Fn(&str) + Send + Sync>;

/// A node that runs.
pub struct Cluster {
    host: Arc<Host>,
    replica: Arc<Mutex<Replica>>,
    disk: Arc<dyn Disk>,
    label: String,
    id: u128,
    /// Node ports of the other nodes.
    others: Vec<SocketAddr>,
    identity: Arc<Myself>,
    /// The epoch that was last waited for, 0 before the first.
    waited: AtomicU32,
    /// How long it took to apply the log then, in microseconds.
    apply_micros: AtomicU64,
    /// Nobody else works on the directory while this lives.
    _lock: Box<dyn Tenure>,
}

impl Cluster {
    /// Starts a node: returns when its keeper runs. Waits for the other nodes when the cluster is founded.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(config: &ClusterConfig, report: Reporter) -> Result<Arc<Self>, StartError> {
        let dir = config.dir.display().to_string();
        let at_dir = |source| StartError::Directory { dir: dir.clone(), source };
        let real = RealDisk::open(&config.dir).map_err(at_dir)?;
        let lock = real.take().map_err(at_dir)?;
        let lock = lock.ok_or_else(|| StartError::Locked { dir: dir.clone() })?;
        Self::start_on(config, Arc::new(real), lock, report)
    }

    /// As [`Cluster::start`] on a directory of any kind, which is this process's own by `lock`.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start_on(
        config: &ClusterConfig,
        disk: Arc<dyn Disk>,
        lock: Box<dyn Tenure>,
        report: Reporter,
    ) -> Result<Arc<Self>, StartError> {
        #[cfg(feature = "mutations")]
        crate::rules_off::for_this_thread();
        config.check()?;
        let listener = TcpListener::bind(config.listen)
            .map_err(|source| StartError::Listen { address: config.listen, source })?;
        let dir = disk.label();
        let at_dir = |source| StartError::Directory { dir: dir.clone(), source };
        let (keeper, image) = identified(&disk).map_err(at_dir)?;
        tell_lost(&image, &dir, &report);
        let Began { founding, catalog, door } = begin(config, &listener, (&disk, &image), &report)?;
        let me = number(config, &founding)?;
        let links = Links::new(&config.others());
        let (calls, asked) = channel();
        let (syncs, to_sync) = channel();
        let (scrubs, to_scrub) = sync_channel(1);
        let (installs, to_install) = sync_channel(0);
        let outbound = Arc::clone(&links) as Arc<dyn crate::host::Outbound>;
        let (reads, to_read) = sync_channel(READS_MAX);
        let (doubts, doubted) = sync_channel(DOUBTS_MAX);
        let helpers =
            Helpers { outbound, catalog: calls, syncs, installs, scrubs, doubts, reads, report };
        let peers = founding.nodes.iter().map(|node| node.id).filter(|id| *id != me).collect();
        let fresh = [Incarnation(random()), Incarnation(random())];
        let image = named(&*disk, image, me).map_err(at_dir)?;
        let setup = setup(me, peers, fresh);
        let (node, effects) = Node::boot(setup, &image, now());
        let host = Host::new(node, effects, keeper, helpers);
        let replica = Arc::new(Mutex::new(Replica::open(Arc::clone(&disk)).map_err(at_dir)?));
        let identity = Myself {
            host: Arc::clone(&host),
            id: me,
            cluster: founding.cluster,
            key: config.key.clone(),
            door: door.clone(),
            lines: LineLimit::default(),
            links: OnceLock::new(),
        };
        let identity = Arc::new(identity);
        let local: Arc<dyn Local> = Arc::clone(&identity) as Arc<dyn Local>;
        start_catalog(Arc::clone(&host), catalog, asked, Arc::clone(&disk))?;
        let syncing = Arc::clone(&host);
        spawn("node-sync", move || to_sync.iter().for_each(|sync| syncing.make_sync(sync)))?;
        start_scrubbing(Arc::clone(&host), to_scrub)?;
        start_reading(Arc::clone(&host), to_read)?;
        let holds = Arc::new(TrimHolds::default());
        let marking = Mutex::default();
        let files =
            Files { host: Arc::clone(&host), replica: Arc::clone(&replica), holds, marking };
        let files = Arc::new(files);
        let source = Arc::clone(&files) as Arc<dyn FileSource>;
        port::serve(listener, Arc::clone(&host), Arc::clone(&local), source)?;
        links.start(&local)?;
        door.map_or(Ok(()), |door| door.connect(&local))?;
        heal::start_healing(Arc::clone(&files), doubted, Arc::clone(&links), Arc::clone(&local))?;
        files::start_installing(Arc::clone(&files), to_install, links, Arc::clone(&local))?;
        start_ticking(Arc::clone(&host))?;
        files::start_applying(files)?;
        Ok(Arc::new(Self {
            host,
            replica,
            disk,
            label: dir,
            id: founding.cluster,
            others: config.others(),
            identity,
            waited: AtomicU32::new(0),
            apply_micros: AtomicU64::new(0),
            _lock: lock,
        }))
    }

    /// Node ports of the other nodes.
    #[must_use]
    pub fn others(&self) -> &[SocketAddr] {
        &self.others
    }

    /// What the nodes know each other by, if they have a key.
    #[must_use]
    pub fn key(&self) -> Option<&ClusterKey> {
        self.identity.key.as_ref()
    }

    /// Says who takes connections of other nodes for messages of clients; until then, and after the first call, none
    /// other does. They show by [`LINK_BEGINS`](crate::link_hello::LINK_BEGINS) what they are, of which nothing
    /// was read.
    pub fn take_links(&self, taker: OnLink) {
        let _ = self.identity.links.set(taker);
    }

    /// Tells people of a connection of another node, unless too much was told of them lately.
    pub fn report_link(&self, text: &str) {
        self.identity.report(text);
    }

    /// The cluster, as its founding named it.
    #[must_use]
    pub fn id(&self) -> u128 {
        self.id
    }

    /// Waits until this node owns the log.
    ///
    /// # Errors
    /// Its disk has failed.
    pub fn wait_owned(&self) -> io::Result<Epoch> {
        loop {
            let owns = |status: &Status| status.owner.is_some() || status.broken;
            let status = self.host.wait_until(Duration::from_secs(3600), owns);
            if status.broken {
                return Err(io::Error::other("the keeper's disk has failed"));
            }
            if let Some(epoch) = status.owner {
                self.waited.store(epoch.0, Ordering::Release);
                return Ok(epoch);
            }
        }
    }

    /// True if a majority of the nodes agrees with this one's wall clock (2 s).
    #[must_use]
    pub fn clock_is_agreed(&self) -> bool {
        self.host.status().clock_agreed
    }

    /// Waits until that is so, or for so long.
    pub fn wait_for_clock(&self, limit: Duration) {
        self.host.wait_until(limit, |status| status.clock_agreed || status.broken);
    }

    /// The stamp of the log's last entry here.
    #[must_use]
    pub fn last_stamp(&self) -> WallTime {
        self.host.last_stamp()
    }

    /// Waits until this node owns the log and has applied all of it; gives the directory to open it in.
    ///
    /// # Errors
    /// The disk's, and the loss of the ownership meanwhile.
    pub fn wait_until_owner(&self) -> io::Result<QuorumDirectory> {
        let epoch = self.wait_owned()?;
        let (commit, began) = (self.host.status().commit, now());
        apply(&self.host, &mut self.replica.lock(), commit)?;
        self.apply_micros.store(now().since(began), Ordering::Release);
        let (host, replica) = (Arc::clone(&self.host), Arc::clone(&self.replica));
        let label = format!("the quorum log in {}, epoch {}", self.label, epoch.0);
        QuorumDirectory::new(host, epoch, replica, Arc::clone(&self.disk), label)
    }

    /// Calls `lost` once, when this node does not own `epoch` any more, or its disk fails.
    ///
    /// # Errors
    /// The operating system has no thread to give.
    pub fn watch(&self, epoch: Epoch, lost: OnLost) -> io::Result<()> {
        let host = Arc::clone(&self.host);
        spawn("node-watch", move || {
            let over = |status: &Status| status.broken || status.owner != Some(epoch);
            let mut status = host.status();
            while !over(&status) {
                status = host.wait_until(Duration::from_secs(3600), over);
            }
            let epoch = epoch.0;
            let why = match status.broken {
                true => "the keeper's disk has failed".to_owned(),
                false => format!("this node owns the quorum log no more (its epoch was {epoch})"),
            };
            lost(&why);
        })
    }

    /// Tells another keeper that it is to own the log soon, so that it makes ready: it claims the next epoch while this
    /// node serves. For a clean stop, before the log is closed.
    pub fn prepare_handover(&self) {
        if self.host.status().owner.is_some() {
            self.host.handle(Event::Prepare);
        }
    }

    /// Hands the log over to another keeper that has everything, and waits until that was told or nobody could take
    /// it. For a clean stop, after the log was closed.
    pub fn hand_over(&self) {
        if self.host.status().owner.is_some() {
            let (began, pause) = (Instant::now(), Duration::from_micros(TICK));
            // At this moment there may be nobody who could.
            while self.host.status().owner.is_some() && began.elapsed() < HANDOVER {
                self.host.handle(Event::HandOver);
                self.host.wait_until(pause, |status| status.owner.is_none());
            }
            // The process is about to end, and what it has not sent by then nobody hears.
            self.host.flush(FLUSH);
        }
    }

    /// Tells people how long the parts of this node's takeover took, when it takes clients.
    pub fn tell_takeover(&self) {
        if let Some(shares) = self.host.take_shares() {
            self.host.report(&shares.line(self.apply_micros.load(Ordering::Acquire), now()));
        }
    }

    /// True if the epoch that was last waited for has ended, or the disk has failed.
    #[must_use]
    pub fn has_lost(&self) -> bool {
        let (status, waited) = (self.host.settled_status(), self.waited.load(Ordering::Acquire));
        status.broken || status.owner != Some(Epoch(waited))
    }

    /// True if this node owned an epoch and does not any more, though its disk is well.
    #[must_use]
    pub fn was_replaced(&self) -> bool {
        let waited = self.waited.load(Ordering::Acquire);
        let status = self.host.settled_status();
        waited != 0 && !status.broken && status.owner != Some(Epoch(waited))
    }

    /// The epoch that this node owns now.
    #[must_use]
    pub fn owned(&self) -> Option<Epoch> {
        self.host.status().owner
    }
}

fn random() -> u128 {
    let mut entropy = SystemEntropy::default();
    u128::from(entropy.next()) << 64 | u128::from(entropy.next())
}

/// Opens a keeper's directory; one that has no identity gets one, under which the node can be named in the
/// catalog before it takes part.
fn identified(disk: &Arc<dyn Disk>) -> io::Result<(KeeperDir, Image)> {
    let (mut dir, image) = KeeperDir::open(Arc::clone(disk))?;
    let known = matches!(image.identity, Record::Good(_));
    let promised = image.promises.iter().any(|slot| matches!(slot, Record::Good(_)));
    if known && promised {
        return Ok((dir, image));
    }
    let fresh = [Incarnation(random()), Incarnation(random())];
    let config = setup(NodeId(1), vec![], fresh);
    let (_, effects) = Node::boot(config, &image, now());
    for effect in effects {
        if let Effect::Store(ops) = effect {
            dir.store(&ops, |_| unreachable!("a directory that begins anew has no entries"))?;
        }
    }
    KeeperDir::open(Arc::clone(disk))
}

/// What a node is told at its start.
fn setup(id: NodeId, peers: Vec<NodeId>, fresh: [Incarnation; 2]) -> Config {
    let former = Incarnation(0);
    Config { id, peers, fresh, former, reads: Reads::Lease, scrub_every: SCRUB_EVERY }
}

/// A directory that holds nothing yet becomes that of this node; the founding says only then which one it is.
fn named(disk: &dyn Disk, mut image: Image, node: NodeId) -> io::Result<Image> {
    if let Record::Good(identity) = &mut image.identity
        && image.log.is_empty()
        && identity.node != node
    {
        identity.node = node;
        small_files::store_identity(disk, *identity)?;
    }
    Ok(image)
}

/// Says that a directory counts for nothing any more.
fn tell_lost(image: &Image, dir: &str, report: &Reporter) {
    if image.base == Record::Damaged {
        report.say(&format!(
            "in {dir} is not all that trimmed entries have made: it counts for nothing, goes to torn/, and the other \
             nodes bring the log"
        ));
    }
}

/// Reads payloads that a node needs which is behind.
fn start_reading(host: Arc<Host>, cold: Receiver<ColdPacket>) -> io::Result<()> {
    spawn("node-read", move || cold.iter().for_each(|packet| host.send_read(packet)))
}

/// Reads entries again, slowly enough not to be felt.
fn start_scrubbing(host: Arc<Host>, parts: Receiver<(Lsn, Lsn)>) -> io::Result<()> {
    let pause = |bytes: u64| {
        thread::sleep(Duration::from_micros(1_000_000 * bytes / SCRUB_BYTES_PER_S));
    };
    spawn("node-scrub", move || parts.iter().for_each(|(from, upto)| host.scrub(from, upto, pause)))
}

fn open_catalog(config: &ClusterConfig, report: &Reporter) -> Result<Bucket, StartError> {
    let options = BucketOptions {
        retry_for: CATALOG_RETRY,
        report: report.clone(),
        ..BucketOptions::default()
    };
    Ok(open_url(&config.catalog, "cluster", options)?)
}

fn founded(
    config: &ClusterConfig,
    bucket: &Bucket,
    image: &Image,
    report: &Reporter,
) -> Result<Founding, StartError> {
    let Record::Good(identity) = image.identity else { unreachable!("it was just given") };
    let fresh = random();
    let mut said = false;
    loop {
        let disk = identity.incarnation;
        match found(bucket, &config.name, disk, config.size(), fresh) {
            Ok(Some(founding)) => return Ok(founding),
            Ok(None) if !said => {
                said = true;
                let count = config.size();
                report.say(&format!(
                    "the cluster is founded when all of its {count} nodes have started once"
                ));
            }
            Ok(None) => {}
            Err(error @ CatalogError::Bucket(_)) => report.say(&error.to_string()),
            Err(error) => return Err(error.into()),
        }
        thread::sleep(FOUNDING_POLL);
    }
}

/// The cluster that a node belongs to, and the way to its catalog.
struct Began {
    founding: Founding,
    catalog: AnyCatalog,
    door: Option<Arc<Door>>,
}

/// Finds the cluster, or takes part in founding it, and opens its catalog.
fn begin(
    config: &ClusterConfig,
    listener: &TcpListener,
    (disk, image): (&Arc<dyn Disk>, &Image),
    report: &Reporter,
) -> Result<Began, StartError> {
    if config.catalog != BUILT_IN {
        let bucket = open_catalog(config, report)?;
        let founding = founded(config, &bucket, image, report)?;
        let catalog = BucketCatalog::open(bucket, &founding, &**disk)?;
        return Ok(Began { founding, catalog: AnyCatalog::Bucket(Box::new(catalog)), door: None });
    }
    let Record::Good(identity) = image.identity else { unreachable!("it was just given") };
    let belongs = group::belong(config, listener, (identity.incarnation, &**disk), report)?;
    let founder = |founder: &nuthatch_catalog_group::Founder| Founder {
        id: founder.id,
        name: founder.node.name.clone(),
        incarnation: founder.node.keeper,
    };
    let nodes = belongs.0.founders.iter().map(founder).collect();
    let founding = Founding { cluster: belongs.0.cluster, nodes };
    let me = number(config, &founding)?;
    let (door, catalog) = group::start(belongs, (me, &config.others()), disk, report)?;
    Ok(Began { founding, catalog: AnyCatalog::Group(catalog), door: Some(door) })
}

/// Which node of the cluster this is.
fn number(config: &ClusterConfig, founding: &Founding) -> Result<NodeId, CatalogError> {
    let me = founding.nodes.iter().find(|node| node.name == config.name).map(|node| node.id);
    me.ok_or_else(|| {
        let names: Vec<&str> = founding.nodes.iter().map(|node| node.name.as_str()).collect();
        CatalogError::Stranger { name: config.name.clone(), nodes: names.join(", ") }
    })
}

/// Answers the cores' questions to the catalog, one after the other.
fn start_catalog(
    host: Arc<Host>,
    mut catalog: AnyCatalog,
    asked: Receiver<Call>,
    disk: Arc<dyn Disk>,
) -> io::Result<()> {
    spawn("node-catalog", move || {
        let mut told = String::new();
        while let Ok(first) = asked.recv() {
            let waiting: Vec<Call> = std::iter::once(first).chain(asked.try_iter()).collect();
            // One read answers all that wait; transactions are not left out.
            let (reads, proposals): (Vec<_>, Vec<_>) =
                waiting.into_iter().partition(|call| matches!(call, Call::Read));
            for call in proposals.into_iter().chain(reads.into_iter().take(1)) {
                match catalog.call(&call, &*disk) {
                    Ok(reply) => host.handle(Event::Catalog(reply)),
                    Err(error) if told != error.to_string() => {
                        told = error.to_string();
                        host.report(&told);
                    }
                    Err(_) => {}
                }
            }
        }
    })
}

fn start_ticking(host: Arc<Host>) -> io::Result<()> {
    spawn("node-tick", move || {
        loop {
            thread::sleep(Duration::from_micros(TICK));
            host.tick();
        }
    })
}

/// What the connections know of this node.
struct Myself {
    host: Arc<Host>,
    id: NodeId,
    cluster: u128,
    key: Option<ClusterKey>,
    door: Option<Arc<Door>>,
    /// Of what other nodes, and those that are none, can have said.
    lines: LineLimit,
    links: OnceLock<OnLink>,
}

impl Local for Myself {
    fn hello(&self, lane: Lane) -> Hello {
        let incarnation = match &self.door {
            Some(door) if lane == Lane::Group => Incarnation(door.me().0.into()),
            _ => self.host.status().incarnation,
        };
        Hello { cluster: self.cluster, node: self.id, incarnation, boots: BootCount(0), lane }
    }

    fn key(&self) -> Option<&ClusterKey> {
        self.key.as_ref()
    }

    fn report(&self, text: &str) {
        self.lines.say(Instant::now(), text, |text| self.host.report(text));
    }

    fn link(&self, stream: TcpStream) {
        // Without anybody to take it the other node comes again.
        if let Some(take) = self.links.get() {
            take(stream);
        }
    }

    fn group(&self) -> Option<&dyn GroupPort> {
        self.door.as_deref().map(|door| door as &dyn GroupPort)
    }

    fn lost(&self, node: NodeId) {
        self.host.handle(Event::Reset(node));
    }

    fn accepts(&self, hello: &Hello, from: SocketAddr) -> bool {
        if hello.lane == Lane::Founding {
            // It does not know yet which cluster it belongs to.
            return self.door.is_some();
        }
        if hello.cluster != self.cluster {
            self.report(&format!("{from} is a node of another cluster: turned away"));
            return false;
        }
        hello.node != self.id
    }
}
