//! How the parts of one log on a node are put together and begin.

use crate::any_catalog::AnyCatalog;
use crate::beginning::random;
use crate::catalog_trouble::CatalogTrouble;
use crate::clock::now;
use crate::files::{self, Applied, Files};
use crate::heal::{self, DOUBTS_MAX};
use crate::hello::Lane;
use crate::home::Home;
use crate::host::{ColdPacket, Helpers, Host, PendingSync, Way};
use crate::in_bucket::{self, Binding};
use crate::in_memory::{self, KeeperMemory};
use crate::journal::Sizes;
use crate::keeper_dir::KeeperDir;
use crate::life::Life;
use crate::links::{Links, Local, LogWays};
use crate::myself::{Myself, OfLog};
use crate::port::LogPort;
use crate::quorum_log::QuorumLog;
use crate::replica::{FileRange, Replica};
use crate::roll::Roll;
use crate::small_files;
use crate::space::{self, SpaceKept};
use crate::transfer::FileSource;
use crate::trim_holds::TrimHolds;
use nuthatch_catalog_group::{LogCount, LogNumber};
use nuthatch_log::Reporter;
use nuthatch_log::env::Disk;
use nuthatch_quorum::catalog::Call;
use nuthatch_quorum::effect::{Alarm, Effect};
use nuthatch_quorum::message::Envelope;
use nuthatch_quorum::node::{Config, Event, Node, Reads};
use nuthatch_quorum::store::{Image, Record};
use nuthatch_quorum::types::{Incarnation, Lsn, NodeId};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel, sync_channel};
use std::time::Duration;

/// Between two parts of a scrub, each of at most 32 entries, in microseconds.
const SCRUB_EVERY: u64 = 1_000_000;

/// Bytes that a scrub reads in a second.
const SCRUB_BYTES_PER_S: u64 = 16 << 20;

/// A scrub pauses for so many bytes at once: between short entries a pause for each would cost more than reading them.
const SCRUB_PAUSE_BYTES: u64 = 256 << 10;

/// Messages whose payloads wait to be read, each of at most 16 MiB.
const READS_MAX: usize = 4;

/// The directory of a log's keeper, which was read.
pub(crate) struct Kept {
    pub(crate) disk: Arc<dyn Disk>,
    dir: KeeperDir,
    image: Image,
    home: Home,
}

/// What the threads of a log wait for.
struct Asks {
    catalog: Receiver<Call>,
    syncs: Receiver<Option<PendingSync>>,
    scrubs: Receiver<(Lsn, Lsn)>,
    installs: Receiver<Envelope>,
    reads: Receiver<ColdPacket>,
    doubts: Receiver<FileRange>,
    deferred: Receiver<()>,
}

/// A log that is put together and has not begun.
pub(crate) struct Starting {
    pub(crate) log: Arc<QuorumLog>,
    host: Arc<Host>,
    files: Arc<Files>,
    pub(crate) local: Arc<dyn Local>,
    pub(crate) links: Arc<Links>,
    catalog: AnyCatalog,
    asks: Asks,
}

impl Kept {
    /// Opens a keeper's directory; one that has no identity gets one, under which the node can be named in the
    /// catalog before it takes part. What is lost is said.
    pub(crate) fn open(disk: Arc<dyn Disk>, report: &Reporter) -> io::Result<Self> {
        let sizes = if disk.medium().in_memory { in_memory::SIZES } else { space::sizes(&*disk)? };
        Self::open_with(disk, sizes, report)
    }

    fn open_with(disk: Arc<dyn Disk>, sizes: Sizes, report: &Reporter) -> io::Result<Self> {
        let (dir, image) = identified(&disk, sizes)?;
        tell_lost(&image, &disk.label(), report);
        Ok(Self { disk, dir, image, home: Home::Disks })
    }

    /// A keeper in memory, which begins with nothing. It takes so many bytes at most.
    pub(crate) fn in_memory(bytes: Option<u64>, report: &Reporter) -> io::Result<Self> {
        let memory = KeeperMemory::new(bytes);
        let kept = Self::open(memory.disk(), report)?;
        Ok(Self { home: Home::Memory(memory), ..kept })
    }

    /// A keeper of who owns a log that is in a bucket.
    pub(crate) fn of_owners(disk: Arc<dyn Disk>, report: &Reporter) -> io::Result<Self> {
        Self::open_with(disk, in_bucket::SIZES, report)
    }

    /// The same of a log that is in a bucket, if the catalog says which.
    pub(crate) fn bound(self, binding: Option<Binding>) -> Self {
        match binding {
            Some(binding) => Self { home: Home::Bucket(binding), ..self },
            None => self,
        }
    }

    /// True if nothing is on it: it has no entry, and was in no cluster.
    pub(crate) fn is_empty(&self) -> io::Result<bool> {
        Ok(self.image.log.is_empty() && small_files::load_seen(&*self.disk)?.is_none())
    }

    /// Which disk it is.
    pub(crate) fn incarnation(&self) -> Incarnation {
        let Record::Good(identity) = self.image.identity else { unreachable!("it was just given") };
        identity.incarnation
    }
}

impl Starting {
    /// Puts a log together: from now on its cores take events.
    pub(crate) fn new(
        number: LogNumber,
        kept: Kept,
        (node, roll, beats): (&Arc<Myself>, &Arc<Roll>, &Arc<Links>),
        catalog: AnyCatalog,
        (report, logs): (Reporter, LogCount),
    ) -> io::Result<Self> {
        let links = Links::new(&roll.addresses(), Lane::Log);
        let ways = LogWays { log: number, links: Arc::clone(&links), beats: Arc::clone(beats) };
        let Kept { disk, dir, image, home } = kept;
        let file_bytes = dir.journal_file_bytes();
        let kept = home.space_kept(file_bytes, logs.all().into());
        let (helpers, asks) = helpers(ways, (report, home.words()), (logs, kept), roll);
        let peers = roll.peers();
        let image = named(&*disk, image, node.id)?;
        let (cores, effects) = Node::boot(setup(node.id, peers), &image, now());
        let cores = if home.begins_anew() { cores.in_memory() } else { cores };
        let host = Host::new(cores, effects, dir, helpers);
        let replica = Arc::new(Mutex::new(Replica::open(Arc::clone(&disk))?));
        let files = Arc::new(Files {
            host: Arc::clone(&host),
            replica: Arc::clone(&replica),
            holds: Arc::new(TrimHolds::default()),
            marking: Mutex::default(),
            pace: home.pace(file_bytes),
            applied: Applied::default(),
        });
        let local = OfLog { node: Arc::clone(node), log: number, host: Arc::clone(&host) };
        let among = (Arc::clone(roll), node.life.clone());
        let log = QuorumLog::new(number, Arc::clone(&files), disk, among, home);
        let (log, local) = (Arc::new(log), Arc::new(local));
        Ok(Self { log, host, files, local, links, catalog, asks })
    }

    /// Its cores.
    pub(crate) fn host(&self) -> Arc<Host> {
        Arc::clone(&self.host)
    }

    /// As the node's port reaches it.
    pub(crate) fn port(&self) -> LogPort {
        LogPort {
            host: Arc::clone(&self.host),
            local: Arc::clone(&self.local),
            files: Arc::clone(&self.files) as Arc<dyn FileSource>,
        }
    }

    /// Begins to connect and to work, in eight threads and one for each connection.
    pub(crate) fn begin(self) -> io::Result<Arc<QuorumLog>> {
        let Self { log, host, files, local, links, catalog, asks } = self;
        let (number, life) = (log.number(), local.life().clone());
        let (ending, sending) = (Arc::clone(&host), Arc::clone(&links));
        life.at_end(move || {
            ending.end();
            sending.end();
        });
        let disk = Arc::clone(files.replica.lock().disk());
        start_catalog((&life, number), Arc::clone(&host), catalog, asks.catalog, disk)?;
        start_syncing((&life, number), Arc::clone(&host), asks.syncs)?;
        start_scrubbing((&life, number), Arc::clone(&host), asks.scrubs)?;
        let (reading, reads) = (Arc::clone(&host), asks.reads);
        // Payloads that a node needs which is behind.
        let read = move || reads.iter().for_each(|cold| reading.send_read(cold));
        life.spawn_of(number, "read", read)?;
        let (doing, deferred) = (Arc::clone(&host), asks.deferred);
        life.spawn_of(number, "step", move || deferred.iter().for_each(|()| doing.do_deferred()))?;
        links.start(&local)?;
        heal::start_healing(
            number,
            Arc::clone(&files),
            asks.doubts,
            Arc::clone(&links),
            Arc::clone(&local),
        )?;
        files::start_installing(number, Arc::clone(&files), asks.installs, links, local)?;
        files::start_applying(&life, number, files)?;
        Ok(log)
    }
}

fn helpers(
    ways: LogWays,
    (report, words): (Reporter, fn(&Alarm) -> Option<String>),
    (logs, space): (LogCount, SpaceKept),
    roll: &Arc<Roll>,
) -> (Helpers, Asks) {
    let names = Arc::clone(roll);
    let (to_catalog, catalog) = channel();
    let (to_sync, syncs) = channel();
    let (to_scrub, scrubs) = sync_channel(1);
    let (to_install, installs) = sync_channel(0);
    let (to_read, reads) = sync_channel(READS_MAX);
    let (to_doubt, doubts) = sync_channel(DOUBTS_MAX);
    let (to_defer, deferred) = sync_channel(1);
    let helpers = Helpers {
        outbound: Arc::new(ways),
        catalog: Way::open(to_catalog),
        syncs: to_sync,
        installs: Way::open(to_install),
        scrubs: Way::open(to_scrub),
        doubts: Way::open(to_doubt),
        deferred: Way::open(to_defer),
        reads: Way::open(to_read),
        report,
        words,
        named: Box::new(move |node| names.name(node)),
        logs: logs.all().into(),
        space,
    };
    (helpers, Asks { catalog, syncs, scrubs, installs, reads, doubts, deferred })
}

fn identified(disk: &Arc<dyn Disk>, sizes: Sizes) -> io::Result<(KeeperDir, Image)> {
    let open = || KeeperDir::open_with(Arc::clone(disk), sizes);
    let (mut dir, image) = open()?;
    let known = matches!(image.identity, Record::Good(_));
    let promised = image.promises.iter().any(|slot| matches!(slot, Record::Good(_)));
    if known && promised {
        return Ok((dir, image));
    }
    let (_, effects) = Node::boot(setup(NodeId(1), vec![]), &image, now());
    for effect in effects {
        if let Effect::Store(ops) = effect {
            dir.store(&ops, |_| unreachable!("a directory that begins anew has no entries"))?;
        }
    }
    open()
}

/// What a node is told at its start.
fn setup(id: NodeId, peers: Vec<NodeId>) -> Config {
    let fresh = [Incarnation(random()), Incarnation(random())];
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

/// Reads entries again, slowly enough not to be felt.
fn start_scrubbing(
    (life, number): (&Life, LogNumber),
    host: Arc<Host>,
    parts: Receiver<(Lsn, Lsn)>,
) -> io::Result<()> {
    let lives = life.clone();
    let scrub = move || {
        let mut read = 0;
        let mut pause = |bytes: u64| {
            if let Some(pause) = scrub_pause(&mut read, bytes) {
                lives.pause(pause);
            }
        };
        parts.iter().for_each(|(from, upto)| host.scrub(from, upto, &mut pause));
    };
    life.spawn_of(number, "scrub", scrub)
}

/// How long a scrub pauses that has read `bytes` more than those for which it has not paused yet.
fn scrub_pause(read: &mut u64, bytes: u64) -> Option<Duration> {
    *read += bytes;
    let due = (*read >= SCRUB_PAUSE_BYTES).then(|| std::mem::take(read))?;
    Some(Duration::from_micros(1_000_000 * due / SCRUB_BYTES_PER_S))
}

/// Makes syncs that nobody waits for. At the end it makes what the journal has durable: the next start has it then,
/// whatever becomes of the machine.
fn start_syncing(
    (life, number): (&Life, LogNumber),
    host: Arc<Host>,
    syncs: Receiver<Option<PendingSync>>,
) -> io::Result<()> {
    life.spawn_of(number, "sync", move || {
        syncs.iter().map_while(|sync| sync).for_each(|sync| host.make_sync(sync));
        if !host.status().broken
            && let Err(error) = host.sync_journal()
        {
            host.report(&format!("the keeper's journal was not made durable at the end: {error}"));
        }
    })
}

/// Answers the cores' questions to the catalog, one after the other.
fn start_catalog(
    (life, number): (&Life, LogNumber),
    host: Arc<Host>,
    mut catalog: AnyCatalog,
    asked: Receiver<Call>,
    disk: Arc<dyn Disk>,
) -> io::Result<()> {
    let lives = life.clone();
    life.spawn_of(number, "catalog", move || {
        // A catalog that is full, or may only be read, answers one kind of call and not the other.
        let (mut read, mut written) = (CatalogTrouble::default(), CatalogTrouble::default());
        while let Ok(first) = asked.recv() {
            let waiting: Vec<Call> = std::iter::once(first).chain(asked.try_iter()).collect();
            // One read answers all that wait; transactions are not left out.
            let (reads, proposals): (Vec<_>, Vec<_>) =
                waiting.into_iter().partition(|call| matches!(call, Call::Read));
            for call in proposals.into_iter().chain(reads.into_iter().take(1)) {
                let trouble = if matches!(call, Call::Read) { &mut read } else { &mut written };
                match catalog.call(&call, &*disk) {
                    Ok(reply) => {
                        host.counts.note_catalog(None);
                        trouble.passed(|text| host.report(text));
                        host.handle(Event::Catalog(reply));
                    }
                    Err(_) if lives.is_ending() => return,
                    Err(error) => {
                        host.counts.note_catalog(Some(&error));
                        trouble.met(&error, |text| host.report(text));
                        // A catalog that is away takes its time for each. The cores ask again for what they still want.
                        break;
                    }
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrub_pauses_once_for_many_short_entries_and_for_all_of_them() {
        let mut read = 0;
        let pauses = (0..1024).filter_map(|_| scrub_pause(&mut read, 4 << 10));
        let pauses: Vec<Duration> = pauses.collect();
        assert_eq!(pauses.len(), 16);
        assert_eq!(pauses.iter().sum::<Duration>(), Duration::from_millis(250), "4 MiB");
        assert_eq!(scrub_pause(&mut read, 16 << 20), Some(Duration::from_secs(1)));
    }
}
