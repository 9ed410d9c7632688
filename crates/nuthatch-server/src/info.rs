//! INFO as one connection hears it.

use crate::account_id::SYSTEM_ACCOUNT_ID;
use crate::conn::{Connection, Session};

pub use nuthatch_protocol::greeting::ServerInfo;

/// INFO for one connection, with a nonce if it may need one.
#[must_use]
pub(crate) fn for_connection(mut info: ServerInfo, conn: &Connection, nonce: &str) -> ServerInfo {
    info.client_id = Some(conn.id);
    info.client_ip = conn.remote.get().ip().to_string();
    nonce.clone_into(&mut info.nonce);
    info
}

/// INFO for a connection that has just got its first PONG.
#[must_use]
pub(crate) fn for_session(mut info: ServerInfo, session: &Session) -> ServerInfo {
    info.connect_info = true;
    info.remote_account.clone_from(&session.account.name);
    info.acc_is_sys = session.account.id == SYSTEM_ACCOUNT_ID;
    info
}
