//! Whether a server that has connected may join: its version, what it shows, and itself from before.

use crate::close_reason::CloseReason;
use crate::conn::Connection;
use crate::identity::{Credentials, Origin};
use crate::leaf;
use crate::leaf::hello::LeafConnect;
use crate::link::PeerFacts;
use crate::reader::ConnReader;
use crate::reader::connect::ConnectError;
use crate::server::Server;
use nuthatch_protocol::jwt::server_version;
use std::sync::Arc;

/// What a server is told that is too old.
pub(super) const MIN_VERSION_REJECTED: &str =
    "connection rejected since minimum version required is";

impl ConnReader {
    /// Whether a server is not too old (`min_version`).
    pub(super) fn check_version(&self, version: &str) -> Result<(), ConnectError> {
        let options = self.server.options();
        let Some((text, oldest)) =
            options.leafnodes.as_ref().and_then(|own| own.min_version.as_ref())
        else {
            return Ok(());
        };
        let numbers = version.split(['-', '+']).next().unwrap_or_default().trim_start_matches('v');
        if server_version(numbers).is_ok_and(|found| found >= *oldest) {
            return Ok(());
        }
        let said = format!("{MIN_VERSION_REJECTED} \"{text}\"");
        self.server.log.error(format_args!("{} - {said}", self.conn));
        self.conn.send_err(&said);
        Err(ConnectError { reason: CloseReason::MinimumVersionRequired, text: None })
    }
}

pub(super) fn leaf_credentials(connect: &LeafConnect, conn: &Connection) -> Credentials {
    Credentials {
        user: connect.user.clone(),
        password: connect.pass.clone(),
        token: connect.auth_token.clone(),
        nkey: connect.nkey.clone(),
        signature: connect.sig.clone(),
        jwt: connect.jwt.clone(),
        proxy_signature: connect.proxy_sig.clone(),
        origin: Origin {
            is_leaf: true,
            address: Some(conn.remote.get().ip()),
            ..Origin::default()
        },
    }
}

/// A server that comes back may be faster than the end of its connection before: that one ends now.
pub(super) fn replace_older(server: &Server, conn: &Arc<Connection>, facts: &PeerFacts) {
    if facts.remote_name.is_empty() || facts.remote_account.is_empty() {
        return;
    }
    let account = conn.session().account.clone();
    let is_same = |other: &Arc<Connection>| {
        !Arc::ptr_eq(other, conn)
            && Arc::ptr_eq(&other.session().account, &account)
            && other.link().is_some_and(|link| {
                !link.solicited
                    && link.remote_name == facts.remote_name
                    && link.remote_cluster == facts.remote_cluster
                    && link.remote_account == facts.remote_account
            })
    };
    for other in server.leafs.connections.open().iter().filter(|other| is_same(other)) {
        server.log.warn(format_args!("{conn} - Replacing connection from same server"));
        let reason = CloseReason::DuplicateLeaf;
        other.close(reason, Some(reason.text()));
        leaf::leave(other);
        other.drop_subscriptions();
    }
}
