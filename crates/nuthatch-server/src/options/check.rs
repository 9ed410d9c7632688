//! Checks options that must go together, wherever they were set.

use std::collections::{HashMap, HashSet};

use super::cluster::BUILT_IN;
use super::error::Conflict;
use super::{
    ClusterSettings, GLOBAL_ACCOUNT, LeafOptions, Options, SYSTEM_ACCOUNT, operator, sharing,
};
use crate::account_id::named_account_id;

pub(super) fn check(options: &Options) -> Result<(), Conflict> {
    limits(options)?;
    monitoring(options)?;
    operator::check(options)?;
    credentials(options)?;
    callout(options)?;
    homes(options)?;
    accounts(options)?;
    options.leafnodes.as_ref().map_or(Ok(()), |leafs| leafnodes(options, leafs))
}

fn leafnodes(options: &Options, leafs: &LeafOptions) -> Result<(), Conflict> {
    let auth = &leafs.auth;
    if !auth.users.is_empty() && (auth.user.is_some() || auth.nkey.is_some()) {
        return Err(Conflict::LeafSingleAndUsers);
    }
    let mut seen = HashSet::new();
    if let Some(twice) = auth.users.iter().find(|user| !seen.insert(&user.name)) {
        return Err(Conflict::LeafUser { name: twice.name.clone() });
    }
    let is_there = |name: &str| {
        // The accounts of an operator come later.
        options.operator.is_some()
            || name == GLOBAL_ACCOUNT
            || name == options.system_account
            || options.accounts.iter().any(|account| account.name == name)
    };
    let users = auth.users.iter().filter_map(|user| user.account.as_ref());
    let named = auth.account.iter().chain(users).map(|name| (name, "authorization"));
    let remotes = leafs.remotes.iter().map(|remote| (&remote.account, "remote"));
    if let Some((name, place)) = named.chain(remotes).find(|(name, _)| !is_there(name)) {
        return Err(Conflict::LeafAccount { name: name.clone(), place });
    }
    let mut seen = HashSet::new();
    for remote in &leafs.remotes {
        let url = remote.urls.first().map(ToString::to_string).unwrap_or_default();
        let account = remote.account.clone();
        if !seen.insert((url.clone(), account.clone())) {
            return Err(Conflict::LeafRemote { url, account });
        }
    }
    Ok(())
}

/// Tier and cache of the default log; its home may have been set by a flag.
fn homes(options: &Options) -> Result<(), Conflict> {
    let jetstream = &options.jetstream;
    let is_built_in = |cluster: &ClusterSettings| cluster.catalog == BUILT_IN;
    if jetstream.store.is_some() && options.cluster.as_ref().is_some_and(is_built_in) {
        return Err(Conflict::StoreOfBuiltIn);
    }
    match (&jetstream.store, &jetstream.tier, &jetstream.cache) {
        (Some(_), Some(_), _) => Err(Conflict::TierOfBucket),
        (None, _, Some(_)) => Err(Conflict::CacheOfDirectory),
        _ => Ok(()),
    }
}

fn limits(options: &Options) -> Result<(), Conflict> {
    let (grace, total) = (options.lame_duck_grace_period, options.lame_duck_duration);
    if grace >= total {
        return Err(Conflict::LameDuck { grace, total });
    }
    let payload = options.limits.max_payload_bytes;
    let pending = options.limits.max_pending_bytes;
    if payload > pending {
        return Err(Conflict::PayloadAbovePending { payload, pending });
    }
    match &options.server_name {
        Some(name) if name.contains(' ') => Err(Conflict::ServerName { name: name.clone() }),
        _ => Ok(()),
    }
}

fn monitoring(options: &Options) -> Result<(), Conflict> {
    let monitor = &options.monitor;
    if monitor.http_port.is_some() && monitor.https_port.is_some() {
        return Err(Conflict::HttpAndHttps);
    }
    if monitor.https_port.is_some() && options.tls.is_none() {
        return Err(Conflict::HttpsWithoutTls);
    }
    Ok(())
}

fn credentials(options: &Options) -> Result<(), Conflict> {
    let auth = &options.auth;
    if auth.user.is_some() && auth.token.is_some() {
        return Err(Conflict::UserAndToken);
    }
    if auth.password.is_some() && auth.user.is_none() {
        return Err(Conflict::PasswordWithoutUser);
    }
    let names: Vec<&str> = all_names(options).collect();
    if !names.is_empty() {
        match (&auth.user, &auth.token) {
            (Some(_), _) => return Err(Conflict::SingleAndUsers { single: "user" }),
            (_, Some(_)) => return Err(Conflict::SingleAndUsers { single: "token" }),
            (None, None) => {}
        }
    }
    let own = options.websocket.as_ref().and_then(|ws| ws.auth.as_ref());
    if own.is_some() && (!names.is_empty() || options.operator.is_some()) {
        return Err(Conflict::WebsocketSingleAndUsers);
    }
    let mut seen = HashSet::new();
    if let Some(twice) = names.iter().find(|&&name| !seen.insert(name)) {
        return Err(Conflict::DuplicateUser { name: (*twice).to_owned() });
    }
    let of_websocket = options.websocket.as_ref().and_then(|ws| ws.no_auth_user.as_ref());
    if let Some(name) = of_websocket.filter(|name| !seen.contains(name.as_str())) {
        return Err(Conflict::NoAuthUser { name: name.clone() });
    }
    match &auth.no_auth_user {
        Some(name) if !seen.contains(name.as_str()) => {
            Err(Conflict::NoAuthUser { name: name.clone() })
        }
        _ => Ok(()),
    }
}

fn callout(options: &Options) -> Result<(), Conflict> {
    let Some(callout) = &options.auth.callout else { return Ok(()) };
    if options.operator.is_some() {
        return Err(Conflict::CalloutOfOperator);
    }
    let is_there = |name: &String| options.accounts.iter().any(|account| account.name == *name);
    match callout.allowed_accounts.iter().find(|name| !is_there(name)) {
        Some(name) => Err(Conflict::CalloutAccount { name: name.clone() }),
        None => Ok(()),
    }
}

/// Names and nkeys of all users.
fn all_names(options: &Options) -> impl Iterator<Item = &str> {
    let auth = &options.auth;
    let of_accounts = options.accounts.iter().flat_map(|a| names(&a.users, &a.nkeys));
    names(&auth.users, &auth.nkeys).chain(of_accounts)
}

fn names<'a>(
    users: &'a [super::User],
    nkeys: &'a [super::NkeyUser],
) -> impl Iterator<Item = &'a str> {
    users.iter().map(|u| u.name.as_str()).chain(nkeys.iter().map(|n| n.public.as_str()))
}

fn accounts(options: &Options) -> Result<(), Conflict> {
    let system = options.system_account.as_str();
    // The accounts of an operator come later.
    if options.operator.is_none()
        && system != SYSTEM_ACCOUNT
        && !options.accounts.iter().any(|a| a.name == system)
    {
        return Err(Conflict::SystemAccount { name: system.to_owned() });
    }
    let mut ids = HashMap::new();
    for account in &options.accounts {
        if let Some(other) = ids.insert(named_account_id(&account.name), &account.name) {
            let (one, other) = (other.clone(), account.name.clone());
            return Err(Conflict::AccountIds { one, other });
        }
    }
    if let Some(account) = options.accounts.iter().find(|a| a.name == system)
        && account.jetstream.is_some()
    {
        return Err(Conflict::SystemJetStream { name: system.to_owned() });
    }
    sharing::check(&options.accounts).map_err(Conflict::AccountImports)
}
