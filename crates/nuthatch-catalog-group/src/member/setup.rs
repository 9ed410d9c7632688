//! How a member sets up the library, and what its snapshots hold.

use crate::catalog_codec::{catalog, put_catalog};
use crate::coding::{Malformed, Reader, Writer};
use crate::founding::Founding;
use crate::log_catalog::LogCatalog;
use crate::types::{LogCount, LogNumber, MemberId};
use nuthatch_quorum::types::{Member as KeeperOf, NodeId};
use raft::eraftpb::{ConfChangeSingle, ConfChangeType, ConfChangeV2, ConfState, Snapshot};
use raft::{Config, ReadOnlyOption};
use std::collections::BTreeMap;

/// Ticks between two beats of the leader.
const BEAT_TICKS: usize = 2;

/// Ticks without a leader after which the first node campaigns; each further one waits for [`RANK_TICKS`] more. The
/// library draws from a range of one, so there is no chance in it and there are no ties.
const ELECTION_TICKS: usize = 10;
const RANK_TICKS: usize = 3;

/// Bytes of entries in one message.
const MESSAGE_BYTES: u64 = 1 << 20;

/// Messages with entries that are on their way to a member at a time.
const INFLIGHT_MAX: usize = 64;

/// How the library is set up.
pub fn config(member: MemberId, node: NodeId, applied: u64) -> Config {
    let election_tick = ELECTION_TICKS + RANK_TICKS * usize::from(node.0.saturating_sub(1));
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

/// The change by which one disk takes the place of another: majorities of before and after decide it.
pub fn replacement(new: MemberId, former: MemberId) -> ConfChangeV2 {
    let single = |id: MemberId, change_type| ConfChangeSingle {
        node_id: id.0,
        change_type,
        ..ConfChangeSingle::default()
    };
    let mut change = ConfChangeV2::default();
    let changes =
        vec![single(new, ConfChangeType::AddNode), single(former, ConfChangeType::RemoveNode)];
    change.set_changes(changes.into());
    change
}

/// What a log begins with.
pub fn founded(founding: &Founding) -> Snapshot {
    let keeper =
        |founder: &crate::Founder| KeeperOf { node: founder.id, incarnation: founder.node.keeper };
    let founders = &founding.founders;
    let disks: Vec<KeeperOf> = founders.iter().map(keeper).collect();
    let catalogs: Vec<LogCatalog> =
        founding.logs.numbers().map(|log| LogCatalog::founded(log, &disks)).collect();
    let members = founders.iter().map(|founder| (founder.id, founder.node.member)).collect();
    let data = encode_state(&catalogs, &members).into();
    let mut snapshot = Snapshot { data, ..Snapshot::default() };
    let voters = founders.iter().map(|founder| founder.node.member.0).collect();
    snapshot.mut_metadata().set_conf_state(ConfState { voters, ..ConfState::default() });
    snapshot
}

/// The catalog of the first log, the members, and the catalogs of the other logs, where there are some.
pub fn encode_state(catalogs: &[LogCatalog], members: &BTreeMap<NodeId, MemberId>) -> Vec<u8> {
    let (first, others) = catalogs.split_first().expect("there is a first log");
    let mut to = Writer::default();
    put_catalog(&mut to, first.catalog());
    let members: Vec<_> = members.iter().collect();
    to.all(&members, |to, (node, member)| {
        to.u8(node.0);
        to.u64(member.0);
    });
    others.iter().for_each(|other| put_catalog(&mut to, other.catalog()));
    to.0
}

/// What a snapshot holds.
pub fn state(
    snapshot: &Snapshot,
) -> Result<(Vec<LogCatalog>, BTreeMap<NodeId, MemberId>), Malformed> {
    let mut from = Reader(&snapshot.data);
    let mut catalogs = vec![LogCatalog::restored(LogNumber::FIRST, catalog(&mut from)?)];
    let member = |from: &mut Reader<'_>| Ok((NodeId(from.u8()?), MemberId(from.u64()?)));
    let members = from.all(member)?.into_iter().collect();
    for log in LogCount::MAX.numbers().skip(1) {
        if !from.0.is_empty() {
            catalogs.push(LogCatalog::restored(log, catalog(&mut from)?));
        }
    }
    from.end()?;
    Ok((catalogs, members))
}
