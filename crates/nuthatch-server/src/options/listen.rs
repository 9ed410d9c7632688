//! Where listeners are that were given no address.
//!
//! Whoever reaches a server without users owns it, so under our own name such a server listens on the
//! loopback interface unless it was told an address. Monitoring asks nobody who he is: it follows the
//! address that was given for clients, and stays on the loopback interface without one.

use std::net::IpAddr;

use super::{DEFAULT_HOST, Invocation, LOOPBACK_HOST, Options};

/// Gives every listener its address. `host` and `monitor_host` are those that were configured.
pub(super) fn fill_in(
    options: &mut Options,
    host: Option<String>,
    monitor_host: Option<String>,
    invocation: Invocation,
    old: Option<&Options>,
) {
    let is_open = options.lets_everybody_in();
    let fallback = match (invocation, old) {
        (_, Some(old)) => &*old.default_host,
        (Invocation::Nuthatch, None) if is_open => LOOPBACK_HOST,
        _ => DEFAULT_HOST,
    };
    let shared = match invocation {
        Invocation::Nuthatch => host.clone(),
        Invocation::NatsServer => None,
    };
    fallback.clone_into(&mut options.default_host);
    let of_monitor = match invocation {
        Invocation::Nuthatch => host.clone().unwrap_or_else(|| LOOPBACK_HOST.to_owned()),
        Invocation::NatsServer => host.clone().unwrap_or_else(|| DEFAULT_HOST.to_owned()),
    };
    options.monitor.host = monitor_host.unwrap_or(of_monitor);
    let other = shared.unwrap_or_else(|| fallback.to_owned());
    options.host = host.clone().unwrap_or_else(|| fallback.to_owned());
    if let Some(own) = options.websocket.as_mut().filter(|own| own.host.is_empty()) {
        let kept = old.and_then(|old| old.websocket.as_ref()).map(|old| old.host.clone());
        own.host = kept.unwrap_or_else(|| other.clone());
    }
    if let Some(own) = options.leafnodes.as_mut().filter(|own| own.host.is_empty()) {
        let kept = old.and_then(|old| old.leafnodes.as_ref()).map(|old| old.host.clone());
        let has_users = own.auth.is_configured() && host.is_none();
        let ours = if has_users { DEFAULT_HOST.to_owned() } else { other };
        own.host = kept.unwrap_or(ours);
    }
}

/// True if only this machine reaches a listener there.
pub(super) fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl Options {
    /// True if clients must show who they are.
    #[must_use]
    pub fn has_users(&self) -> bool {
        let in_accounts =
            self.accounts.iter().any(|own| !own.users.is_empty() || !own.nkeys.is_empty());
        self.auth.is_configured() || in_accounts || self.operator.is_some()
    }

    /// True if clients need not show who they are: there are no users, or one of them is everybody
    /// else.
    fn lets_everybody_in(&self) -> bool {
        !self.has_users() || self.auth.no_auth_user.is_some()
    }

    /// Warning about a server that lets everybody in; `None`: none is needed.
    #[must_use]
    pub fn exposure(&self) -> Option<String> {
        if !self.lets_everybody_in() {
            return None;
        }
        let (host, port) = (&self.host, self.port);
        if let Some(user) = self.auth.no_auth_user.as_ref().filter(|_| self.has_users()) {
            let by_default = *host == self.default_host && is_loopback(host);
            return by_default.then(|| {
                format!(
                    "no_auth_user lets everybody in as {user:?}: listening on {host} only; configure \
                     an address (host, -a) to be reached from elsewhere"
                )
            });
        }
        if !is_loopback(host) {
            return Some(format!(
                "no users are configured: whoever reaches {host}:{port} may do everything; configure \
                 users or listen on {LOOPBACK_HOST}"
            ));
        }
        let by_default = *host == self.default_host;
        by_default.then(|| {
            format!(
                "no users are configured: listening on {host} only; configure users, or an address \
                 (host, -a), to be reached from elsewhere"
            )
        })
    }

    /// Why a reload may not make these the options of a server that runs with `old` ones: it would
    /// stay open to everybody where it only listens for the sake of its users.
    pub(crate) fn opens_up(&self, old: &Self) -> Option<String> {
        let opens =
            !old.lets_everybody_in() && self.lets_everybody_in() && !is_loopback(&self.host);
        let by_default = self.host == self.default_host;
        (opens && by_default).then(|| {
            format!(
                "without users the server would not listen on {}: restart it, or configure that \
                 address",
                self.host
            )
        })
    }
}

#[cfg(test)]
mod tests;
