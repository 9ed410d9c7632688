//! How a node finds the cluster that it belongs to: it asks all nodes that it was told of, and answers them, until all
//! have answered that they hold nothing, or one holds what the cluster was founded with.

use super::joining::{JoinAnswer, JoinRequest};
use crate::about::{About, Versions};
use crate::catalog::CatalogError;
use crate::channel::Channel;
use crate::config::ClusterConfig;
use crate::framed::{put_answer, read_answer};
use crate::group_port::GroupPort;
use crate::hello::{Hello, Lane, is_core_only};
use crate::key::ClusterKey;
use crate::life::Life;
use crate::links::{Local, connect};
use crate::port::greet;
use crate::routes::Routes;
use crate::start_error::StartError;
use nuthatch_catalog_group::founding::{self, Answer, Founding, Named, Next};
use nuthatch_catalog_group::identity;
use nuthatch_catalog_group::seeking::Seeking;
use nuthatch_catalog_group::{LogCount, LogNumber, MemberId, Protocol, Roster};
use nuthatch_log::Reporter;
use nuthatch_log::env::{Disk, Entropy as _, SystemEntropy};
use nuthatch_quorum::types::{BootCount, Incarnation, NodeId};
use parking_lot::Mutex;
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

/// How long a node may take to have another one join: longer than the catalog goes on with it.
const JOINED_WITHIN: Duration = Duration::from_secs(5);

/// Between two looks whether somebody has connected.
const ACCEPT_POLL: Duration = Duration::from_millis(5);

/// Connections at a time that are answered.
const ASKING_MAX: usize = 32;

/// Bytes of an answer at most.
const ANSWER_MAX: u32 = 1 << 16;

/// The cluster that a disk belongs to.
pub struct Belonging {
    /// What it was founded with.
    pub founding: Founding,
    /// Who its nodes are, as far as this one knows without asking.
    pub roster: Roster,
    /// Which of them this is.
    pub number: NodeId,
    /// This node and its disks.
    pub me: Named,
}

/// The cluster of this disk. A disk without one waits until there is one, which it founds with others or joins.
///
/// # Errors
/// [`StartError`]: it will never belong to a cluster so.
pub fn belong(
    config: &ClusterConfig,
    routes: &Routes,
    listener: &TcpListener,
    (keeper, disk): (Incarnation, &dyn Disk),
    (life, report): (&Life, &Reporter),
) -> Result<Belonging, StartError> {
    identity::prepare(disk)?;
    if let Some(by) = identity::load_removed(disk)? {
        let (name, dir) = (config.name.clone(), disk.label());
        return Err(StartError::Removed { name, by, dir });
    }
    let member = identity::identify(disk, MemberId(SystemEntropy::default().next().max(1)))?.member;
    let me = Named { name: config.name.clone(), keeper, member };
    let (founding, roster) = match identity::load_founding(disk)? {
        Some(founding) => {
            let joined = identity::load_joined(disk)?.map(|(_, roster)| roster);
            let roster = joined.unwrap_or_else(|| founding.roster());
            (founding, roster)
        }
        None => sought((config, routes), listener, &me, (life, report))?,
    };
    check_protocol(config, &roster)?;
    let number = roster.number(&config.name).ok_or_else(|| {
        let nodes: Vec<&str> = roster.nodes.values().map(|one| one.name.as_str()).collect();
        let (name, nodes) = (config.name.clone(), nodes.join(", "));
        StartError::Catalog(CatalogError::Stranger { name, nodes })
    })?;
    if founding.founders.iter().all(|founder| founder.id != number) {
        identity::store_joined(disk, number, &roster)?;
    }
    identity::take_founding(disk, &founding)?;
    Ok(Belonging { founding, roster, number, me })
}

/// A program that is older than what the cluster has gone on to is no node of it.
pub(super) fn check_protocol(config: &ClusterConfig, roster: &Roster) -> Result<(), StartError> {
    let (active, newest) = (roster.active, config.protocol_max);
    if active > newest { Err(StartError::TooOld { active, newest }) } else { Ok(()) }
}

fn sought(
    told: (&ClusterConfig, &Routes),
    listener: &TcpListener,
    me: &Named,
    (life, report): (&Life, &Reporter),
) -> Result<(Founding, Roster), StartError> {
    let (key, life, report) = (told.0.key.clone(), life.clone(), report.clone());
    let speaks = Versions { oldest: Protocol::FIRST, newest: told.0.protocol_max };
    let newcomer = Newcomer { keeper: me.keeper, speaks, key, life, report };
    let local: Arc<dyn Local> = Arc::new(newcomer);
    let answer = Answer { node: me.clone(), founding: None, roster: None }.encode();
    listener.set_nonblocking(true)?;
    let done = AtomicBool::new(false);
    let seeking = Arc::new(Mutex::new(Seeking::default()));
    let found = thread::scope(|scope| {
        scope.spawn(|| answer_others(listener, &local, (&answer, &seeking), &done));
        let found = seek(told, me, &local, &seeking);
        done.store(true, Ordering::Release);
        found
    });
    listener.set_nonblocking(false)?;
    found
}

/// Answers others that look for the cluster until `done`.
fn answer_others(
    listener: &TcpListener,
    local: &Arc<dyn Local>,
    (answer, seeking): (&[u8], &Arc<Mutex<Seeking>>),
    done: &AtomicBool,
) {
    let asking = Arc::new(AtomicUsize::new(0));
    while !done.load(Ordering::Acquire) {
        match listener.accept() {
            Ok((stream, from)) if asking.load(Ordering::Acquire) < ASKING_MAX => {
                let (telling, answer) = (Arc::clone(local), answer.to_vec());
                let seeking = Arc::clone(seeking);
                let leaving = Arc::clone(&asking);
                asking.fetch_add(1, Ordering::AcqRel);
                let told = local.life().spawn_for_one("node-in", move || {
                    // Who did not understand asks again.
                    let _ = tell(stream, from, &*telling, (&answer, &seeking));
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

fn tell(
    stream: TcpStream,
    from: SocketAddr,
    local: &dyn Local,
    (answer, seeking): (&[u8], &Mutex<Seeking>),
) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let stream = local.life().track(stream)?;
    match greet(stream, &[local], from) {
        Some((mut channel, hello))
            if hello.lane == Lane::Founding && seeking.lock().say_nothing_held() =>
        {
            put_answer(&mut channel, answer)
        }
        _ => Ok(()),
    }
}

fn seek(
    (config, routes): (&ClusterConfig, &Routes),
    me: &Named,
    local: &Arc<dyn Local>,
    seeking: &Mutex<Seeking>,
) -> Result<(Founding, Roster), StartError> {
    let mut entropy = SystemEntropy::default();
    let fresh = u128::from(entropy.next()) << 64 | u128::from(entropy.next());
    let mut told = String::new();
    loop {
        // Names may be found later, and elsewhere.
        let (others, size) = routes.sight();
        seeking.lock().ask();
        let told_each = ask_each(&others, local, &|answer| seeking.lock().counts(answer));
        let (others, told_each, without) = that_keep(others, told_each);
        let size = size.map(|size| size - without);
        let founds = size.filter(|size| config.may_found_beside(*size, without));
        let strangers = strangers(&others, &told_each);
        let told_each = told_each.into_iter().map(|told| told.ok().flatten());
        let told_each: Vec<Option<(Answer, Versions)>> = told_each.collect();
        let active = begins_with(config, &told_each);
        let answers: Vec<Option<Answer>> =
            told_each.into_iter().map(|told| told.map(|(answer, _)| answer)).collect();
        let is_there = answers.iter().flatten().any(|answer| answer.founding.is_some());
        let next = match founds.is_some() || is_there {
            true => founding::next(me, &answers, fresh)?,
            false => Next::Wait,
        };
        let waits = match next {
            Next::Take(founding, roster) => {
                let logs = founds.map_or(Ok(LogCount::ONE), |size| config.founds(size))?;
                return Ok((founding.begun_with(fresh, logs, active), roster));
            }
            Next::Join(founding, _) => match join_one(config, me, &others, local)? {
                Ok(roster) => return Ok((founding, roster)),
                Err(why) => why,
            },
            Next::Wait => {
                let count = size.ok_or_else(|| routes.told_not_found());
                let wrong = || routes.has_names().then(|| routes.told_wrong());
                match count {
                    Ok(count) if founds.is_none() => joins_only(count, wrong(), &strangers),
                    Ok(count) => waits_for(count, (&others, &strangers), &answers),
                    Err(not_found) => not_found,
                }
            }
        };
        if told != waits {
            local.report(&waits);
            told = waits;
        }
        if local.life().pause(ROUND) {
            return Err(StartError::Ended);
        }
    }
}

/// What a cluster speaks that is founded by this node and those that have answered: the newest that all of them know.
fn begins_with(config: &ClusterConfig, told: &[Option<(Answer, Versions)>]) -> Protocol {
    let others = told.iter().flatten().map(|(_, speaks)| speaks.newest);
    others.fold(config.protocol_max, Protocol::min).max(Protocol::FIRST)
}

/// The nodes that keep logs, as far as is known, with what they told; and how many have no JetStream: those found nothing, and
/// nothing can be held there.
fn that_keep(others: Vec<SocketAddr>, told: Vec<Told>) -> (Vec<SocketAddr>, Vec<Told>, usize) {
    let listed = others.len();
    let keeps = |(_, told): &(SocketAddr, Told)| !told.as_ref().is_err_and(is_core_only);
    let (others, told): (Vec<_>, Vec<_>) = others.into_iter().zip(told).filter(keeps).unzip();
    let without = listed - others.len();
    (others, told, without)
}

/// What a node says, for people, that is told of a number of nodes which found nothing.
fn joins_only(count: usize, wrong: Option<String>, strangers: &str) -> String {
    match wrong {
        Some(wrong) => {
            format!("{wrong}. It joins a cluster as soon as a node of one answers{strangers}")
        }
        None => format!(
            "this node and its routes are {count}: so many found no cluster (3 or 5 do). It joins one as soon as a node \
             of one answers{strangers}"
        ),
    }
}

/// What a node waits for that founds a cluster with so many, for people.
fn waits_for(
    count: usize,
    (others, strangers): (&[SocketAddr], &str),
    answers: &[Option<Answer>],
) -> String {
    let answered = |(address, answer): (&SocketAddr, &Option<Answer>)| {
        answer.is_none().then(|| address.to_string())
    };
    let missing: Vec<String> = others.iter().zip(answers).filter_map(answered).collect();
    match missing.is_empty() {
        true => "all nodes have answered: the first by name founds the cluster".to_owned(),
        false => format!(
            "the cluster is founded when all of its {count} nodes have answered; missing: {}{strangers}",
            missing.join(", ")
        ),
    }
}

/// What one of those answered that were asked who they are, and what it speaks; nothing: its answer does not count.
type Told = io::Result<Option<(Answer, Versions)>>;

/// Says of addresses where something answers that is no node with the same key, or speaks something else: that does not pass
/// by itself.
fn strangers(others: &[SocketAddr], told: &[Told]) -> String {
    let of_kind = |kind: io::ErrorKind| {
        let is = move |told: &Told| told.as_ref().is_err_and(|error| error.kind() == kind);
        let all = others.iter().zip(told).filter(move |(_, told)| is(told));
        all.filter_map(|(address, told)| Some((address.to_string(), told.as_ref().err()?)))
    };
    let apart = of_kind(io::ErrorKind::Unsupported);
    let apart: String = apart.map(|(at, why)| format!(". The node at {at}: {why}")).collect();
    let all = of_kind(io::ErrorKind::InvalidData);
    let all: Vec<String> = all.map(|(address, _)| address).collect();
    if all.is_empty() {
        return apart;
    }
    format!(
        "{apart}. At {} somebody answers who has another cluster key than this node, or none, or is no node: give all nodes the same \
         --cluster_key (cluster.key_file)",
        all.join(" and ")
    )
}

/// Asks one node after the other to be let join; gives who the nodes are then, or why it is to be tried again.
fn join_one(
    config: &ClusterConfig,
    me: &Named,
    others: &[SocketAddr],
    local: &Arc<dyn Local>,
) -> Result<Result<Roster, String>, StartError> {
    let request = JoinRequest { name: me.name.clone(), member: me.member, listen: config.listen };
    let mut why = "no node of it answers".to_owned();
    for address in others {
        match join(*address, &request, &**local) {
            Ok(JoinAnswer::Joined(roster)) => return Ok(Ok(roster)),
            Ok(JoinAnswer::Refused(why)) => return Err(StartError::Refused { why }),
            Ok(JoinAnswer::Later(told)) => why = told,
            Err(error) if error.kind() == io::ErrorKind::Unsupported => why = error.to_string(),
            Err(_) => {}
        }
    }
    Ok(Err(format!("this node waits to join the cluster: {why}")))
}

pub(super) fn join(
    address: SocketAddr,
    request: &JoinRequest,
    local: &dyn Local,
) -> io::Result<JoinAnswer> {
    let deadline = Instant::now() + ANSWER_WITHIN;
    let (mut channel, _): (Channel, _) = connect(address, Lane::Join, local, deadline)?;
    channel.begun(JOINED_WITHIN, ANSWER_WITHIN)?;
    put_answer(&mut channel, &request.encode())?;
    let answer = read_answer(&mut channel, ANSWER_MAX)?;
    JoinAnswer::decode(&answer).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))
}

/// Asks all at once, so that one that hangs holds up no answer of another. Gives what they answered, as far as it
/// `counts` when it comes.
pub(super) fn ask_all(
    others: &[SocketAddr],
    local: &Arc<dyn Local>,
    counts: &(dyn Fn(&Answer) -> bool + Sync),
) -> Vec<Option<Answer>> {
    let told = ask_each(others, local, counts).into_iter();
    told.map(|told| told.ok().flatten().map(|(answer, _)| answer)).collect()
}

/// As [`ask_all`], with what went wrong.
fn ask_each(
    others: &[SocketAddr],
    local: &Arc<dyn Local>,
    counts: &(dyn Fn(&Answer) -> bool + Sync),
) -> Vec<Told> {
    thread::scope(|scope| {
        let ask = |address: &SocketAddr| {
            let (address, local) = (*address, Arc::clone(local));
            scope.spawn(move || Ok(Some(ask(address, &*local)?).filter(|told| counts(&told.0))))
        };
        let asked: Vec<_> = others.iter().map(ask).collect();
        let ended = |_| Err(io::Error::other("it was not asked"));
        asked.into_iter().map(|asking| asking.join().unwrap_or_else(ended)).collect()
    })
}

fn ask(address: SocketAddr, local: &dyn Local) -> io::Result<(Answer, Versions)> {
    let deadline = Instant::now() + ANSWER_WITHIN;
    let (mut channel, hello) = connect(address, Lane::Founding, local, deadline)?;
    channel.begun(ANSWER_WITHIN, ANSWER_WITHIN)?;
    let answer = Answer::decode(&read_answer(&mut channel, ANSWER_MAX)?);
    let answer = answer.map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
    Ok((answer, hello.speaks))
}

/// A node that does not know its cluster yet, as its connections know it.
struct Newcomer {
    keeper: Incarnation,
    speaks: Versions,
    key: Option<ClusterKey>,
    life: Life,
    report: Reporter,
}

impl Local for Newcomer {
    fn hello(&self, lane: Lane) -> Hello {
        let (node, boots, log) = (NodeId(0), BootCount(0), LogNumber::FIRST);
        let (incarnation, speaks) = (self.keeper, self.speaks);
        Hello { cluster: 0, node, incarnation, boots, lane, log, speaks }
    }

    fn key(&self) -> Option<&ClusterKey> {
        self.key.as_ref()
    }

    fn life(&self) -> &Life {
        &self.life
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
        matches!(hello.lane, Lane::Founding | Lane::Join)
    }

    fn oldest(&self) -> Protocol {
        self.speaks.oldest
    }

    fn about(&self) -> About {
        About::default()
    }

    fn meets(&self, _: &Hello, _: Option<About>) -> Result<(), String> {
        Ok(())
    }

    /// This node asks that one, too, and says then why they are apart.
    fn turns_away(&self, _: &Hello, _: SocketAddr, _: &str) {}
}
