//! The built-in catalog in a node: the member of the group on a thread and a disk directory of its own, its
//! connections, and how a node finds the cluster that it belongs to.

mod belonging;
mod connections;
mod driver;
mod joining;

pub use self::belonging::{Belonging, belong};
use self::connections::Connections;
use self::driver::Driver;
use self::joining::{JoinAnswer, JoinRequest};
use crate::catalog::{CatalogError, Seen};
use crate::change_nodes::{ChangeError, ChangeNodes};
use crate::config::ClusterConfig;
use crate::group_port::GroupPort;
use crate::life::Life;
use crate::links::Local;
use crate::roll::Roll;
use crate::start_error::removed_text;
use nuthatch_catalog_group::founding::{Answer, Named};
use nuthatch_catalog_group::{
    Change, Envelope, Founding, Limits, LogNumber, Member, MemberId, TICK, identity,
};
use nuthatch_log::Reporter;
use nuthatch_log::env::{Disk, Entropy as _, SystemEntropy};
use nuthatch_quorum::catalog::{Call, CatalogReply};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

/// What `--catalog` says for a catalog that the nodes keep themselves.
pub const BUILT_IN: &str = crate::config::BUILT_IN;

/// Things that wait for the member at a time; what other members say beyond that is lost.
const INPUTS_MAX: usize = 1024;

/// How long an answer is waited for: longer than a member goes on with a call.
const ANSWER_WITHIN: Duration = Duration::from_secs(4);

/// Takes the answer to a call; none: nobody knows what became of it.
type Answering = SyncSender<Option<CatalogReply>>;

/// What is handed to the member's thread.
enum Input {
    Packet(Box<Envelope>),
    Met(MemberId),
    Lost(MemberId),
    Call(LogNumber, Call, Answering),
    Change(Change, Deciding),
}

/// What becomes of a change of the nodes; none: nobody knows. Else why it is refused, if it is.
type Deciding = SyncSender<Option<Option<String>>>;

/// The way to the member, for the node's port.
pub struct Door {
    founding: Founding,
    named: Named,
    roll: Arc<Roll>,
    inputs: SyncSender<Input>,
    connections: Arc<Connections>,
    disk: Arc<dyn Disk>,
    report: Reporter,
    /// Another member has said something since that was asked last.
    heard: AtomicBool,
}

impl Door {
    /// The member's identity.
    #[must_use]
    pub fn me(&self) -> MemberId {
        self.named.member
    }

    /// Begins to connect to the other nodes.
    ///
    /// # Errors
    /// The operating system has no thread to give.
    pub fn connect(&self, local: &Arc<dyn Local>) -> io::Result<()> {
        self.connections.start(local, &self.inputs)
    }

    /// Connects to these addresses from now on, and to no others.
    ///
    /// # Errors
    /// The operating system has no thread to give.
    pub fn aim(&self, addresses: &[SocketAddr]) -> io::Result<()> {
        self.connections.aim(addresses)
    }

    /// Asks the nodes at these addresses whether this one was removed, and ends it then. Nobody connects to a node that was:
    /// it would hear nothing otherwise.
    ///
    /// # Errors
    /// The disk's.
    pub fn ask_if_removed(
        &self,
        addresses: &[SocketAddr],
        local: &Arc<dyn Local>,
    ) -> io::Result<()> {
        let of_us = |answer: &Answer| {
            let founding = answer.founding.as_ref()?;
            let roster =
                answer.roster.as_ref().filter(|_| founding.cluster == self.founding.cluster)?;
            roster.gone(&self.named.name).cloned()
        };
        let answers = belonging::ask_all(addresses, local, &|_| true);
        match answers.iter().flatten().find_map(of_us) {
            Some(gone) => self.was_removed(gone.by.as_deref()),
            None => Ok(()),
        }
    }

    /// True if another member has said something since this was asked last.
    pub fn has_heard(&self) -> bool {
        self.heard.swap(false, Ordering::Relaxed)
    }

    /// Has the nodes at these addresses told where this one listens. A node that came back elsewhere hears no leader,
    /// since nobody connects to where it is, and changes nothing by itself.
    pub fn say_where(&self, listen: SocketAddr, addresses: &[SocketAddr], local: &dyn Local) {
        let (name, member) = (self.named.name.clone(), self.named.member);
        let request = JoinRequest { name, member, listen };
        let told = |address: &SocketAddr| {
            matches!(belonging::join(*address, &request, local), Ok(JoinAnswer::Joined(_)))
        };
        // Where nobody has taken it, it is said again.
        let _ = addresses.iter().any(told);
    }

    /// What a node asks for: to join, or where it is one already, to be found where it is now.
    fn asked_for(&self, request: &JoinRequest, from: IpAddr) -> Change {
        let join = request.change(from);
        let Change::Join { name, member, address } = &join else { unreachable!("it asks to join") };
        let roster = self.roll.roster();
        let mut same = roster.nodes.iter().filter(|(_, one)| one.name == *name);
        match (same.next(), *address) {
            (Some((node, one)), Some(address)) if one.member == *member => {
                Change::Address { node: *node, address }
            }
            _ => join,
        }
    }

    fn was_removed(&self, by: Option<&str>) -> io::Result<()> {
        was_removed((&*self.disk, &self.named.name), by, &self.report, &self.roll)
    }

    /// What the cluster was founded with.
    #[must_use]
    pub fn founding(&self) -> &Founding {
        &self.founding
    }
}

impl ChangeNodes for Door {
    fn change(&self, change: Change) -> Result<(), ChangeError> {
        let (deciding, decided) = sync_channel(1);
        let input = Input::Change(change, deciding);
        self.inputs.try_send(input).map_err(|_| ChangeError::Busy)?;
        match decided.recv_timeout(ANSWER_WITHIN).ok().flatten() {
            None => Err(ChangeError::NoMajority),
            Some(None) => Ok(()),
            Some(Some(why)) => Err(ChangeError::Refused(why)),
        }
    }

    /// Whoever leads tells all.
    fn refresh(&self) {}

    fn is_led(&self) -> bool {
        true
    }
}

impl GroupPort for Door {
    fn answer(&self) -> Vec<u8> {
        let (node, founding) = (self.named.clone(), Some(self.founding.clone()));
        let roster = Some(self.roll.roster()).filter(|roster| roster.changes > 0);
        Answer { node, founding, roster }.encode()
    }

    fn let_join(&self, asked: &[u8], from: IpAddr) -> Vec<u8> {
        let answer = match JoinRequest::decode(asked) {
            Err(why) => JoinAnswer::Refused(why.to_string()),
            Ok(request) => match self.change(self.asked_for(&request, from)) {
                Err(ChangeError::Refused(why)) => JoinAnswer::Refused(why),
                Err(why) => JoinAnswer::Later(why.to_string()),
                Ok(()) => {
                    let roster = self.roll.roster();
                    match roster.number(&request.name) {
                        Some(_) => JoinAnswer::Joined(roster),
                        None => {
                            JoinAnswer::Later("the node that was asked knows it soon".to_owned())
                        }
                    }
                }
            },
        };
        answer.encode()
    }

    fn deliver(&self, envelope: Envelope) {
        self.heard.store(true, Ordering::Relaxed);
        // What does not fit is as good as lost on the way.
        let _ = self.inputs.try_send(Input::Packet(Box::new(envelope)));
    }

    fn hung_up(&self, member: MemberId) {
        self.connections.doubt(member);
    }
}

/// Notes that a node was removed, and says so.
fn was_removed(
    (disk, name): (&dyn Disk, &str),
    by: Option<&str>,
    report: &Reporter,
    roll: &Roll,
) -> io::Result<()> {
    identity::note_removed(disk, by)?;
    let text = removed_text(name, by, &disk.label());
    report.say(&text);
    roll.remove_me(&text);
    Ok(())
}

/// The catalog of a log as its node asks it.
pub struct GroupCatalog {
    inputs: SyncSender<Input>,
    log: LogNumber,
    seen: Seen,
}

impl GroupCatalog {
    /// The catalog of a log. The log's `disk` remembers how far it was seen.
    ///
    /// # Errors
    /// [`CatalogError`]: the disk's.
    pub fn open(door: &Door, log: LogNumber, disk: &dyn Disk) -> Result<Self, CatalogError> {
        let seen = Seen::open(door.founding.cluster, disk)?;
        Ok(Self { inputs: door.inputs.clone(), log, seen })
    }

    /// Answers one call.
    ///
    /// # Errors
    /// [`CatalogError`]: whether a transaction was or will be applied is unknown; proposed again under the same
    /// name it is applied once.
    pub fn call(&mut self, call: &Call, disk: &dyn Disk) -> Result<CatalogReply, CatalogError> {
        let (answering, answered) = sync_channel(1);
        let unanswered = || CatalogError::NoMajority;
        let input = Input::Call(self.log, call.clone(), answering);
        self.inputs.try_send(input).map_err(|_| unanswered())?;
        let reply = answered.recv_timeout(ANSWER_WITHIN).ok().flatten().ok_or_else(unanswered)?;
        self.seen.note(reply.snapshot.revision, disk)?;
        Ok(reply)
    }
}

/// Where the numbers of calls begin. An answer names the number and not the life of the node that asked: with numbers that
/// began at the same place each time it could be taken for the answer to a call of the next life.
fn first_number() -> u64 {
    SystemEntropy::default().next() >> 1
}

/// Starts the member of a node that belongs to a cluster, and notes in the roll who the nodes are from then on.
///
/// # Errors
/// [`CatalogError`]: the disk's.
pub(crate) fn start(
    config: &ClusterConfig,
    Belonging { founding, roster, number, me: named }: Belonging,
    roll: &Arc<Roll>,
    (disk, life): (&Arc<dyn Disk>, &Life),
    report: &Reporter,
) -> Result<Arc<Door>, CatalogError> {
    let ticks = |after: Duration| after.as_micros().div_ceil(u128::from(TICK));
    let ticks = |after| u64::try_from(ticks(after)).unwrap_or(u64::MAX / 2);
    let limits =
        Limits { replace_after_ticks: config.replace_after.map(ticks), ..Limits::default() };
    let open = {
        let (disk, founding) = (Arc::clone(disk), founding.clone());
        move || {
            let nonce = SystemEntropy::default().next();
            Member::open(Arc::clone(&disk), founding.clone(), number, nonce, limits)
        }
    };
    let member = open()?;
    if let Some(roster) = driver::settled(&member) {
        roll.note(roster);
    }
    let (inputs, taken) = sync_channel(INPUTS_MAX);
    let connections = Connections::new(&roll.addresses());
    let ending = Arc::clone(&connections);
    life.at_end(move || ending.end());
    let driver = Driver {
        life: life.clone(),
        inputs: taken,
        connections: Arc::clone(&connections),
        roll: Arc::clone(roll),
        name: named.name.clone(),
        number,
        newest: config.protocol_max,
        noted: roster.changes,
        disk: Arc::clone(disk),
        report: report.clone(),
        answering: BTreeMap::new(),
        deciding: BTreeMap::new(),
        numbered: first_number(),
        told: (false, false),
    };
    life.spawn("node-group", move || driver.run(member, open))?;
    Ok(Arc::new(Door {
        founding,
        named,
        roll: Arc::clone(roll),
        inputs,
        connections,
        disk: Arc::clone(disk),
        report: report.clone(),
        heard: AtomicBool::new(false),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_calls_of_two_lives_do_not_meet() {
        let (one, other) = (first_number(), first_number());
        assert!(one.abs_diff(other) > 1 << 32, "{one} {other}");
    }
}
