//! Connections that other nodes have made.

use super::hello::{hear, say};
use super::{Greeted, Node, halves, prepare};
use nuthatch_cluster::link_hello::Verdict;
use std::io;
use std::net::TcpStream as StdTcpStream;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// How long TLS and hellos may take.
const GREETED_WITHIN: Duration = Duration::from_secs(2);

/// Connections that are being greeted at a time.
const GREETINGS_MAX: usize = 64;

/// Greets whoever arrives, until it is dropped.
pub(super) async fn run(node: Arc<Node>, mut arrivals: mpsc::Receiver<StdTcpStream>) {
    let places = Arc::new(Semaphore::new(GREETINGS_MAX));
    let mut links = tokio::task::JoinSet::new();
    while let Some(stream) = arrivals.recv().await {
        while links.try_join_next().is_some() {}
        if node.is_ending() {
            continue;
        }
        // Whoever says nothing gives the place back in time.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let node = node.clone();
        links.spawn(async move {
            if let Err(error) = open(&node, stream, place).await {
                node.cluster.report_link(&format!("a node's connection for clients: {error}"));
            }
        });
    }
}

async fn open(
    node: &Node,
    stream: StdTcpStream,
    place: tokio::sync::OwnedSemaphorePermit,
) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    let stream = Arc::new(TcpStream::from_std(stream)?);
    prepare(&stream)?;
    let (mut input, output) = halves(&stream);
    let begun = async {
        // The byte by which it was known.
        input.read_u8().await?;
        match node.cluster.key() {
            None => {
                let greeted = greet(node, input, output, true).await?;
                io::Result::Ok((greeted.map(Either::Plain), place))
            }
            Some(key) => {
                let tls = TlsAcceptor::from(key.inward()).accept(input).await?;
                let (input, output) = tokio::io::split(tls);
                let greeted = greet(node, input, output, false).await?;
                Ok((greeted.map(|greeted| Either::Secure(Box::new(greeted))), place))
            }
        }
    };
    let begun = timeout(GREETED_WITHIN, begun).await;
    let (greeted, place) = begun.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    drop(place);
    let remote = stream.peer_addr()?;
    match greeted {
        None => {}
        Some(Either::Plain(greeted)) => drop(node.run(stream, remote, greeted).await),
        Some(Either::Secure(greeted)) => drop(node.run(stream, remote, *greeted).await),
    }
    Ok(())
}

/// One of two kinds of connections.
enum Either<P, S> {
    Plain(P),
    Secure(S),
}

/// Exchanges hellos; `None`: the other side was told why this goes no further.
async fn greet<R, W>(
    node: &Node,
    mut input: R,
    mut output: W,
    is_plain: bool,
) -> io::Result<Option<Greeted<R, W>>>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (peer, rest) = hear(&mut input).await?;
    let greeter = node.greeter();
    let (verdict, account) = match greeter.judge(&peer) {
        Ok(account) => (Verdict::Welcome, Some(account)),
        Err(verdict) => (verdict, None),
    };
    say(&mut output, &greeter.answers(&peer, verdict)).await?;
    let Some(account) = account else { return Ok(None) };
    Ok(Some(Greeted { input, output, rest, peer, account, is_plain, solicited: false }))
}
