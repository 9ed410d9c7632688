//! Three nodes in one process, on simulated disks and real sockets: what the owner's directory has
//! synced is in the next owner's.

use nuthatch_cluster::channel::Channel;
use nuthatch_cluster::coding::crc;
use nuthatch_cluster::hello::{HELLO_BYTES, Hello, Lane};
use nuthatch_cluster::inspect::inspect;
use nuthatch_cluster::keeper_dir::KeeperDir;
use nuthatch_cluster::packet::{Packet, encode};
use nuthatch_cluster::small_files::FORMAT;
use nuthatch_cluster::{
    Cluster, ClusterConfig, ClusterKey, KeyNames, LogNumber, Logs, Protocol, QuorumDirectory,
    Route, Versions,
};
use nuthatch_log::Reporter;
use nuthatch_log::env::{Disk, Fault, MemDisk, Ownership as _};
use nuthatch_ports::free_addresses;
use nuthatch_quorum::message::{Envelope, Message};
use nuthatch_quorum::types::{BootCount, Epoch, Incarnation, NodeId};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Only what hangs needs a limit.
const LIMIT: Duration = Duration::from_secs(60);

struct Nodes {
    clusters: Vec<Arc<Cluster>>,
    disks: Vec<MemDisk>,
    ports: Vec<SocketAddr>,
    catalog: PathBuf,
}

impl Nodes {
    fn start(name: &str) -> Self {
        Self::start_with(name, None)
    }

    fn start_with(name: &str, key: Option<&ClusterKey>) -> Self {
        let catalog = std::env::temp_dir().join(format!("nuthatch-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&catalog);
        std::fs::create_dir_all(&catalog).expect("a directory");
        let mut nodes = Self { clusters: vec![], disks: vec![], ports: free_addresses(3), catalog };
        let begin = |number: usize| {
            let disk = MemDisk::default();
            let config = ClusterConfig {
                name: format!("n{number}"),
                listen: nodes.ports[number],
                routes: nodes.ports.iter().copied().map(Route::Address).collect(),
                catalog: format!("file://{}", nodes.catalog.display()),
                key: key.cloned(),
                dir: PathBuf::new(),
                may_be_open: false,
                logs: Logs::Count(1),
                memory: None,
                store: None,
                replace_after: None,
                lease: nuthatch_cluster::LEASE,
                zone: None,
                owner_zones: vec![],
                protocol_max: Protocol::NEWEST,
                keys: KeyNames::default(),
                program: String::new(),
            };
            let lock = disk.take().expect("asked").expect("free");
            let on = Arc::new(disk.clone());
            let report = Reporter::new(move |text| eprintln!("n{number}: {text}"));
            let start = move || Cluster::start_on(&config, on, lock, report);
            (disk, std::thread::spawn(start))
        };
        let begun: Vec<_> = (0..3).map(begin).collect();
        for (disk, thread) in begun {
            nodes.disks.push(disk);
            nodes.clusters.push(thread.join().expect("no panic").expect("starts"));
        }
        nodes
    }

    /// The node that owns the log next, other than those, with its directory.
    fn owner(&self, without: &[usize]) -> (usize, QuorumDirectory) {
        let (found, owners): (_, Receiver<(usize, QuorumDirectory)>) = channel();
        for (number, cluster) in self.clusters.iter().enumerate() {
            if without.contains(&number) {
                continue;
            }
            let (found, cluster) = (found.clone(), Arc::clone(cluster));
            std::thread::spawn(move || {
                if let Ok(directory) = cluster.wait_until_owner() {
                    let _ = found.send((number, directory));
                }
            });
        }
        owners.recv_timeout(LIMIT).expect("some node owns the log")
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.catalog);
    }
}

fn write(directory: &QuorumDirectory, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let file = directory.create(name)?;
    file.write_at(bytes, 0)?;
    file.sync()
}

fn read(directory: &QuorumDirectory, name: &str) -> Vec<u8> {
    let file = directory.open(name).expect("it is there");
    let mut bytes = vec![0; usize::try_from(file.len().expect("a length")).expect("small")];
    assert_eq!(file.read_at(&mut bytes, 0).expect("reads"), bytes.len());
    bytes
}

/// Creates, renames and removes files, and syncs.
fn change(directory: &QuorumDirectory) -> std::io::Result<()> {
    write(directory, "a.seg", b"one")?;
    write(directory, "tmp/catalog", &vec![7; 9 << 20])?;
    directory.rename("tmp/catalog", "catalog")?;
    write(directory, "gone", b"x")?;
    directory.remove("gone")?;
    directory.sync_dir("")
}

/// What rots in a file on the owner's disk, and is doubted by whoever reads it, is brought from another node; what was
/// there is kept.
#[test]
fn what_rots_in_the_files_of_the_owner_is_brought_from_another_node() {
    let nodes = Nodes::start("rot");
    let content: Vec<u8> = (0..3 << 20).map(|at: u32| (at / 7) as u8).collect();
    // A machine that is too busy for beats changes its owner: the next one does it again.
    let written = (0..5).find_map(|_| {
        let (owner, directory) = nodes.owner(&[]);
        let files = || nodes.disks[owner].list("files").unwrap_or_default();
        let before = files();
        write(&directory, "a.seg", &content).ok()?;
        let name = files().into_iter().find(|name| !before.contains(name))?;
        Some((owner, directory, name))
    });
    let (owner, directory, name) = written.expect("an owner that stays");
    assert_eq!(read(&directory, "a.seg"), content);
    let disk = &nodes.disks[owner];
    let rotten = disk.open(&format!("files/{name}")).expect("it is there");
    rotten.write_at(b"rot", (2 << 20) + 5).expect("written");
    assert_ne!(read(&directory, "a.seg"), content);
    let file = directory.open("a.seg").expect("it is there");
    let deadline = Instant::now() + LIMIT;
    while read(&directory, "a.seg") != content {
        assert!(Instant::now() < deadline, "it is not brought");
        file.doubt(1 << 20, 2 << 20);
        std::thread::sleep(Duration::from_millis(20));
    }
    let aside = disk.list("torn").expect("listed");
    assert!(aside.iter().any(|name| name.contains("-file-")), "{aside:?}");
}

#[test]
fn what_was_synced_is_at_the_next_owner() {
    let nodes = Nodes::start("next-owner");
    // A machine that is too busy for beats changes its owner: the next one does it again.
    let written = (0..5).find_map(|_| {
        let (first, directory) = nodes.owner(&[]);
        let tenure = directory.take().ok()?.expect("free");
        assert_eq!(tenure.epoch().map(|epoch| epoch.0), Some(directory.epoch().0));
        change(&directory).ok()?;
        Some((first, directory, tenure))
    });
    let (first, directory, _tenure) = written.expect("an owner that stays");
    let file = directory.open("a.seg").expect("it is there");
    file.write_at(b"two", 3).expect("written");
    assert_eq!(read(&directory, "a.seg"), b"onetwo", "what is not yet synced is read, too");
    // The owner's disk fails: it owns nothing any more, whatever it is told to do.
    nodes.disks[first].inject(Fault::SyncError(0));
    let mut failed = false;
    for number in 0..100_000 {
        failed = write(&directory, &format!("late-{number}"), b"late").is_err();
        if failed {
            break;
        }
    }
    assert!(failed, "a failed sync ends the ownership");
    let (second, directory) = nodes.owner(&[first]);
    assert_ne!(second, first);
    assert_eq!(read(&directory, "a.seg"), b"onetwo");
    assert_eq!(read(&directory, "catalog"), vec![7; 9 << 20]);
    assert!(directory.open("gone").is_err() && directory.open("tmp/catalog").is_err());
    write(&directory, "b.seg", b"of the second").expect("two of three are left");
}

/// An owner that is to hand over writes on while another node makes ready, and that one has all of it.
fn handed_over(nodes: &Nodes) -> std::io::Result<(QuorumDirectory, Epoch)> {
    let (first, directory) = nodes.owner(&[]);
    let epoch = directory.epoch();
    write(&directory, "before.seg", b"before")?;
    nodes.clusters[first].prepare_handover();
    for number in 0..20 {
        write(&directory, &format!("meanwhile-{number}"), b"meanwhile")?;
    }
    nodes.clusters[first].hand_over();
    assert!(write(&directory, "late.seg", b"late").is_err(), "it owns the log no more");
    Ok((nodes.owner(&[first]).1, epoch))
}

#[test]
fn an_owner_serves_until_it_hands_over_what_was_prepared() {
    let nodes = Nodes::start("handover");
    // A machine that is too busy for beats changes its owner: the next one does it again.
    let handed = (0..5).find_map(|_| handed_over(&nodes).ok());
    let (directory, epoch) = handed.expect("an owner that stays");
    assert!(directory.epoch() > epoch);
    assert_eq!(read(&directory, "before.seg"), b"before");
    assert_eq!(read(&directory, "meanwhile-19"), b"meanwhile");
    assert!(directory.open("late.seg").is_err());
}

/// What is left of a file that nothing names any more, to who has it open, once this node's copy is gone.
fn read_unnamed(nodes: &Nodes) -> std::io::Result<Vec<u8>> {
    let (owner, directory) = nodes.owner(&[]);
    let files = || nodes.disks[owner].list("files").unwrap_or_default();
    let before = files();
    write(&directory, "old.seg", b"what it was")?;
    let open = directory.open("old.seg")?;
    let old = files().into_iter().find(|name| !before.contains(name)).expect("it was made");
    // So long that this node's copy goes at once: what was let go counts as much as what was written.
    open.set_len(65 << 20)?;
    directory.remove("old.seg")?;
    directory.sync_dir("")?;
    let deadline = Instant::now() + LIMIT;
    while files().contains(&old) {
        assert!(Instant::now() < deadline, "{old} is there");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut bytes = vec![0; 11];
    open.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

#[test]
fn who_has_a_file_open_reads_it_although_it_has_no_name_any_more() {
    let nodes = Nodes::start("unnamed");
    // A machine that is too busy for beats changes its owner: the next one does it again.
    let read = (0..5).find_map(|_| read_unnamed(&nodes).ok());
    assert_eq!(read.expect("an owner that stays"), b"what it was");
}

#[test]
fn who_is_no_node_is_told_what_the_port_is_for() {
    let nodes = Nodes::start("wrong-port");
    let (owner, _) = nodes.owner(&[]);
    for said in [&b""[..], b"CONNECT {}\r\nPING\r\n", b"INFO {\"server_id\":\"x\"}\r\n", &[0; 100]]
    {
        let mut stream = TcpStream::connect(nodes.ports[owner]).expect("connects");
        stream.write_all(said).expect("says");
        let mut text = String::new();
        // What it still had to read is lost with the connection, which may end it with a reset.
        let _ = stream.read_to_string(&mut text);
        assert!(text.starts_with("-ERR") && text.contains("client port"), "{text:?}");
    }
    // On a machine that is too busy for beats another node may own the log by now.
    let goes_on = (0..5).any(|attempt| {
        let (_, directory) = nodes.owner(&[]);
        write(&directory, &format!("a{attempt}"), b"as before").is_ok()
    });
    assert!(goes_on, "the log takes writes as before");
}

/// A connection to a node that passes for another node of the cluster, and the node's own hello.
fn disguised(nodes: &Nodes, at: usize) -> (TcpStream, Hello, Hello) {
    let cluster = nodes.clusters[at].id();
    for node in (1..=3).map(NodeId) {
        let (incarnation, boots) = (Incarnation(77), BootCount(1));
        let (lane, log, speaks) = (Lane::Log, LogNumber::FIRST, Versions::default());
        let mine = Hello { cluster, node, incarnation, boots, lane, log, speaks };
        let mut stream = TcpStream::connect(nodes.ports[at]).expect("connects");
        stream.set_read_timeout(Some(LIMIT)).expect("set");
        stream.write_all(&mine.encode()).expect("says");
        let mut theirs = [0; HELLO_BYTES];
        // Under the node's own number nobody is taken.
        if stream.read_exact(&mut theirs).is_ok() {
            return (stream, mine, Hello::decode(&theirs).expect("a hello"));
        }
    }
    panic!("no node is listened to");
}

/// What a node says to somebody who begins so.
fn answer(at: SocketAddr, said: &[u8]) -> String {
    let mut stream = TcpStream::connect(at).expect("connects");
    stream.set_read_timeout(Some(LIMIT)).expect("set");
    stream.write_all(said).expect("says");
    let mut bytes = vec![];
    // What it still had to read is lost with the connection, which may end it with a reset.
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What a node says of itself before its beats costs it its connection where it is none, and nothing else.
#[test]
fn what_a_node_says_of_itself_is_read_whole_and_bounded() {
    let nodes = Nodes::start("about");
    let framed = |len: usize, bytes: &[u8]| {
        let len = u32::try_from(len).expect("small").to_le_bytes();
        [&len[..], &crc(bytes).to_le_bytes(), bytes].concat()
    };
    let program = [1, 2, 0, 0, 0, 10, 10];
    for bad in [vec![0xff; 8], framed(5 << 10, &[0; 5 << 10]), framed(1, &[1]), framed(7, &program)]
    {
        let (lane, log, speaks) = (Lane::Beats, LogNumber::FIRST, Versions::default());
        let (_, mine, _) = disguised(&nodes, 0);
        let mut stream = TcpStream::connect(nodes.ports[0]).expect("connects");
        stream.set_read_timeout(Some(LIMIT)).expect("set");
        stream.write_all(&Hello { lane, log, speaks, ..mine }.encode()).expect("says");
        let mut theirs = [0; HELLO_BYTES];
        stream.read_exact(&mut theirs).expect("answers");
        stream.write_all(&bad).expect("says");
        assert_eq!(stream.read_to_end(&mut vec![]).unwrap_or_default(), 0, "it is cut off");
    }
    let goes_on = (0..5).any(|attempt| {
        let (_, directory) = nodes.owner(&[]);
        write(&directory, &format!("a{attempt}"), b"as before").is_ok()
    });
    assert!(goes_on, "the log takes writes as before");
}

#[test]
fn nodes_with_a_key_talk_to_nobody_without_it() {
    let key = |byte: u8| ClusterKey::new(&[byte; 32]).expect("long enough");
    let nodes = Nodes::start_with("key", Some(&key(1)));
    let written = (0..5).any(|attempt| {
        let (_, directory) = nodes.owner(&[]);
        let name = format!("large{attempt}");
        write(&directory, &name, &vec![9; 9 << 20]).is_ok()
            && read(&directory, &name) == vec![9; 9 << 20]
    });
    assert!(written, "the log takes writes");
    let (cluster, node) = (nodes.clusters[0].id(), NodeId(2));
    let (incarnation, boots) = (Incarnation(77), BootCount(1));
    let (lane, log, speaks) = (Lane::Log, LogNumber::FIRST, Versions::default());
    let hello = Hello { cluster, node, incarnation, boots, lane, log, speaks }.encode();
    assert!(answer(nodes.ports[0], &hello).contains("--cluster_key"));
    assert!(answer(nodes.ports[0], b"CONNECT {}\r\n").contains("client port"));
    // The hello of somebody with another key is not even read.
    let through = |key: &ClusterKey| {
        let stream = TcpStream::connect(nodes.ports[0]).expect("connects");
        let mut channel = Channel::outward(stream, Some(key), Instant::now() + LIMIT)?;
        channel.write_all(&hello)?;
        channel.flush()?;
        let mut theirs = [0; HELLO_BYTES];
        channel.read_exact(&mut theirs).map(|()| Hello::decode(&theirs).expect("a hello"))
    };
    assert!(through(&key(2)).is_err());
    assert!(through(&key(1)).is_ok_and(|hello| hello.cluster == cluster && hello.node != node));
}

#[test]
fn a_node_without_a_key_says_so_to_one_that_has_one() {
    let nodes = Nodes::start("no-key");
    let handshake = [22, 3, 1, 0, 5, 1, 0, 0, 1, 3];
    assert!(answer(nodes.ports[0], &handshake).contains("has no cluster key"));
}

#[test]
fn what_is_damaged_while_a_node_runs_is_found_and_brought_by_the_others() {
    let nodes = Nodes::start("scrub");
    let written = (0..5).any(|attempt| {
        let (_, directory) = nodes.owner(&[]);
        (0..20).all(|number| {
            write(&directory, &format!("f{attempt}-{number}"), &[number; 300]).is_ok()
        })
    });
    assert!(written, "the log takes writes");
    let looked = |at: usize| inspect(Arc::new(nodes.disks[at].clone())).expect("reads");
    let wait = |what: &str, is_so: &dyn Fn() -> bool| {
        let deadline = Instant::now() + LIMIT;
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait("all have it", &|| (0..3).all(|at| looked(at).last.0 >= 20));
    for at in 0..3 {
        // The payload of the entry in the tenth block, and the header of the twelfth.
        let journal = nodes.disks[at].open("ops/00000000").expect("a journal");
        for place in [9 * 4096 + 100, 11 * 4096 + 20] {
            let byte = journal.read_shared(place, 1).expect("reads")[0];
            journal.write_at(&[byte ^ 4], place).expect("written");
        }
        assert_eq!(looked(at).damaged.len(), 2, "two are damaged at {at}");
        wait("it is healed", &|| looked(at).is_healthy());
    }
}

#[test]
fn an_epoch_that_cannot_be_costs_the_connection_and_nothing_else() {
    let nodes = Nodes::start("lying-peer");
    let (owner, _) = nodes.owner(&[]);
    for at in (0..3).filter(|at| *at != owner) {
        let (mut stream, mine, theirs) = disguised(&nodes, at);
        let envelope = Envelope {
            from: mine.node,
            sender: mine.incarnation,
            to: theirs.node,
            disk: Some(theirs.incarnation),
            message: Message::Seal { epoch: Epoch(u32::MAX) },
        };
        stream
            .write_all(&encode(LogNumber::FIRST, &Packet { envelope, payloads: vec![] }))
            .expect("says");
        let mut rest: Vec<u8> = vec![];
        // It may end with a reset, and does not go on.
        let ended = stream.read_to_end(&mut rest).map_err(|error| error.kind());
        assert_ne!(ended, Err(ErrorKind::WouldBlock), "the connection is closed");
        assert!(rest.is_empty(), "nothing is answered");
    }
    // With the promise of that epoch on two of three disks nobody would ever own the log again.
    let goes_on = (0..5).any(|attempt| {
        let (_, directory) = nodes.owner(&[]);
        write(&directory, &format!("a{attempt}"), b"as before").is_ok()
    });
    assert!(goes_on, "the log takes writes as before");
}

#[test]
fn a_directory_of_a_later_version_is_refused_as_it_is() {
    let disk = MemDisk::default();
    KeeperDir::open(Arc::new(disk.clone())).expect("a new one");
    let file = disk.open(FORMAT).expect("it says its version");
    let mut text = vec![0; usize::try_from(file.len().expect("a length")).expect("small")];
    file.read_at(&mut text, 0).expect("reads");
    let text = String::from_utf8(text).expect("text");
    KeeperDir::open(Arc::new(disk.clone())).expect("its own");
    for (content, expected) in
        [(text.replace('2', "4"), "start a newer one"), ("x".into(), "as a version")]
    {
        nuthatch_log::env::replace_file(&disk, FORMAT, content.as_bytes()).expect("written");
        let Err(error) = KeeperDir::open(Arc::new(disk.clone())) else { panic!("{content}") };
        assert!(error.to_string().contains(expected), "{error}");
        let left = disk.open(FORMAT).and_then(|file| file.read_shared(0, content.len()));
        assert_eq!(left.expect("still there"), content.as_bytes());
    }
}
