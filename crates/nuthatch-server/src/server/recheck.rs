//! What becomes of connections when the users change.

use super::Server;
use crate::account::Account;
use crate::auth::{Authenticator, Standing};
use crate::close_reason::CloseReason;
use crate::conn::{Connection, Session};
use crate::identity::{Allowed, Rights};
use crate::options;
use crate::quote::go_quote;
use crate::subscription::Subscription;
use std::sync::Arc;

impl Server {
    /// After the users have changed from `old`: closes connections whose user is gone or would have to
    /// show something else; those whose permissions have changed lose what is forbidden now.
    pub fn recheck(&self, old: &Authenticator) {
        for conn in self.connections.open() {
            let session = conn.session();
            let (user, account) = (&session.user, &session.account.name);
            if session.proxy.as_ref().is_some_and(|key| !self.auth().trusts_proxy(key)) {
                conn.close(CloseReason::ProxyNotTrusted, Some("Authorization Violation"));
                continue;
            }
            if self.operator().is_none() && session.grant.is_some() {
                // A service let it in: it stays as long as the same one is asked, and its account is there.
                if self.auth().callout() != old.callout() || !self.serves_account(account) {
                    let text = Some("Authorization Violation");
                    conn.close(CloseReason::AuthenticationViolation, text);
                }
                continue;
            }
            match self.auth().standing(old, &conn.origin(), user, account, &session.rights) {
                Standing::Same => {}
                Standing::Rights(rights) => {
                    conn.change_session(Arc::new(Session { rights, ..(*session).clone() }));
                    self.enforce_rights(&conn);
                }
                Standing::Gone => {
                    let text = Some("Authorization Violation");
                    conn.close(CloseReason::AuthenticationViolation, text);
                }
            }
        }
    }

    /// An account that is here, or comes when it is needed.
    pub(crate) async fn account(&self, name: &str) -> Option<Arc<Account>> {
        if let Some(operator) =
            self.operator().filter(|operator| operator.store.get(name).is_none())
        {
            operator.want(name).await;
        }
        self.accounts.by_name(name)
    }

    /// True if an account is one of the configuration. A removed one lives on for its streams, without
    /// limits, and lets nobody in.
    pub(crate) fn serves_account(&self, name: &str) -> bool {
        let options = self.options();
        name == options::GLOBAL_ACCOUNT
            || name == options.system_account
            || options.accounts.iter().any(|account| account.name == name)
    }

    /// Ends subscriptions that the permissions of the connection do not allow, and says so; what is kept
    /// from the others is what is denied now.
    pub(crate) fn enforce_rights(&self, conn: &Arc<Connection>) {
        let session = conn.session();
        let may = |sub: &Subscription| match &session.rights {
            Some(rights) => rights.may_subscribe(&sub.subject, sub.queue.as_deref()),
            None => Allowed::Except(None),
        };
        let tracks_replies = tracks_replies(&session.rights);
        for sub in conn.subscriptions() {
            match may(&sub) {
                Allowed::No => {
                    if conn.end_subscription(&sub) {
                        self.tell_removed(conn, &sub);
                    }
                }
                Allowed::Except(denied) => {
                    if sub.denied != denied || sub.tracks_replies != tracks_replies {
                        conn.replace_subscription(&sub, denied, tracks_replies);
                    }
                }
            }
        }
    }

    fn tell_removed(&self, conn: &Connection, sub: &Subscription) {
        let (subject, sid) = (go_quote(&sub.subject), go_quote(&sub.sid));
        let queue = sub.queue.as_deref().map(go_quote);
        let queue = queue.map(|queue| format!(" using queue {queue}")).unwrap_or_default();
        let what = format!("{subject}{queue} (sid {sid})");
        self.log.info(format_args!("{conn} - Removed sub {what} - not authorized"));
        conn.send_err(&format!("Permissions Violation for Subscription to {what}"));
    }
}

/// True if a subscription with these permissions notes the reply subjects that it has been sent.
pub(crate) fn tracks_replies(rights: &Option<Arc<Rights>>) -> bool {
    rights.as_ref().is_some_and(|rights| rights.responses.is_some())
}
