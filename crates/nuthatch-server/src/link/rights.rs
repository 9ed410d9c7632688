//! Permissions between two servers: permissions of the user that one logs in as, what the other
//! denies, and JetStream's own subjects, which stay on their side.
//!
//! `$JS.API.>`, `$KV.>` and `$OBJ.>` never cross: each side may have a JetStream of its own. Who
//! means that of the other side says so by its domain (`$JS.<domain>.API.>`). The rules are those of
//! nats-server 2.15.2 (`addLeafNodeConnection`).

use crate::identity::Allowed;
use crate::identity::Rights;
use crate::options::{Permissions, SubjectPermission};

/// Subjects of a JetStream that are its own.
const JETSTREAM: &[&str] = &["$JS.API.>", "$KV.>", "$OBJ.>"];
/// Further ones in the system account.
const CLUSTER: &[&str] = &["$JSC.>", "$NRG.>"];

/// Configured permissions, without JetStream's own subjects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeafPermissions {
    /// Subjects that may be sent there.
    pub(crate) outward: SubjectPermission,
    /// Subjects that are taken from there.
    pub(crate) inward: SubjectPermission,
}

/// The two JetStreams.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Domains<'a> {
    /// The domain here; empty: none.
    pub(crate) own: &'a str,
    /// The domain there; empty: none.
    pub(crate) remote: &'a str,
    /// JetStream is on here.
    pub(crate) enabled: bool,
    /// The system accounts are joined.
    pub(crate) system: bool,
}

/// Compiled permissions.
#[derive(Debug, Default)]
pub struct LeafRights {
    /// `publish`: what may be sent; `subscribe`: whose interest may be told.
    rules: Rights,
    /// `publish`: what is taken.
    taken: Rights,
    /// `publish`: what the other side's user may do here, by whatever subject it comes.
    effective: Rights,
}

impl LeafRights {
    pub(crate) fn new(terms: &LeafPermissions, domains: &Domains<'_>, is_spoke: bool) -> Self {
        let mut kept: Vec<String> = JETSTREAM.iter().map(|&text| text.to_owned()).collect();
        if domains.system {
            kept.extend(CLUSTER.iter().map(|&text| text.to_owned()));
        }
        let mut inward = terms.inward.clone();
        inward.deny.extend_from_slice(&kept);
        let mut outward = terms.outward.clone();
        outward.deny.append(&mut kept);
        if domains.enabled && !domains.own.is_empty() && domains.own != domains.remote {
            // What is meant for our own JetStream has no business there.
            outward.deny.push(format!("$JS.{}.API.>", domains.own));
        }
        // A hub takes what the other side's user may publish, also to its own API.
        let taken = if is_spoke { inward.clone() } else { terms.inward.clone() };
        let rights = |publish, subscribe| {
            Rights::new(&Permissions { publish, subscribe, allow_responses: None })
        };
        Self {
            rules: rights(Some(outward), Some(inward)),
            taken: rights(Some(taken), None),
            effective: rights(Some(terms.inward.clone()), None),
        }
    }

    /// True if a message that was taken may take effect on this subject, which mappings have made of
    /// its own or which is its own without the domain's prefix. Who names the domain means the
    /// JetStream here, so that this stays on its side is no reason against it.
    #[must_use]
    pub fn may_take_effect(&self, subject: &[u8]) -> bool {
        self.effective.may_publish(subject)
    }

    /// True if a message may be sent there.
    #[must_use]
    pub fn may_send(&self, subject: &[u8]) -> bool {
        self.rules.may_publish(subject)
    }

    /// True if the other side may hear of a subscription to a pattern here.
    #[must_use]
    pub fn may_announce(&self, pattern: &[u8], queue: Option<&[u8]>) -> bool {
        self.rules.may_subscribe(pattern, queue) != Allowed::No
    }

    /// True if a message is taken from there, apart from answers to what was sent there.
    #[must_use]
    pub fn may_take(&self, subject: &[u8]) -> bool {
        self.taken.may_publish(subject)
    }
}

/// True if a reply subject leads back through servers: that of a delivery, which is acknowledged, or
/// of a request to an imported service.
#[must_use]
pub fn is_internal_reply(subject: &[u8]) -> bool {
    subject.starts_with(b"$JS.ACK.") || subject.starts_with(b"_R_.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(list: &[&str]) -> SubjectPermission {
        let allow = Some(list.iter().map(|&text| text.to_owned()).collect());
        SubjectPermission { allow, deny: Vec::new() }
    }

    #[test]
    fn jetstream_stays_on_its_side_unless_its_domain_is_named() {
        let domains = Domains { own: "hub", remote: "leaf", enabled: true, system: false };
        let hub = LeafRights::new(&LeafPermissions::default(), &domains, false);
        for kept in ["$JS.API.INFO", "$KV.b.k", "$OBJ.b", "$JS.hub.API.INFO"] {
            assert!(!hub.may_send(kept.as_bytes()), "{kept}");
        }
        for sent in ["$JS.leaf.API.INFO", "a", "$JS.ACK.S.C.1.1.1.1.1", "_INBOX.x"] {
            assert!(hub.may_send(sent.as_bytes()), "{sent}");
        }
        assert!(hub.may_announce(b"$JS.hub.API.>", None) && hub.may_announce(b">", None));
        assert!(!hub.may_announce(b"$JS.API.>", None) && !hub.may_announce(b"$KV.b.>", None));
        assert!(hub.may_take(b"$JS.API.INFO"), "a hub trusts its own import");
        let spoke = LeafRights::new(&LeafPermissions::default(), &domains, true);
        assert!(!spoke.may_take(b"$JS.API.INFO") && spoke.may_take(b"$JS.hub.API.INFO"));
        let same = Domains { own: "hub", remote: "hub", ..domains };
        assert!(
            LeafRights::new(&LeafPermissions::default(), &same, false)
                .may_send(b"$JS.hub.API.INFO")
        );
        let system = Domains { system: true, ..domains };
        assert!(!LeafRights::new(&LeafPermissions::default(), &system, false).may_send(b"$NRG.x"));
    }

    #[test]
    fn permissions_hold_in_their_direction() {
        let terms = LeafPermissions { outward: only(&["out.>"]), inward: only(&["in.>"]) };
        let rights = LeafRights::new(&terms, &Domains::default(), false);
        assert!(rights.may_send(b"out.a") && !rights.may_send(b"in.a"));
        assert!(rights.may_take(b"in.a") && !rights.may_take(b"out.a"));
        assert!(rights.may_announce(b"in.*", None) && !rights.may_announce(b"out.a", None));
        assert!(!rights.may_take(b"_R_.x") && !rights.may_take(b"$JS.ACK.S.C.1.1.1.1.1"));
    }
}
