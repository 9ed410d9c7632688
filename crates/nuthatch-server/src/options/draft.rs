//! Options while they are being put together: the file first, then the flags, then the defaults
//! that depend on both.

use std::path::PathBuf;
use std::time::Duration;

use super::cluster::ClusterDraft;
use super::console::ConsoleDraft;
use super::{OPEN_MAX_SUBSCRIPTIONS, Options, SYSTEM_ACCOUNT, SyncPolicy, listen};

/// The incumbent's default store directory, which a reboot may empty.
const NATS_SERVER_STORE_DIR: &str = "nats";

/// Under which name, and so with which defaults, the server was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invocation {
    /// `nuthatch serve`: JetStream is on, in `./nuthatch-data`.
    Nuthatch,
    /// `nats-server`: JetStream is off unless asked for, and then in `/tmp/nats`.
    NatsServer,
}

/// Options with a few things still open.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub options: Options,
    /// Address for clients, if one was given.
    pub host: Option<String>,
    /// Address of monitoring, if one was given.
    pub monitor_host: Option<String>,
    pub auth_timeout: Option<Duration>,
    /// `max_subscriptions` was given, be it as "any number".
    pub has_max_subscriptions: bool,
    pub store_dir: Option<PathBuf>,
    pub jetstream: Option<bool>,
    pub cluster: ClusterDraft,
    pub console: ConsoleDraft,
}

impl Draft {
    /// Fills in what depends on other settings. `old`: those of a running server, whose
    /// listeners a reload does not move.
    pub fn finish(self, invocation: Invocation, old: Option<&Options>) -> Options {
        let mut options = self.options;
        if invocation == Invocation::Nuthatch && !self.has_max_subscriptions && !options.has_users()
        {
            options.limits.max_subscriptions = Some(OPEN_MAX_SUBSCRIPTIONS);
        }
        listen::fill_in(&mut options, self.host, self.monitor_host, invocation, old);
        options.auth.timeout = self.auth_timeout.unwrap_or_else(|| match &options.tls {
            // The handshake happens within the time to authenticate.
            Some(tls) => tls.timeout + Duration::from_secs(1),
            None => super::DEFAULT_AUTH_TIMEOUT,
        });
        warn_of_callout(&mut options);
        options.console = self.console.finish(invocation);
        options.named_by_host = invocation == Invocation::Nuthatch;
        name_system_account(&mut options);
        options.jetstream.enabled = self.jetstream.unwrap_or(invocation == Invocation::Nuthatch);
        if options.jetstream.store.is_some() && options.jetstream.sync != SyncPolicy::Always {
            let text = "sync_interval does nothing for the default log, which is in a bucket: \
                        what is acknowledged is stored there";
            options.warnings.push(text.to_owned());
        }
        match (self.store_dir, invocation) {
            (Some(dir), _) => options.jetstream.store_dir = dir,
            (None, Invocation::Nuthatch) => {}
            (None, Invocation::NatsServer) => {
                options.jetstream.store_dir = std::env::temp_dir().join(NATS_SERVER_STORE_DIR);
                if options.jetstream.enabled {
                    let dir = options.jetstream.store_dir.display();
                    let text = format!(
                        "no store_dir is set: streams are stored in {dir}, which a reboot may empty"
                    );
                    options.warnings.push(text);
                }
            }
        }
        options
    }
}

/// Says what keeps a callout from letting anybody in, as nats-server does at its start.
fn warn_of_callout(options: &mut Options) {
    let Some(callout) = &options.auth.callout else { return };
    let mut warnings = Vec::new();
    let name = &callout.account;
    if name != super::GLOBAL_ACCOUNT && !options.accounts.iter().any(|one| one.name == *name) {
        warnings.push(format!(
            "auth_callout: account {name:?} is not configured, so nobody is let in by it"
        ));
    }
    for user in &callout.auth_users {
        if !is_user(options, user) {
            warnings.push(format!("auth_callout: user {user:?} of auth_users is not configured"));
        }
    }
    options.warnings.append(&mut warnings);
}

fn is_user(options: &Options, name: &str) -> bool {
    let named = |users: &[super::User], nkeys: &[super::NkeyUser]| {
        users.iter().any(|user| user.name == name) || nkeys.iter().any(|user| user.public == name)
    };
    options.auth.user.as_deref() == Some(name)
        || named(&options.auth.users, &options.auth.nkeys)
        || options.accounts.iter().any(|account| named(&account.users, &account.nkeys))
}

/// The system account of the one operator, unless the file names it.
fn name_system_account(options: &mut Options) {
    let Some(mode) = &options.operator else { return };
    if let [operator] = mode.operators.as_slice()
        && options.system_account == SYSTEM_ACCOUNT
        && !operator.claims.nats.system_account.is_empty()
    {
        options.system_account.clone_from(&operator.claims.nats.system_account);
    }
    if mode.is_empty() {
        options.operator = None;
    }
}
