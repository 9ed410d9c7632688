//! Which node takes clients, and where: asked on a connection of its own, as files are.
//!
//! A node that owns the log says where it listens for clients; every other one says nothing. Whoever asks does so
//! of all nodes at once, so that one that hangs holds up no answer of another.

use crate::channel::Channel;
use crate::client_address::ClientAddress;
use crate::hello::Lane;
use crate::links::{Local, connect};
use crate::transfer::{put_answer, read_answer};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// How long a node may take to say whether it owns the log.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);

/// Bytes of an answer at most: a host in brackets and a port.
const ANSWER_MAX: u32 = 300;

/// Tells a node that asks.
///
/// # Errors
/// The connection's.
pub fn answer(mut channel: Channel, local: &dyn Local) -> io::Result<()> {
    let address = local.client_address().map(|address| address.encode());
    put_answer(&mut channel, address.unwrap_or_default().as_bytes())
}

/// Where the owner takes clients, if one of these nodes says that it is the owner.
#[must_use]
pub fn find(nodes: &[SocketAddr], local: &Arc<dyn Local>) -> Option<SocketAddr> {
    let (found, first) = channel();
    for &node in nodes {
        let (found, local) = (found.clone(), Arc::clone(local));
        // Without a thread this node is not asked this time.
        drop(thread::Builder::new().name("node-ask".to_owned()).spawn(move || {
            if let Ok(Some(address)) = ask(node, &*local) {
                // Another one may have answered first.
                let _ = found.send(address);
            }
        }));
    }
    drop(found);
    // A name may take longer to be looked up.
    first.recv_timeout(ANSWER_WITHIN).ok()
}

fn ask(node: SocketAddr, local: &dyn Local) -> io::Result<Option<SocketAddr>> {
    let deadline = Instant::now() + ANSWER_WITHIN;
    let (mut channel, _) = connect(node, Lane::Owner, local, deadline)?;
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    channel.begun(left, left)?;
    let answer = read_answer(&mut channel, ANSWER_MAX)?;
    ClientAddress::decode(&answer).map(|address| address.resolve(node.ip())).transpose()
}
