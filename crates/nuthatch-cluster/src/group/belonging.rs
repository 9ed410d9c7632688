//! How a node finds the cluster that it belongs to: it asks all nodes that it was told of, and answers them, until all
//! have answered that they hold nothing, or one holds what the cluster was founded with.

use crate::channel::Channel;
use crate::config::ClusterConfig;
use crate::group_port::GroupPort;
use crate::hello::{Hello, Lane};
use crate::key::ClusterKey;
use crate::links::{Local, connect};
use crate::port::greet;
use crate::start_error::StartError;
use crate::transfer::{put_answer, read_answer};
use nuthatch_catalog_group::founding::{self, Answer, Founding, Named, Next};
use nuthatch_catalog_group::identity;
use nuthatch_catalog_group::{LogCount, LogNumber, MemberId};
use nuthatch_log::Reporter;
use nuthatch_log::env::{Disk, Entropy as _, SystemEntropy};
use nuthatch_quorum::types::{BootCount, Incarnation, NodeId};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Between two rounds of questions.
const ROUND: Duration = Duration::from_millis(200);

/// How long a node may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);

/// Between two looks whether somebody has connected.
const ACCEPT_POLL: Duration = Duration::from_millis(5);

/// Connections at a time that are answered.
const ASKING_MAX: usize = 32;

/// Bytes of an answer at most.
const ANSWER_MAX: u32 = 1 << 16;

/// What the cluster of this disk was founded with, and the answer to others that ask for it. A disk without one waits
/// until there is one.
///
/// # Errors
/// [`StartError`]: it will never belong to a cluster so.
pub fn belong(
    config: &ClusterConfig,
    listener: &TcpListener,
    (keeper, disk): (Incarnation, &dyn Disk),
    report: &Reporter,
) -> Result<(Founding, Vec<u8>), StartError> {
    identity::prepare(disk)?;
    let member = identity::identify(disk, MemberId(SystemEntropy::default().next().max(1)))?.member;
    let me = Named { name: config.name.clone(), keeper, member };
    let founding = match identity::load_founding(disk)? {
        Some(founding) => founding,
        None => sought(config, listener, (&me, config.founds()?), report)?,
    };
    identity::take_founding(disk, &founding)?;
    let answer = Answer { node: me, founding: Some(founding.clone()) }.encode();
    Ok((founding, answer))
}

fn sought(
    config: &ClusterConfig,
    listener: &TcpListener,
    (me, logs): (&Named, LogCount),
    report: &Reporter,
) -> Result<Founding, StartError> {
    let key = config.key.clone();
    let local: Arc<dyn Local> =
        Arc::new(Newcomer { keeper: me.keeper, key, report: report.clone() });
    let answer = Answer { node: me.clone(), founding: None }.encode();
    listener.set_nonblocking(true)?;
    let done = AtomicBool::new(false);
    let found = thread::scope(|scope| {
        scope.spawn(|| answer_others(listener, &local, &answer, &done));
        let found = seek(config, (me, logs), &local, report);
        done.store(true, Ordering::Release);
        found
    });
    listener.set_nonblocking(false)?;
    found
}

/// Answers others that look for the cluster until `done`.
fn answer_others(listener: &TcpListener, local: &Arc<dyn Local>, answer: &[u8], done: &AtomicBool) {
    let asking = Arc::new(AtomicUsize::new(0));
    while !done.load(Ordering::Acquire) {
        match listener.accept() {
            Ok((stream, from)) if asking.load(Ordering::Acquire) < ASKING_MAX => {
                let (local, answer) = (Arc::clone(local), answer.to_vec());
                let leaving = Arc::clone(&asking);
                asking.fetch_add(1, Ordering::AcqRel);
                let told = thread::Builder::new().name("node-in".to_owned()).spawn(move || {
                    // Who did not understand asks again.
                    let _ = tell(stream, from, &*local, &answer);
                    leaving.fetch_sub(1, Ordering::AcqRel);
                });
                if told.is_err() {
                    asking.fetch_sub(1, Ordering::AcqRel);
                }
            }
            Ok(_) => {}
            Err(_) => thread::sleep(ACCEPT_POLL),
        }
    }
}

fn tell(stream: TcpStream, from: SocketAddr, local: &dyn Local, answer: &[u8]) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    match greet(stream, &[local], from) {
        Some((mut channel, hello)) if hello.lane == Lane::Founding => {
            put_answer(&mut channel, answer)
        }
        _ => Ok(()),
    }
}

fn seek(
    config: &ClusterConfig,
    (me, logs): (&Named, LogCount),
    local: &Arc<dyn Local>,
    report: &Reporter,
) -> Result<Founding, StartError> {
    let others = config.others();
    let mut entropy = SystemEntropy::default();
    let fresh = u128::from(entropy.next()) << 64 | u128::from(entropy.next());
    let mut told = None;
    loop {
        let answers = ask_all(&others, local);
        if let Next::Take(founding) = founding::next(me, &answers, fresh)? {
            return Ok(founding.begun_with(fresh, logs));
        }
        let answered = |(address, answer): (&SocketAddr, &Option<Answer>)| {
            answer.is_none().then(|| address.to_string())
        };
        let missing: Vec<String> = others.iter().zip(&answers).filter_map(answered).collect();
        if told.as_ref() != Some(&missing) {
            let count = config.size();
            report.say(&match missing.is_empty() {
                true => "all nodes have answered: the first by name founds the cluster".to_owned(),
                false => format!(
                    "the cluster is founded when all of its {count} nodes have answered; missing: {}",
                    missing.join(", ")
                ),
            });
            told = Some(missing);
        }
        thread::sleep(ROUND);
    }
}

/// Asks all at once, so that one that hangs holds up no answer of another.
fn ask_all(others: &[SocketAddr], local: &Arc<dyn Local>) -> Vec<Option<Answer>> {
    thread::scope(|scope| {
        let ask = |address: &SocketAddr| {
            let (address, local) = (*address, Arc::clone(local));
            scope.spawn(move || ask(address, &*local).ok())
        };
        let asked: Vec<_> = others.iter().map(ask).collect();
        asked.into_iter().map(|asking| asking.join().ok().flatten()).collect()
    })
}

fn ask(address: SocketAddr, local: &dyn Local) -> io::Result<Answer> {
    let deadline = Instant::now() + ANSWER_WITHIN;
    let (mut channel, _): (Channel, _) = connect(address, Lane::Founding, local, deadline)?;
    channel.begun(ANSWER_WITHIN, ANSWER_WITHIN)?;
    let answer = read_answer(&mut channel, ANSWER_MAX)?;
    Answer::decode(&answer).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))
}

/// A node that does not know its cluster yet, as its connections know it.
struct Newcomer {
    keeper: Incarnation,
    key: Option<ClusterKey>,
    report: Reporter,
}

impl Local for Newcomer {
    fn hello(&self, lane: Lane) -> Hello {
        let (node, boots, log) = (NodeId(0), BootCount(0), LogNumber::FIRST);
        Hello { cluster: 0, node, incarnation: self.keeper, boots, lane, log }
    }

    fn key(&self) -> Option<&ClusterKey> {
        self.key.as_ref()
    }

    fn lost(&self, _: NodeId) {}

    fn group(&self) -> Option<&dyn GroupPort> {
        None
    }

    /// Nobody knows yet which cluster that would be in: the other node comes again.
    fn link(&self, _: TcpStream) {}

    fn report(&self, text: &str) {
        self.report.say(text);
    }

    fn accepts(&self, hello: &Hello, _: SocketAddr) -> bool {
        // Nothing else can be said to a node without a cluster.
        hello.lane == Lane::Founding
    }
}
