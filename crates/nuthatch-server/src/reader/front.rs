//! A connection without a socket, for benchmarks.

use super::{ConnReader, Flow};
use crate::conn::{Connection, Transport};
use crate::server::Server;
use bytes::Bytes;
use std::sync::Arc;

/// A connection without a socket: what is handed in is handled as one read.
#[doc(hidden)]
pub struct Front {
    reader: ConnReader,
}

#[doc(hidden)]
impl Front {
    /// A connection of this server that has sent this CONNECT.
    pub async fn open(server: &Arc<Server>, connect: &str) -> Self {
        let id = server.connections.next_id();
        let remote = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let conn = server.connect(id, remote, Transport::Tcp);
        let mut reader = ConnReader::new(server.clone(), conn, String::new());
        let accepted = reader.handle_connect(connect.as_bytes()).await.is_ok();
        assert!(accepted, "CONNECT refused");
        Self { reader }
    }

    /// The connection.
    #[must_use]
    pub fn connection(&self) -> &Arc<Connection> {
        &self.reader.conn
    }

    /// Handles one read, which must hold whole operations: in as many turns as it takes.
    pub fn handle(&mut self, data: &Bytes) {
        let mut from = 0;
        loop {
            match self.reader.turn(data, from).0 {
                Flow::Rest { consumed } => from = consumed,
                Flow::Done { consumed, .. } => {
                    assert_eq!(consumed, data.len(), "whole operations");
                    return;
                }
                Flow::Connect { .. } | Flow::Closed => panic!("neither is in a benchmark"),
            }
        }
    }

    /// Throws away what waits to be written; how many bytes it was.
    pub fn discard(&self) -> usize {
        let outbox = self.reader.conn.outbox();
        let pending = outbox.pending();
        if outbox.take_pen().is_some() {
            outbox.next_batch(pending);
        }
        pending
    }
}
