//! The users of a configuration, for the console: who they are and what they may do.

use nuthatch_console::{Rule, User};
use nuthatch_server::options::{GLOBAL_ACCOUNT, NkeyUser, Options, Permissions, SubjectPermission};

/// All of them, account by account.
pub fn all(options: &Options) -> Vec<User> {
    let auth = &options.auth;
    let mut found = Vec::new();
    if let Some(name) = &auth.user {
        found.push(user(GLOBAL_ACCOUNT, name, "password", None));
    }
    if auth.token.is_some() {
        found.push(user(GLOBAL_ACCOUNT, "(whoever has the token)", "token", None));
    }
    add(&mut found, GLOBAL_ACCOUNT, &auth.users, &auth.nkeys);
    for account in &options.accounts {
        add(&mut found, &account.name, &account.users, &account.nkeys);
    }
    found
}

fn add(
    found: &mut Vec<User>,
    account: &str,
    users: &[nuthatch_server::options::User],
    nkeys: &[NkeyUser],
) {
    let named =
        users.iter().map(|one| user(account, &one.name, "password", one.permissions.as_ref()));
    let keyed =
        nkeys.iter().map(|one| user(account, &one.public, "nkey", one.permissions.as_ref()));
    found.extend(named.chain(keyed));
}

fn user(account: &str, name: &str, kind: &'static str, granted: Option<&Permissions>) -> User {
    let rule = |permission: &SubjectPermission| Rule {
        allow: permission.allow.clone(),
        deny: permission.deny.clone(),
    };
    User {
        account: account.to_owned(),
        name: name.to_owned(),
        kind,
        publish: granted.and_then(|granted| granted.publish.as_ref()).map(rule),
        subscribe: granted.and_then(|granted| granted.subscribe.as_ref()).map(rule),
    }
}
