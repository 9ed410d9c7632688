//! From the tokens of accounts to what a configuration file would say about them.

use super::state::AccountState;
use super::store::{Accounts, StoredToken};
use super::{Trust, import_permits};
use crate::account_id::named_account_id;
use crate::options::{
    Account, AccountJetStream, AccountLimits, DEFAULT_RESPONSE_THRESHOLD, Export, Import, Latency,
    MsgTrace, ResponseKind, ServiceExport, drop_impossible, is_trace_dest,
};
use nuthatch_protocol::jwt::{self, ExportKind, ResponseType, WeightedMapping, time_issue};
use nuthatch_protocol::transform::{Destination, Mapping, MappingError};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::time::Duration;

/// All of it, in percent.
const WHOLE: u8 = 100;
/// The tier that applies here: streams with one replica.
pub const TIER: &str = "R1";

/// Accounts as they are in force.
#[derive(Default)]
pub(crate) struct Derived {
    /// As a configuration file would say them.
    pub(crate) configured: Vec<Account>,
    /// For their users.
    pub(crate) states: FxHashMap<String, Arc<AccountState>>,
    /// Parts that are not in force, and why.
    pub(crate) problems: Vec<String>,
    /// When the next account or activation begins or ends, in seconds since 1970.
    pub(crate) deadline: Option<i64>,
}

impl Derived {
    fn change_at(&mut self, at: i64, now: i64) {
        if at > now {
            self.deadline = Some(self.deadline.map_or(at, |deadline| deadline.min(at)));
        }
    }
}

/// Why an account is not served.
pub(crate) fn fault(stored: &StoredToken, trust: &Trust) -> Option<String> {
    if !trust.trusts(&stored.claims.data.issuer) {
        return Some(
            "account validation failed: it is not signed by a trusted operator".to_owned(),
        );
    }
    if !stored.issues.is_empty() {
        return Some(format!("validation errors: {}", stored.issues.join("; ")));
    }
    mappings(&stored.claims.nats).err()
}

/// Turns tokens into accounts. `bootstrap`: the system account, if its own key may sign users while
/// its token is not there yet.
pub(crate) fn derive(
    accounts: &Accounts,
    trust: &Trust,
    bootstrap: Option<&str>,
    now: i64,
) -> Derived {
    let mut derived = Derived::default();
    let mut served: Vec<&Arc<StoredToken>> = Vec::new();
    let mut ids = FxHashMap::default();
    for stored in accounts.values() {
        let data = &stored.claims.data;
        if let Some(fault) = fault(stored, trust) {
            derived.problems.push(format!("account {} is not served: {fault}", stored.key()));
            continue;
        }
        derived.change_at(data.not_before, now);
        derived.change_at(data.expires, now);
        if data.not_before > now {
            let issue = time_issue(data, now).unwrap_or_default();
            derived.problems.push(format!("account {} is not served: {issue}", stored.key()));
            continue;
        }
        if let Some(other) = ids.insert(named_account_id(stored.key()), stored.key()) {
            derived.problems.push(collision(stored.key(), other));
            continue;
        }
        let strict = trust.strict.contains(&data.issuer);
        let state = AccountState::new(stored, strict, now);
        derived.states.insert(stored.key().to_owned(), Arc::new(state));
        derived.configured.push(account(stored));
        served.push(stored);
    }
    if let Some(name) = bootstrap.filter(|name| !accounts.contains_key(*name)) {
        derived.states.insert(name.to_owned(), Arc::new(AccountState::bootstrap(name)));
    }
    import_permits::settle(&served, &mut derived, now);
    let problems = drop_impossible(&mut derived.configured);
    derived.problems.extend(problems.iter().map(ToString::to_string));
    derived
}

/// Error about two accounts with one identity.
pub(crate) fn collision(one: &str, other: &str) -> String {
    format!(
        "account {one} is not served: it cannot be told apart from {other} by the identity that \
         streams carry"
    )
}

fn account(stored: &StoredToken) -> Account {
    let (key, said) = (stored.key(), &stored.claims.nats);
    let mut account = Account::empty(key);
    account.limits = AccountLimits {
        max_connections: count(said.limits.conn),
        max_subscriptions: count(said.limits.subs),
        max_leafnodes: count(said.limits.leaf),
        max_payload_bytes: bytes(said.limits.payload)
            .map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
    };
    account.jetstream = jetstream(&said.limits);
    account.mappings = mappings(said).unwrap_or_default();
    account.exports = said.exports.iter().map(export).collect();
    account.imports = said.imports.iter().map(import).collect();
    account.msg_trace = said.trace.as_ref().and_then(msg_trace);
    account
}

/// Without a subject that traces can be published on there are none.
fn msg_trace(said: &jwt::MsgTrace) -> Option<MsgTrace> {
    let sampling = u8::try_from(said.sampling).ok().filter(|share| (1..=WHOLE).contains(share));
    let dest = said.dest.clone();
    is_trace_dest(&dest).then(|| MsgTrace { dest, sampling: sampling.unwrap_or(WHOLE) })
}

/// A count of which negative values mean no limit.
fn count(value: i64) -> Option<u32> {
    bytes(value).map(|value| u32::try_from(value).unwrap_or(u32::MAX))
}

fn bytes(value: i64) -> Option<u64> {
    u64::try_from(value).ok()
}

/// The same, where 0 is no limit either.
fn positive(value: i64) -> Option<u64> {
    bytes(value).filter(|value| *value > 0)
}

fn jetstream(limits: &jwt::Limits) -> Option<AccountJetStream> {
    let tier = if limits.tiered_limits.is_empty() {
        &limits.jetstream
    } else {
        limits.tiered_limits.get(TIER)?
    };
    if tier.mem_storage == 0 && tier.disk_storage == 0 {
        return None;
    }
    let tiers = limits.tiered_limits.iter().map(|(name, tier)| (name.clone(), tier_limits(tier)));
    Some(AccountJetStream { tiers: tiers.collect(), ..tier_limits(tier) })
}

fn tier_limits(tier: &jwt::JetStreamLimits) -> AccountJetStream {
    let few = |value| positive(value).map(|value| u32::try_from(value).unwrap_or(u32::MAX));
    AccountJetStream {
        tiers: Vec::new(),
        max_memory_bytes: bytes(tier.mem_storage),
        max_store_bytes: bytes(tier.disk_storage),
        max_streams: few(tier.streams),
        max_consumers: few(tier.consumer),
        max_ack_pending: few(tier.max_ack_pending),
        memory_max_stream_bytes: positive(tier.mem_max_stream_bytes),
        store_max_stream_bytes: positive(tier.disk_max_stream_bytes),
        max_bytes_required: tier.max_bytes_required,
    }
}

fn mappings(said: &jwt::Account) -> Result<Vec<Mapping>, String> {
    let mapping = |(source, destinations): (&String, &Vec<WeightedMapping>)| {
        let destinations: Vec<Destination> = destinations.iter().map(destination).collect();
        Mapping::new(source, &destinations, "")
            .map_err(|error: MappingError| format!("mapping {source:?}: {error}"))
    };
    said.mappings.iter().map(mapping).collect()
}

fn destination(said: &WeightedMapping) -> Destination {
    let weight = if said.weight == 0 { WHOLE } else { said.weight };
    Destination { subject: said.subject.clone(), weight, cluster: said.cluster.clone() }
}

/// An export; who may import one that asks for activations is found later.
fn export(said: &jwt::Export) -> Export {
    let is_service = said.kind == Some(ExportKind::Service);
    Export {
        subject: said.subject.clone(),
        accounts: said.token_req.then(Vec::new),
        account_token_position: said.account_token_position,
        service: is_service.then(|| service(said)),
    }
}

fn service(said: &jwt::Export) -> ServiceExport {
    let threshold = positive(said.response_threshold).map(Duration::from_nanos);
    ServiceExport {
        response: match said.response_type.unwrap_or_default() {
            ResponseType::Singleton => ResponseKind::Single,
            ResponseType::Stream => ResponseKind::Stream,
            ResponseType::Chunked => ResponseKind::Chunked,
        },
        threshold: threshold.unwrap_or(DEFAULT_RESPONSE_THRESHOLD),
        latency: said.service_latency.as_ref().map(|latency| Latency {
            sampling: u8::try_from(latency.sampling).unwrap_or(WHOLE),
            subject: latency.results.clone(),
        }),
        allow_trace: said.allow_trace,
    }
}

fn import(said: &jwt::Import) -> Import {
    Import {
        account: said.account.clone(),
        subject: said.there().to_owned(),
        to: said.here(),
        share: said.share,
        is_service: said.kind == Some(ExportKind::Service),
        allow_trace: said.allow_trace,
    }
}

#[cfg(test)]
mod tests {
    use super::{MsgTrace, jwt, msg_trace};

    #[test]
    fn where_a_token_wants_messages_traced() {
        let of =
            |dest: &str, sampling| msg_trace(&jwt::MsgTrace { dest: dest.to_owned(), sampling });
        let to = |sampling| Some(MsgTrace { dest: "a.b".to_owned(), sampling });
        assert_eq!([of("a.b", 0), of("a.b", 25), of("a.b", 300)], [to(100), to(25), to(100)]);
        assert_eq!([of("", 10), of("a.*", 10)], [None, None]);
    }
}
