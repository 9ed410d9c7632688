//! Checks options that must go together, wherever they were set.

use std::collections::HashSet;

use super::error::Conflict;
use super::{Account, Options, SYSTEM_ACCOUNT};

/// Accounts of users beside the system account that this version serves.
const MAX_USER_ACCOUNTS: usize = 1;

pub(super) fn check(options: &Options) -> Result<(), Conflict> {
    limits(options)?;
    monitoring(options)?;
    credentials(options)?;
    accounts(options)
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
    let mut seen = HashSet::new();
    if let Some(twice) = names.iter().find(|&&name| !seen.insert(name)) {
        return Err(Conflict::DuplicateUser { name: (*twice).to_owned() });
    }
    match &auth.no_auth_user {
        Some(name) if !seen.contains(name.as_str()) => {
            Err(Conflict::NoAuthUser { name: name.clone() })
        }
        _ => Ok(()),
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
    if system != SYSTEM_ACCOUNT && !options.accounts.iter().any(|a| a.name == system) {
        return Err(Conflict::SystemAccount { name: system.to_owned() });
    }
    let of_users: Vec<&Account> = options.accounts.iter().filter(|a| a.name != system).collect();
    if of_users.len() > MAX_USER_ACCOUNTS {
        let names: Vec<&str> = of_users.iter().map(|a| a.name.as_str()).collect();
        return Err(Conflict::TooManyAccounts { names: names.join(", ") });
    }
    let in_authorization = !options.auth.users.is_empty() || !options.auth.nkeys.is_empty();
    match of_users.iter().find(|a| !a.users.is_empty() || !a.nkeys.is_empty()) {
        Some(account) if in_authorization => {
            Err(Conflict::UsersInTwoPlaces { account: account.name.clone() })
        }
        _ => Ok(()),
    }
}
