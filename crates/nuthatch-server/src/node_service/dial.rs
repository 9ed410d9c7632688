//! Connections that this node makes: to each other node whose name comes later one for each account.

use super::hello::{hear, say};
use super::{Greeted, Node, halves, prepare};
use crate::account::Account;
use nuthatch_cluster::link_hello::{LINK_BEGINS, LinkHello, Verdict};
use rustls::pki_types::ServerName;
use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

/// How long a connection, TLS and hellos may take.
const GREETED_WITHIN: Duration = Duration::from_secs(2);

/// The first pause before a node is tried again that was not reached; each further one is twice as long.
const RETRY: Duration = Duration::from_millis(50);

/// The longest of these pauses.
const RETRY_MAX: Duration = Duration::from_secs(1);

/// Between two looks whether a node that is to connect to us has done so.
const LOOK: Duration = Duration::from_secs(1);

/// A node that turned us away is asked again so much later.
const TURNED_AWAY: Duration = Duration::from_secs(1);

/// The same where that does not pass by itself: each account asks, and each time costs a handshake.
const TURNED_AWAY_FOR_LONG: Duration = Duration::from_secs(10);

/// Accounts that are connected to another node at most.
pub(super) const LINKED_ACCOUNTS_MAX: usize = 4096;

/// Keeps connections of all accounts to the node at this address, until the address is no node's any more (the sender is
/// dropped). A connection that is there then goes on until it ends.
pub(super) async fn keep(node: Arc<Node>, address: SocketAddr, mut ends: watch::Receiver<()>) {
    let mut changes = node.server.nodes.account_changes();
    let (mut begun, mut links) = (HashSet::new(), tokio::task::JoinSet::new());
    let mut has_told = false;
    loop {
        changes.mark_unchanged();
        for account in node.server.accounts.all() {
            if begun.contains(&account.id) {
                continue;
            }
            if begun.len() >= LINKED_ACCOUNTS_MAX {
                if !has_told {
                    has_told = true;
                    node.server.log.error(format_args!(
                        "More than {LINKED_ACCOUNTS_MAX} accounts: those beyond, such as {}, reach no clients at \
                         other nodes",
                        account.name
                    ));
                }
                break;
            }
            begun.insert(account.id);
            let at = At { address, ends: ends.clone() };
            links.spawn(keep_account(node.clone(), at, account));
        }
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            _ = ends.changed() => break,
        }
    }
    while links.join_next().await.is_some() {}
}

/// Where a node is, as long as it is there.
struct At {
    address: SocketAddr,
    ends: watch::Receiver<()>,
}

impl At {
    fn has_ended(&self, node: &Node) -> bool {
        node.is_ending() || self.ends.has_changed().is_err()
    }
}

/// Keeps the connection of one account.
async fn keep_account(node: Arc<Node>, at: At, account: Arc<Account>) {
    let address = at.address;
    let mut failures = 0_u32;
    while !at.has_ended(&node) {
        let outcome = connect(&node, address, &account).await;
        let pause = match outcome {
            Ok(Outcome::Ended) => {
                failures = 0;
                RETRY
            }
            Ok(Outcome::TurnedAway(peer)) => {
                failures = 0;
                turned_away(&node, &at, &account, &peer).await;
                continue;
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                if failures.is_power_of_two() && failures > 1 {
                    node.server.log.debug(format_args!(
                        "Node at {address}, account {}: {error} (attempt {failures})",
                        account.name
                    ));
                }
                back_off(failures)
            }
        };
        sleep(pause).await;
    }
}

fn back_off(failures: u32) -> Duration {
    let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    RETRY.saturating_mul(doubled).min(RETRY_MAX)
}

/// What became of a connection.
enum Outcome {
    /// It was one until now.
    Ended,
    /// The other side does not want it.
    TurnedAway(Box<LinkHello>),
}

/// Waits until it makes sense to ask again.
async fn turned_away(node: &Node, at: &At, account: &Account, peer: &LinkHello) {
    let why = match peer.verdict {
        // It connects to us.
        Verdict::Reversed => {
            sleep(LOOK).await;
            while node.server.nodes.is_linked(&peer.node, &account.name) && !at.has_ended(node) {
                sleep(LOOK).await;
            }
            return;
        }
        // Accounts of operators come to the nodes one after the other.
        Verdict::NoAccount => return sleep(TURNED_AWAY).await,
        Verdict::Welcome => "it is welcome",
        Verdict::OtherCluster => "it belongs to another cluster",
        Verdict::Full => "it has as many connections as it may have",
        Verdict::SameName => "it, or another node that keeps logs, has this node's name",
        Verdict::Removed => "this node was removed from the cluster",
    };
    node.cluster
        .report_link(&format!("node {} at {} is not connected: {why}", peer.node, at.address));
    let lasts = matches!(peer.verdict, Verdict::Full | Verdict::SameName | Verdict::Removed);
    sleep(if lasts { TURNED_AWAY_FOR_LONG } else { TURNED_AWAY }).await;
}

/// Connects and stays connected.
async fn connect(node: &Node, address: SocketAddr, account: &Arc<Account>) -> io::Result<Outcome> {
    let connecting = async {
        let stream = Arc::new(TcpStream::connect(address).await?);
        prepare(&stream)?;
        let (input, mut output) = halves(&stream);
        output.write_u8(LINK_BEGINS).await?;
        io::Result::Ok((stream, input, output))
    };
    let (stream, input, output) = within(connecting).await?;
    let remote = stream.peer_addr()?;
    match node.cluster.key() {
        None => match within(greet(node, account, input, output, true)).await? {
            Ok(greeted) => drop(node.run(stream, remote, greeted).await),
            Err(peer) => return Ok(Outcome::TurnedAway(peer)),
        },
        Some(key) => {
            let name = ServerName::try_from("node").map_err(io::Error::other)?;
            let connector = TlsConnector::from(key.outward());
            let tls = within(async { connector.connect(name, input).await }).await?;
            let (input, output) = tokio::io::split(tls);
            match within(greet(node, account, input, output, false)).await? {
                Ok(greeted) => drop(node.run(stream, remote, greeted).await),
                Err(peer) => return Ok(Outcome::TurnedAway(peer)),
            }
        }
    }
    Ok(Outcome::Ended)
}

/// What is done within the time for hellos.
pub(super) async fn within<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let done = timeout(GREETED_WITHIN, work).await;
    done.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Exchanges hellos; an error within: what the other side said that does not want the connection.
async fn greet<R, W>(
    node: &Node,
    account: &Arc<Account>,
    mut input: R,
    mut output: W,
    is_plain: bool,
) -> io::Result<Result<Greeted<R, W>, Box<LinkHello>>>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let own = node.greeter().begins(&account.name);
    say(&mut output, &own).await?;
    let (peer, rest) = hear(&mut input).await?;
    // By the same rule as there: of two nodes one connects, whatever either believes.
    let connects = own.node < peer.node || (own.beyond.is_some() && own.node != peer.node);
    let is_fit = peer.verdict == Verdict::Welcome
        && peer.cluster == own.cluster
        && connects
        && peer.account == account.name;
    if !is_fit {
        return Ok(Err(Box::new(peer)));
    }
    let account = account.clone();
    Ok(Ok(Greeted { input, output, rest, peer, account, is_plain, solicited: true }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_the_longest() {
        assert_eq!(back_off(1), RETRY);
        assert_eq!(back_off(2), 2 * RETRY);
        assert_eq!(back_off(30), RETRY_MAX);
        assert_eq!(back_off(u32::MAX), RETRY_MAX);
    }
}
