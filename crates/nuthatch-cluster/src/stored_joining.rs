//! Which node of a cluster this is, where the catalog is outside the nodes: one that it knows, or one that joins it.

use crate::catalog::{CatalogError, CatalogStore, Founding};
use crate::catalog_trouble::CatalogTrouble;
use crate::config::ClusterConfig;
use crate::life::Life;
use crate::routes::Routes;
use crate::start_error::StartError;
use crate::stored_roster::StoredRoster;
use crate::stored_steps::not_finalized;
use nuthatch_catalog_group::{Change, MemberId, Protocol, Roster};
use nuthatch_log::Reporter;
use nuthatch_log::env::{Entropy as _, SystemEntropy};
use nuthatch_quorum::types::NodeId;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// Between two attempts where the catalog is away.
const AGAIN: Duration = Duration::from_millis(200);

/// Finds this node among the nodes of its cluster, or joins that as a spare: only a node whose directory is empty does. `dir` is
/// its directory, for people, and whether that is so.
///
/// # Errors
/// [`StartError`].
pub(crate) fn belong(
    config: &ClusterConfig,
    (store, founding): (&Arc<dyn CatalogStore>, &Founding),
    (dir, is_empty): (&str, bool),
    routes: &Routes,
    (life, report): (&Life, &Reporter),
) -> Result<(StoredRoster, NodeId), StartError> {
    let (mut trouble, mut told) = (CatalogTrouble::default(), false);
    loop {
        let opened = StoredRoster::open(Arc::clone(store), founding);
        match opened.and_then(|mut stored| {
            let number = find(config, &mut stored, (dir, is_empty), routes)?;
            Ok(number.map(|number| number.map(|number| (stored, number))))
        }) {
            Ok(found) => {
                trouble.passed(|text| report.say(text));
                match found? {
                    Some(found) => return Ok(found),
                    None if told => {}
                    None => {
                        told = true;
                        report.say(&format!(
                            "this node waits to join the cluster: it listens on all addresses, and where the others are to find \
                             it shows when one of its routes is known ({})",
                            routes.told_not_found()
                        ));
                    }
                }
            }
            Err(error) if error.may_pass() => trouble.met(&error, |text| report.say(text)),
            Err(error) => return Err(error.into()),
        }
        if life.pause(AGAIN) {
            return Err(StartError::Ended);
        }
    }
}

/// This node's number; none: it is not known yet where it is. The outer error is of the catalog, which may pass.
fn find(
    config: &ClusterConfig,
    stored: &mut StoredRoster,
    (dir, is_empty): (&str, bool),
    routes: &Routes,
) -> Result<Result<Option<NodeId>, StartError>, CatalogError> {
    loop {
        let roster = stored.roster();
        if let Some(gone) = roster.gone(&config.name) {
            let (name, by, dir) = (config.name.clone(), gone.by.clone(), dir.to_owned());
            return Ok(Err(StartError::Removed { name, by, dir }));
        }
        let (active, newest) = (roster.active, config.protocol_max);
        if active > newest {
            return Ok(Err(StartError::TooOld { active, newest }));
        }
        let mut others = routes.others();
        others.extend(roster.nodes.values().filter_map(|one| one.address));
        let here = address(config.listen, &others);
        if let Some(number) = roster.number(&config.name) {
            let is_known = here.is_none() || roster.nodes[&number].address == here;
            // One that listens on a certain address says so while it runs; nobody has to before somebody has joined.
            let is_said_later = !config.listen.ip().is_unspecified() || roster.changes == 0;
            if is_known || is_said_later || active < Protocol::ROSTER_IN_STORE {
                return Ok(Ok(Some(number)));
            }
            stored.make(&Change::Address { node: number, address: here.expect("it is known") })?;
            continue;
        }
        if !is_empty {
            return Ok(Err(stranger(config, roster).into()));
        }
        if active < Protocol::ROSTER_IN_STORE {
            return Ok(Err(StartError::Refused { why: not_finalized(active) }));
        }
        if here.is_none() {
            return Ok(Ok(None));
        }
        let join = Change::Join {
            name: config.name.clone(),
            member: MemberId(SystemEntropy::default().next().max(1)),
            address: here,
        };
        if let Err(refusal) = roster.check(&join) {
            return Ok(Err(StartError::Refused { why: refusal.to_string() }));
        }
        // Whoever was faster, what is there is read by then.
        stored.make(&join)?;
    }
}

fn stranger(config: &ClusterConfig, roster: &Roster) -> CatalogError {
    let names: Vec<&str> = roster.nodes.values().map(|one| one.name.as_str()).collect();
    CatalogError::Stranger { name: config.name.clone(), nodes: names.join(", ") }
}

/// Where the others find this node. One that listens on all addresses is where it would connect from to one of them; none:
/// none of them is known.
fn address(listen: SocketAddr, others: &[SocketAddr]) -> Option<SocketAddr> {
    if !listen.ip().is_unspecified() {
        return Some(listen);
    }
    let from = others.iter().find_map(|other| source_of(*other).ok())?;
    Some(SocketAddr::new(from, listen.port()))
}

/// The address from which this machine reaches another one. Nothing is sent.
fn source_of(other: SocketAddr) -> std::io::Result<IpAddr> {
    let any: IpAddr = match other.is_ipv4() {
        true => IpAddr::from([0; 4]),
        false => IpAddr::from([0; 16]),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(other)?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_listens_on_all_addresses_is_where_it_connects_from() {
        let at = |text: &str| text.parse().expect("an address");
        let others: [SocketAddr; 1] = [at("127.0.0.1:7000")];
        assert_eq!(address(at("127.0.0.2:6222"), &others), Some(at("127.0.0.2:6222")));
        assert_eq!(address(at("0.0.0.0:6222"), &others), Some(at("127.0.0.1:6222")));
        assert_eq!(address(at("0.0.0.0:6222"), &[]), None);
    }
}
