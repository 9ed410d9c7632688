//! Step-downs of leaders: what is kept on several nodes is a log, so the log of a stream or consumer goes to another node
//! with all that is in it.

use crate::core_port::{CorePort, NotRemoved};
use crate::envelope::{self, ResponseType, Success};
use crate::log_calls::LogCalls;
use crate::log_names::LogNames;
use crate::outcome::{Answer, described};
use crate::placement::{TaggedNode, WantedTags};
use crate::registry::{DEFAULT_LOG, is_quorum_log};
use crate::request::parse_optional;
use crate::stream_table::StreamTable;
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::account_id::SYSTEM_ACCOUNT_ID;
use nuthatch_server::nodes::peer_id;
use nuthatch_streams::{AccountId, Op};
use serde::Deserialize;
use std::sync::Arc;

#[derive(Deserialize, Default)]
#[serde(default)]
struct StepDownRequest {
    placement: Preference,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Preference {
    /// Name of the node that is to lead.
    preferred: String,
    /// Name of its cluster.
    cluster: String,
    /// Tags that it has, as those of a stream's placement.
    tags: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RemoveRequest {
    /// Name of the node that is to go.
    peer: String,
    /// Its id, which is made of the name; it counts where both are given.
    peer_id: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PeerRequest {
    /// Name or id of a node.
    peer: String,
}

fn no_peers(why: &str) -> JsError {
    JsError::CLUSTER_NO_PEERS.with_err(format!("no suitable peers for placement: {why}"))
}

/// Hands logs over to other nodes.
pub(super) struct StepDowns {
    /// Unknown JSON fields are errors.
    pub(super) strict: bool,
    pub(super) core: Arc<dyn CorePort>,
    pub(super) names: Arc<LogNames>,
    pub(super) streams: Arc<StreamTable>,
    pub(super) calls: Arc<LogCalls>,
}

impl StepDowns {
    /// `STREAM.LEADER.STEPDOWN`
    pub(super) async fn of_stream(&self, account: AccountId, name: &str, body: &[u8]) -> Answer {
        let to = self.preferred(body)?;
        let entry = self.streams.entry(account, name)?;
        self.hand_over(&self.names.name_of(entry.engine), to).await?;
        Ok(envelope::ok(ResponseType("stream_leader_stepdown"), &Success::YES))
    }

    /// `CONSUMER.LEADER.STEPDOWN`
    pub(super) async fn of_consumer(
        &self,
        account: AccountId,
        (stream, name): (&str, &str),
        body: &[u8],
    ) -> Answer {
        let to = self.preferred(body)?;
        let entry = self.streams.entry(account, stream)?;
        let op = Op::ConsumerInfo { id: entry.id, name: name.to_owned() };
        self.calls.run(entry.engine, op).await?;
        self.hand_over(&self.names.name_of(entry.engine), to).await?;
        Ok(envelope::ok(ResponseType("consumer_leader_stepdown"), &Success::YES))
    }

    /// `META.LEADER.STEPDOWN`: the leader is the owner of the first quorum log.
    pub(super) async fn of_leader(&self, body: &[u8]) -> Answer {
        let to = self.preferred(body)?;
        self.hand_over(DEFAULT_LOG, to).await?;
        Ok(envelope::ok(ResponseType("meta_leader_stepdown"), &Success::YES))
    }

    /// `SERVER.REMOVE`: a spare takes the place of the node.
    pub(super) async fn remove_server(&self, body: &[u8]) -> Answer {
        let RemoveRequest { peer, peer_id } = parse_optional(body, self.strict)?;
        let removing = self.core.remove_node(&peer, &peer_id).ok_or(JsError::CLUSTER_REQUIRED)?;
        match removing.await {
            Ok(Ok(())) => Ok(envelope::ok(ResponseType("meta_server_remove"), &Success::YES)),
            Ok(Err(NotRemoved::NoMember(why))) => {
                Err(described(JsError::CLUSTER_SERVER_NOT_MEMBER, why))
            }
            Ok(Err(NotRemoved::Busy(why))) => {
                Err(described(JsError::CLUSTER_SERVER_MEMBER_CHANGE_INFLIGHT, why))
            }
            Ok(Err(NotRemoved::Refused(why))) => Err(described(JsError::CLUSTER_NOT_AVAIL, why)),
            Err(_) => Err(JsError::CLUSTER_NOT_AVAIL),
        }
    }

    /// `STREAM.PEER.REMOVE`: a log is on all nodes that keep logs, and goes from one only with all others, as that node is
    /// replaced.
    pub(super) fn remove_peer(&self, account: AccountId, name: &str, body: &[u8]) -> Answer {
        let Some(cluster) = self.core.cluster() else { return Err(JsError::CLUSTER_REQUIRED) };
        let PeerRequest { peer } = parse_optional(body, self.strict)?;
        if peer.is_empty() {
            return Err(JsError::BAD_REQUEST);
        }
        let log = self.names.name_of(self.streams.entry(account, name)?.engine);
        let keepers = self.core.keepers(&log).unwrap_or_default();
        let own = self.core.server_name();
        let mut members = keepers.iter().map(|node| node.name.as_str()).chain([own]);
        let is_meant = |name: &&str| *name == peer || peer_id(name) == peer;
        let peer = members.find(is_meant).ok_or(JsError::CLUSTER_PEER_NOT_MEMBER)?;
        let why = format!(
            "peer remap failed: the stream's log is on all {} nodes that keep logs; another node takes the place of {peer} \
             in all of them by `nuthatch cluster replace {peer}`",
            cluster.size
        );
        Err(described(JsError::PEER_REMAP, why))
    }

    /// The node that a request prefers; `None`: any.
    fn preferred(&self, body: &[u8]) -> Result<Option<String>, JsError> {
        let Some(cluster) = self.core.cluster() else { return Err(JsError::CLUSTER_REQUIRED) };
        let request: StepDownRequest = parse_optional(body, self.strict)?;
        let Preference { preferred, cluster: asked, tags } = request.placement;
        if !asked.is_empty() && asked != cluster.name {
            return Err(no_peers(&format!(
                "there is no cluster {asked:?}, this is {:?}",
                cluster.name
            )));
        }
        if !preferred.is_empty() && !cluster.others.contains(&preferred) {
            return Err(no_peers(&format!("there is no other node {preferred:?}")));
        }
        if tags.is_empty() {
            return Ok(Some(preferred).filter(|name| !name.is_empty()));
        }
        let wanted = WantedTags::of_tags(&tags);
        let served = self.core.served(SYSTEM_ACCOUNT_ID);
        let nodes = served.map_or_else(Vec::new, |served| served.nodes()).into_iter();
        let nodes: Vec<_> = nodes
            .map(|(name, state, _)| TaggedNode { name, tags: state.tags })
            .filter(|node| preferred.is_empty() || node.name == preferred)
            .collect();
        match nodes.iter().find(|node| wanted.admits(node)) {
            Some(node) => Ok(Some(node.name.clone())),
            None => Err(wanted.refusal(&nodes, None)),
        }
    }

    async fn hand_over(&self, log: &str, to: Option<String>) -> Result<(), JsError> {
        if !is_quorum_log(log) {
            return Err(no_peers(&format!("log '{log}' is on one node")));
        }
        let handed = self.core.step_down(log, to);
        let failed = |why: &str| Err(described(JsError::CLUSTER_NOT_AVAIL, why.to_owned()));
        let Some(handed) = handed else {
            return failed("too many ask for this log to be handed over: try again later");
        };
        match handed.await {
            Ok(true) => Ok(()),
            Ok(false) => failed("no node that is wanted has all of the log: it stays here"),
            Err(_) => failed("the log is another node's already"),
        }
    }
}
