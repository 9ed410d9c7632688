//! A node of a cluster, put together: its directory, logs, port and catalog.

use crate::about::About;
use crate::any_catalog::AnyCatalog;
use crate::balance::loads::Loads;
use crate::balance::{self, BalanceTimes, Moving, OnMove};
use crate::beginning::{Began, begin, tell_count};
use crate::change_nodes::ChangeNodes;
use crate::config::ClusterConfig;
use crate::directory::QuorumDirectory;
use crate::hello::Lane;
use crate::host::Host;
use crate::in_memory::MEMORY_LOG;
use crate::key::ClusterKey;
use crate::life::{Life, Unended};
use crate::line_limit::LineLimit;
use crate::links::{Links, Local};
use crate::myself::{Myself, OfAllLogs};
use crate::nodes::{
    self, Finalize, Finalizing, MovedLog, Nodes, NodesChange, NodesError, NodesSight, Replacement,
};
use crate::port;
use crate::quorum_log::QuorumLog;
use crate::roll::OnRemoved;
use crate::small_files;
use crate::start_error::StartError;
use crate::starting::{Kept, Starting};
use crate::stored_nodes::{StoredNodes, Told};
use crate::stored_steps::StoredSteps;
use crate::sub_disk::log_disk;
use nuthatch_catalog_group::{LogCount, LogNumber};
use nuthatch_log::Reporter;
use nuthatch_log::env::{Disk, Ownership, RealDisk, Tenure};
use nuthatch_quorum::timing::TICK;
use nuthatch_quorum::types::{Epoch, WallTime};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Builder};
use std::time::Duration;

mod prepared;

pub use self::prepared::Prepared;
pub use crate::myself::OnLink;
pub use crate::quorum_log::OnLost;

/// A node that runs.
///
/// What it says of one log, as whether it is owned, is of the first one: a cluster that was founded with one has no
/// other. The others are in [`Cluster::logs`].
pub struct Cluster {
    logs: Vec<Arc<QuorumLog>>,
    id: u128,
    nodes: Nodes,
    node: Arc<Myself>,
    moving: Arc<Moving>,
}

impl Cluster {
    /// Starts a node: returns when its keepers run. Waits for the other nodes when the cluster is founded.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(config: &ClusterConfig, report: Reporter) -> Result<Arc<Self>, StartError> {
        Self::prepare(config, report)?.start()
    }

    /// Takes the directory and the port of a node, and starts nothing.
    ///
    /// # Errors
    /// [`StartError`]: they cannot be had, or the node cannot be set up so.
    pub fn prepare(config: &ClusterConfig, report: Reporter) -> Result<Prepared, StartError> {
        config.check()?;
        let dir = config.dir.display().to_string();
        let at_dir = |source| StartError::Directory { dir: dir.clone(), source };
        let real = RealDisk::open(&config.dir).map_err(at_dir)?;
        let lock = real.take().map_err(at_dir)?;
        let lock = lock.ok_or_else(|| StartError::Locked { dir: dir.clone() })?;
        Self::prepare_on(config, (Arc::new(real), lock), report)
    }

    fn prepare_on(
        config: &ClusterConfig,
        (disk, lock): (Arc<dyn Disk>, Box<dyn Tenure>),
        report: Reporter,
    ) -> Result<Prepared, StartError> {
        let listener = TcpListener::bind(config.listen)
            .map_err(|source| StartError::Listen { address: config.listen, source })?;
        let (config, life) = (config.clone(), Life::with_lock(lock));
        Ok(Prepared { config, disk, listener, life, report })
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
        Self::start_balanced(config, (disk, lock), report, BalanceTimes::default())
    }

    /// As [`Cluster::start_on`], with other times of balance than a node has: tests cannot wait for minutes.
    ///
    /// # Errors
    /// [`StartError`].
    #[doc(hidden)]
    pub fn start_balanced(
        config: &ClusterConfig,
        disk: (Arc<dyn Disk>, Box<dyn Tenure>),
        report: Reporter,
        times: BalanceTimes,
    ) -> Result<Arc<Self>, StartError> {
        config.check()?;
        Self::prepare_on(config, disk, report)?.start_balanced(times)
    }

    fn begin(prepared: Prepared, times: BalanceTimes) -> Result<Arc<Self>, StartError> {
        #[cfg(feature = "mutations")]
        crate::rules_off::for_this_thread();
        let Prepared { config, disk, listener, life, report } = prepared;
        let config = &config;
        let dir = disk.label();
        let at_dir = |source| StartError::Directory { dir: dir.clone(), source };
        let kept = match config.store.is_some() {
            true => Kept::of_owners(Arc::clone(&disk), &report),
            false => Kept::open(Arc::clone(&disk), &report),
        };
        let kept = kept.map_err(at_dir)?;
        let keeper = (kept.incarnation(), kept.is_empty().map_err(at_dir)?);
        let began = begin(config, &listener, (&disk, keeper), (&life, &report))?;
        let founding = &began.founding;
        tell_count(config, founding, &began.roll, &report);
        if founding.logs.get() > 1 {
            small_files::note_several_logs(&*disk).map_err(at_dir)?;
        }
        let node = Arc::new(myself(config, &began, &life));
        let beats = Links::new(&began.roll.addresses(), Lane::Beats);
        let mut first = Some(kept);
        let (mut starting, mut ways) = (vec![], vec![]);
        for number in founding.logs.numbers() {
            let report = report_of(number, founding.logs, &report);
            let kept = match first.take() {
                Some(kept) => kept,
                None => further_keeper((number, founding.logs), config, &disk, &report)
                    .map_err(at_dir)?,
            };
            let kept = kept.bound(began.binding(number));
            let catalog = began.catalog(number, &*kept.disk, (&life, &report))?;
            if let AnyCatalog::Numbered(catalog) = &catalog {
                ways.push((Arc::clone(catalog), Arc::clone(&kept.disk)));
            }
            let report = (report, founding.logs);
            let log = Starting::new(number, kept, (&node, &began.roll, &beats), catalog, report);
            starting.push(log.map_err(at_dir)?);
        }
        let links: Vec<Arc<Links>> = starting.iter().map(|log| Arc::clone(&log.links)).collect();
        let all_links = links.into_iter().chain([Arc::clone(&beats)]).collect();
        let local = Arc::clone(&starting[LogNumber::FIRST.index()].local);
        let logs = begin_all(listener, starting, &node, beats)?;
        let following = (logs.clone(), all_links);
        let (id, roll, door) = (founding.cluster, Arc::clone(&began.roll), node.door.clone());
        let steps = began.into_roster().map(|roster| StoredSteps::new(roster, ways));
        let changes: Arc<dyn ChangeNodes> = match (&door, steps) {
            (_, Some(steps)) => {
                let told = Told::of(config, (&roll, dir), (&life, &report));
                StoredNodes::start(told, steps, logs.clone())?
            }
            (door, None) => {
                Arc::clone(door.as_ref().expect("a catalog is in one of two places")) as _
            }
        };
        let by = (Arc::clone(&changes), door);
        nodes::follow(Arc::clone(&roll), by, following, (local, report.clone(), config.lease))?;
        roll.tell_spare(&report);
        let moving = Arc::new(Moving::default());
        balance::start(&life, roll, logs.clone(), Arc::clone(&moving), times)?;
        let nodes = Nodes::new(Arc::clone(&node), changes);
        Ok(Arc::new(Self { logs, id, nodes, node, moving }))
    }

    /// The cluster's quorum logs, in the order of their numbers. There is at least one.
    #[must_use]
    pub fn logs(&self) -> &[Arc<QuorumLog>] {
        &self.logs
    }

    /// Says who carries out what balance wants: that a log which this node owns goes to another node, or begins anew with
    /// other keepers. `mover` may do so later, on a thread of its own: it closes the log and calls
    /// [`QuorumLog::hand_over_to`] or [`QuorumLog::change_set`]. Without one, and before the first call, the log is handed over
    /// as it is, and who has it open hears of that by [`QuorumLog::watch`].
    pub fn take_moves(&self, mover: OnMove) {
        self.moving.set(mover);
    }

    /// Has a quorum log owned by a node, by name, from now on, whenever that can own it; none: by whichever is best. With
    /// `only_look` nothing is changed. Waits for the catalog, not for the log to be there.
    ///
    /// # Errors
    /// [`NodesError`].
    pub fn move_log(
        &self,
        log: &str,
        to: Option<&str>,
        only_look: bool,
    ) -> Result<MovedLog, NodesError> {
        self.nodes.move_log(&self.logs, (log, to), only_look)
    }

    /// Has logs in memory, and in a bucket, wait no longer for what a node held of them which is away for good, and is being
    /// replaced or leaves the logs; the names of these logs. With `only_look` nothing is changed. Waits for the catalog.
    ///
    /// # Errors
    /// [`NodesError`].
    pub fn forget_copies(&self, node: &str, only_look: bool) -> Result<Vec<String>, NodesError> {
        self.nodes.give_up(&self.logs, node, only_look)
    }

    /// Tells what clients ask of the logs, for balance. Holds for [`LOADS_HOLD`](balance::loads::LOADS_HOLD).
    pub fn set_loads(&self, loads: Loads) {
        self.moving.set_loads(loads);
    }

    /// Node ports of the other nodes, as they are now.
    #[must_use]
    pub fn others(&self) -> Vec<SocketAddr> {
        self.nodes.roll().addresses()
    }

    /// How many nodes keep the logs. Spares are not counted.
    #[must_use]
    pub fn size(&self) -> usize {
        self.nodes.roll().keepers().len()
    }

    /// How many nodes there are, with spares.
    #[must_use]
    pub fn count(&self) -> usize {
        self.nodes.roll().peers().len() + 1
    }

    /// True if a node of the catalog has this name, as this one knows.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.nodes.roll().roster().number(name).is_some()
    }

    /// The names of the nodes that were removed, as this one knows.
    #[must_use]
    pub fn removed(&self) -> BTreeSet<String> {
        self.nodes.roll().removed()
    }

    /// Has this node know which nodes there are now, where it does not hear of that by itself: it asks the catalog then, for some
    /// seconds at most.
    pub fn refresh_nodes(&self) {
        self.nodes.refresh();
    }

    /// The nodes of the cluster, as this one knows them.
    #[must_use]
    pub fn nodes(&self) -> NodesSight {
        self.nodes.sight(&self.logs)
    }

    /// Has a spare take the place of a node: the spare of this name, or one that is connected and in the zone with the fewest of
    /// the nodes that go on keeping the logs. A spare for which nobody is named is removed. Returns when that has begun;
    /// [`Cluster::nodes`] shows how far it is. Asked again it changes nothing.
    ///
    /// # Errors
    /// [`NodesError`].
    pub fn replace(&self, old: &str, new: Option<&str>) -> Result<Replacement, NodesError> {
        self.nodes.replace((old, new), &self.logs)
    }

    /// Takes back that a spare takes the place of a node: the node keeps it, and its logs are brought back to it. Gives
    /// the name of the spare, which stays one.
    ///
    /// # Errors
    /// [`NodesError`]: for example that is over.
    pub fn keep(&self, old: &str) -> Result<String, NodesError> {
        self.nodes.keep(old)
    }

    /// What [`Cluster::replace`] would do, as far as this node knows.
    ///
    /// # Errors
    /// [`NodesError`].
    pub fn would_replace(&self, old: &str, new: Option<&str>) -> Result<Replacement, NodesError> {
        self.nodes.would_replace((old, new), &self.logs)
    }

    /// Has spares keep the logs beside the nodes that do, or such nodes become spares (`keep`: false): three or five keep
    /// them then. Returns when that has begun; [`Cluster::nodes`] shows how far it is. The opposite for the same nodes takes
    /// it back. With `only_look` nothing is changed.
    ///
    /// # Errors
    /// [`NodesError`].
    pub fn resize(&self, names: &[String], keep: bool, only_look: bool) -> Result<(), NodesError> {
        self.nodes.resize(names, keep, only_look)
    }

    /// Has a node own no log and not lead the catalog while others can, or takes that back (`drain`: false). It keeps its
    /// copies and its vote. Returns when that is decided; [`Cluster::nodes`] shows how far it is. With `only_look` nothing
    /// is changed. True if it was so already, as far as this node knows.
    ///
    /// # Errors
    /// [`NodesError`]: for example nobody would be left who is to own the logs.
    pub fn drain(&self, name: &str, drain: bool, only_look: bool) -> Result<bool, NodesError> {
        self.nodes.drain(name, drain, only_look)
    }

    /// Has the nodes speak the newest protocol that all of them know, which cannot be taken back: a program that does not know
    /// it is no node of the cluster any more.
    ///
    /// # Errors
    /// [`NodesError`].
    pub fn finalize(&self, finalize: Finalize) -> Result<Finalizing, NodesError> {
        self.nodes.finalize(&self.logs, finalize)
    }

    /// How the nodes that keep the logs change; asks no log.
    #[must_use]
    pub fn change_under_way(&self) -> NodesChange {
        self.nodes.change()
    }

    /// True if another node has logs owned in other zones than this one, as it said last.
    #[must_use]
    pub fn owner_zones_differ(&self) -> bool {
        self.nodes.roll().other_owner_zones().is_some()
    }

    /// Says who hears that this node was removed from the cluster; at once if it was.
    pub fn on_removed(&self, on_removed: OnRemoved) {
        self.nodes.roll().on_removed(on_removed);
    }

    /// What the nodes know each other by, if they have a key.
    #[must_use]
    pub fn key(&self) -> Option<&ClusterKey> {
        self.node.key.as_ref()
    }

    /// Says who takes connections of other nodes for messages of clients; until then, and after the first call, none
    /// other does. They show by [`LINK_BEGINS`](crate::link_hello::LINK_BEGINS) what they are, of which nothing
    /// was read.
    pub fn take_links(&self, taker: OnLink) {
        let _ = self.node.links.set(taker);
    }

    /// Tells people of a connection of another node, unless too much was told of them lately.
    pub fn report_link(&self, text: &str) {
        self.node.lines.say(std::time::Instant::now(), text, |text| self.first().report(text));
    }

    /// Ends the node. Logs that it still owns go to other nodes first; whoever has one open closes it before. Then all
    /// its connections are closed, its threads end, and its directory and port are free.
    ///
    /// # Errors
    /// [`Unended`].
    pub fn stop(&self) -> Result<(), Unended> {
        thread::scope(|scope| {
            for log in self.logs.iter().filter(|log| log.owned().is_some()) {
                let beside = Builder::new().spawn_scoped(scope, || log.hand_over());
                if beside.is_err() {
                    log.hand_over();
                }
            }
        });
        self.node.life.end()
    }

    /// The cluster, as its founding named it.
    #[must_use]
    pub fn id(&self) -> u128 {
        self.id
    }
}

impl Drop for Cluster {
    /// Nobody asks it any more.
    fn drop(&mut self) {
        if !self.node.life.is_ending()
            && let Err(unended) = self.node.life.end()
        {
            self.first().report(&unended.to_string());
        }
    }
}

/// What a node says of itself that is set up so.
fn about(config: &ClusterConfig) -> About {
    let (program, keys) = (config.program.clone(), config.keys.clone());
    let (zone, owner_zones) = (config.zone.clone(), Some(config.owner_zones.clone()));
    About { program, keys, zone, owner_zones }
}

/// A node as its connections know it.
fn myself(config: &ClusterConfig, began: &Began, life: &Life) -> Myself {
    Myself {
        id: began.roll.me(),
        cluster: began.founding.cluster,
        key: config.key.clone(),
        life: life.clone(),
        door: began.door(),
        lines: LineLimit::default(),
        links: OnceLock::new(),
        roll: Arc::clone(&began.roll),
        newest: config.protocol_max,
        about: about(config),
        met: Mutex::default(),
        turned_away: Mutex::default(),
    }
}

/// Begins to listen, and to connect.
fn begin_all(
    listener: TcpListener,
    starting: Vec<Starting>,
    node: &Myself,
    beats: Arc<Links>,
) -> Result<Vec<Arc<QuorumLog>>, StartError> {
    let hosts: Vec<Arc<Host>> = starting.iter().map(Starting::host).collect();
    let failing = hosts.clone();
    node.life.on_panic(move |thread| {
        let what =
            format!("the thread {thread} of the node has panicked: it must be started again");
        failing.iter().for_each(|host| host.fail(&what));
    });
    let ports = starting.iter().map(Starting::port).collect();
    port::serve(&node.life, listener, ports, &beats)?;
    let local: Arc<dyn Local> = Arc::clone(&starting[LogNumber::FIRST.index()].local);
    let logs = starting.into_iter().map(Starting::begin).collect::<io::Result<Vec<_>>>()?;
    if let Some(door) = &node.door {
        door.connect(&local)?;
    }
    start_beats(&node.life, local, hosts, beats)?;
    Ok(logs)
}

/// Connects to other nodes for beats, and lets time pass for all logs.
fn start_beats(
    life: &Life,
    first: Arc<dyn Local>,
    hosts: Vec<Arc<Host>>,
    beats: Arc<Links>,
) -> io::Result<()> {
    let ending = Arc::clone(&beats);
    life.at_end(move || ending.end());
    let all: Arc<dyn Local> = Arc::new(OfAllLogs { first, hosts: hosts.clone() });
    beats.start(&all)?;
    let lives = life.clone();
    life.spawn("node-tick", move || {
        while !lives.pause(Duration::from_micros(TICK)) {
            beats.together(|| hosts.iter().for_each(|host| host.tick()));
        }
    })
}

/// The keeper of another log than the first one.
fn further_keeper(
    (number, logs): (LogNumber, LogCount),
    config: &ClusterConfig,
    disk: &Arc<dyn Disk>,
    report: &Reporter,
) -> io::Result<Kept> {
    if logs.memory() == Some(number) {
        Kept::in_memory(config.memory, report)
    } else if logs.are_in_bucket() {
        Kept::of_owners(log_disk(disk, number)?, report)
    } else {
        Kept::open(log_disk(disk, number)?, report)
    }
}

/// What is said of a log names it where there are several.
fn report_of(number: LogNumber, logs: LogCount, report: &Reporter) -> Reporter {
    let name = match number {
        number if logs.memory() == Some(number) => MEMORY_LOG.to_owned(),
        _ if logs.get() == 1 => return report.clone(),
        _ => number.to_string(),
    };
    let (noted, noting, saying) = (name.clone(), report.clone(), report.clone());
    Reporter::with_notes(
        move |text| saying.say(&format!("log {name}: {text}")),
        move |text| noting.note(&format!("log {noted}: {text}")),
    )
}

/// The same as of the first log.
impl Cluster {
    fn first(&self) -> &Arc<QuorumLog> {
        &self.logs[LogNumber::FIRST.index()]
    }

    /// As [`QuorumLog::wait_owned`].
    ///
    /// # Errors
    /// Its disk has failed.
    pub fn wait_owned(&self) -> io::Result<Epoch> {
        self.first().wait_owned()
    }

    /// As [`QuorumLog::clock_is_agreed`].
    #[must_use]
    pub fn clock_is_agreed(&self) -> bool {
        self.first().clock_is_agreed()
    }

    /// As [`QuorumLog::wait_for_clock`].
    pub fn wait_for_clock(&self, limit: Duration) {
        self.first().wait_for_clock(limit);
    }

    /// As [`QuorumLog::last_stamp`].
    #[must_use]
    pub fn last_stamp(&self) -> WallTime {
        self.first().last_stamp()
    }

    /// As [`QuorumLog::wait_until_owner`].
    ///
    /// # Errors
    /// The disk's, and the loss of the ownership meanwhile.
    pub fn wait_until_owner(&self) -> io::Result<QuorumDirectory> {
        self.first().wait_until_owner()
    }

    /// As [`QuorumLog::watch`].
    ///
    /// # Errors
    /// The operating system has no thread to give.
    pub fn watch(&self, epoch: Epoch, lost: OnLost) -> io::Result<()> {
        self.first().watch(epoch, lost)
    }

    /// As [`QuorumLog::prepare_handover`].
    pub fn prepare_handover(&self) {
        self.first().prepare_handover(None);
    }

    /// As [`QuorumLog::hand_over`].
    pub fn hand_over(&self) {
        self.first().hand_over();
    }

    /// As [`QuorumLog::tell_takeover`].
    pub fn tell_takeover(&self) {
        let _ = self.first().tell_takeover();
    }

    /// As [`QuorumLog::has_lost`].
    #[must_use]
    pub fn has_lost(&self) -> bool {
        self.first().has_lost()
    }

    /// As [`QuorumLog::was_replaced`].
    #[must_use]
    pub fn was_replaced(&self) -> bool {
        self.first().was_replaced()
    }

    /// As [`QuorumLog::owned`].
    #[must_use]
    pub fn owned(&self) -> Option<Epoch> {
        self.first().owned()
    }
}
