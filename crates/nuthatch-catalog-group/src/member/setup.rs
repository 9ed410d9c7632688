//! How a member sets up the library, and what its snapshots hold.

use crate::catalog_codec::{catalog, put_catalog};
use crate::coding::{Malformed, Reader, Writer};
use crate::founding::Founding;
use crate::log_catalog::LogCatalog;
use crate::roster::{Roster, rank};
use crate::types::{LogCount, LogNumber, MemberId};
use nuthatch_quorum::types::{Member as KeeperOf, NodeId};
use raft::eraftpb::{ConfState, Snapshot};
use raft::{Config, ReadOnlyOption};

/// Ticks between two beats of the leader.
const BEAT_TICKS: usize = 2;

/// Ticks without a leader after which the first node campaigns; each further one waits for [`RANK_TICKS`] more. The
/// library draws from a range of one, so there is no chance in it and there are no ties.
const ELECTION_TICKS: usize = 10;
pub const RANK_TICKS: usize = 3;

/// Bytes of entries in one message.
const MESSAGE_BYTES: u64 = 1 << 20;

/// Messages with entries that are on their way to a member at a time.
const INFLIGHT_MAX: usize = 64;

/// Ticks without a leader after which a node campaigns.
pub fn election_ticks(node: NodeId) -> usize {
    ELECTION_TICKS + RANK_TICKS * usize::from(rank(node))
}

/// How the library is set up.
pub fn config(member: MemberId, node: NodeId, applied: u64) -> Config {
    let election_tick = election_ticks(node);
    Config {
        id: member.0,
        election_tick: ELECTION_TICKS,
        heartbeat_tick: BEAT_TICKS,
        min_election_tick: election_tick,
        max_election_tick: election_tick + 1,
        applied,
        max_size_per_msg: MESSAGE_BYTES,
        max_inflight_msgs: INFLIGHT_MAX,
        check_quorum: true,
        pre_vote: true,
        read_only_option: ReadOnlyOption::Safe,
        ..Config::default()
    }
}

/// What a log begins with.
pub fn founded(founding: &Founding) -> Snapshot {
    let keeper =
        |founder: &crate::Founder| KeeperOf { node: founder.id, incarnation: founder.node.keeper };
    let founders = &founding.founders;
    let disks: Vec<KeeperOf> = founders.iter().map(keeper).collect();
    let catalogs: Vec<LogCatalog> =
        founding.logs.numbers().map(|log| LogCatalog::founded(log, &disks)).collect();
    let data = encode_state(&catalogs, &founding.roster()).into();
    let mut snapshot = Snapshot { data, ..Snapshot::default() };
    let voters = founders.iter().map(|founder| founder.node.member.0).collect();
    snapshot.mut_metadata().set_conf_state(ConfState { voters, ..ConfState::default() });
    snapshot
}

/// True if a member is one of those that a snapshot names: the library of any other one takes no notice of it.
pub fn names(snapshot: &Snapshot, member: u64) -> bool {
    let conf = snapshot.get_metadata().get_conf_state();
    [&conf.voters, &conf.voters_outgoing, &conf.learners].iter().any(|some| some.contains(&member))
}

/// Behind the catalogs: who the nodes are, where that is not as it was founded. No catalog begins so.
const ROSTER_FOLLOWS: u64 = u64::MAX;

/// The catalog of the first log, the members, the catalogs of the other logs, where there are some, and the roster once
/// it was changed.
pub fn encode_state(catalogs: &[LogCatalog], roster: &Roster) -> Vec<u8> {
    let (first, others) = catalogs.split_first().expect("there is a first log");
    let mut to = Writer::default();
    put_catalog(&mut to, first.catalog());
    let members: Vec<_> = roster.members().into_iter().collect();
    to.all(&members, |to, (node, member)| {
        to.u8(node.0);
        to.u64(member.0);
    });
    others.iter().for_each(|other| put_catalog(&mut to, other.catalog()));
    if roster.changes > 0 {
        to.u64(ROSTER_FOLLOWS);
        roster.put(&mut to);
    }
    to.0
}

/// What a snapshot holds, of a cluster that was founded so.
pub fn state(
    snapshot: &Snapshot,
    founding: &Founding,
) -> Result<(Vec<LogCatalog>, Roster), Malformed> {
    let mut from = Reader(&snapshot.data);
    let mut catalogs = vec![LogCatalog::restored(LogNumber::FIRST, catalog(&mut from)?)];
    let member = |from: &mut Reader<'_>| Ok((NodeId(from.u8()?), MemberId(from.u64()?)));
    let members = from.all(member)?;
    let mut roster = founding.roster();
    for (node, member) in members {
        if let Some(enrolled) = roster.nodes.get_mut(&node) {
            enrolled.member = member;
        }
    }
    for log in LogCount::MOST.numbers().skip(1) {
        if !from.0.is_empty() && !roster_follows(&from) {
            catalogs.push(LogCatalog::restored(log, catalog(&mut from)?));
        }
    }
    if roster_follows(&from) {
        from.u64()?;
        roster = Roster::read(&mut from)?;
    }
    from.end()?;
    Ok((catalogs, roster))
}

fn roster_follows(from: &Reader<'_>) -> bool {
    from.clone().u64() == Ok(ROSTER_FOLLOWS)
}
