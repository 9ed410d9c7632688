//! Requests that change something: reload, and what is done to one client.

use super::{Answer, Failure};
use crate::close_reason::CloseReason;
use crate::conn::Connection;
use crate::server::Server;
use serde_json::{Map, Value};
use std::sync::Arc;

/// `$SYS.REQ.SERVER.<id>.RELOAD`
pub(super) fn reload(server: &Arc<Server>) -> Result<Answer, Failure> {
    server.reload().map(|()| Answer::Data(Value::Null)).map_err(Failure::internal)
}

/// `$SYS.REQ.SERVER.<id>.KICK` with `{"cid":N}`
pub(super) fn kick(server: &Server, options: &Map<String, Value>) -> Result<Answer, Failure> {
    let leaf = || server.leafs.connections.get(options.get("cid")?.as_u64()?);
    let conn = named(server, options)
        .or_else(leaf)
        .ok_or_else(|| Failure::internal("no such client or leafnode id"))?;
    conn.close(CloseReason::Kicked, None);
    Ok(Answer::Data(Value::Null))
}

/// `$SYS.REQ.SERVER.<id>.LDM` with `{"cid":N}`: that client is told to look for another server.
pub(super) fn lame_duck(server: &Server, options: &Map<String, Value>) -> Result<Answer, Failure> {
    let conn = named(server, options).ok_or_else(|| Failure::internal("no such client id"))?;
    let info = server.info_for(server.info().as_lame_duck(), &conn, "");
    conn.send(&info.encode());
    Ok(Answer::Data(Value::Null))
}

fn named(server: &Server, options: &Map<String, Value>) -> Option<Arc<Connection>> {
    server.connections.get(options.get("cid")?.as_u64()?)
}
