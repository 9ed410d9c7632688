//! How a node without JetStream learns who the nodes of its cluster are: it asks those that it knows, all the time.

use super::dial::within;
use super::hello::{hear, say};
use super::{halves, prepare};
use crate::server::Server;
use nuthatch_cluster::link_hello::{
    Beyond, LINK_BEGINS, LinkHello, LinkVersion, NO_CLUSTER, Verdict,
};
use nuthatch_cluster::{CoreNode, Membership as _};
use rustls::pki_types::ServerName;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsConnector;

/// Between two times that the nodes are asked, and the same while none of a cluster has answered.
const AGAIN: Duration = Duration::from_secs(5);
const SOON: Duration = Duration::from_millis(200);

/// What is told of a node that ends the connection without an answer.
const SAYS_NOTHING: &str = "it says nothing: it has not found its cluster, or is of a version that knows no nodes without JetStream";

/// After so long without an answer people are told.
const TELL_AFTER: Duration = Duration::from_secs(2);

/// Asks until a node of a cluster has answered: which cluster that is.
pub(crate) async fn until_found(server: &Arc<Server>, core: &Arc<CoreNode>, name: &str) -> u128 {
    let (began, mut told) = (Instant::now(), String::new());
    loop {
        let failures = ask_all(server, core, name).await.join("; ");
        if let Some(cluster) = core.found() {
            return cluster;
        }
        if began.elapsed() >= TELL_AFTER && told != failures {
            server.log.warn(format_args!(
                "Cluster: no node answers yet that keeps logs, which takes JetStream there ('jetstream' in the file, or -js). \
                 Clients have none here meanwhile, and hear of no other node's ({failures})"
            ));
            told = failures;
        }
        sleep(SOON).await;
    }
}

/// Asks again and again, until it is dropped: nodes come, and go elsewhere.
pub(crate) async fn keep(server: Arc<Server>, core: Arc<CoreNode>, name: String) {
    loop {
        sleep(AGAIN).await;
        ask_all(&server, &core, &name).await;
    }
}

/// Asks all nodes that are known, at the same time; why those did not answer that have not.
async fn ask_all(server: &Arc<Server>, core: &Arc<CoreNode>, name: &str) -> Vec<String> {
    let mut asked = JoinSet::new();
    for address in core.known() {
        let (server, core, name) = (server.clone(), core.clone(), name.to_owned());
        asked.spawn(async move {
            let answer = within(ask(&server, &core, name, address)).await;
            let failed = match answer {
                Ok(answer) => take(&core, address, answer).err()?,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    SAYS_NOTHING.to_owned()
                }
                Err(error) => error.to_string(),
            };
            Some(format!("{address}: {failed}"))
        });
    }
    let mut failures: Vec<String> = asked.join_all().await.into_iter().flatten().collect();
    failures.sort();
    failures
}

/// Takes what a node has answered.
///
/// # Errors
/// A few words: that says nothing.
fn take(core: &CoreNode, at: SocketAddr, answer: LinkHello) -> Result<(), String> {
    let LinkHello { node, cluster, beyond, .. } = answer;
    let beyond = beyond.ok_or("it tells nothing")?;
    if core.hear(at, cluster, beyond) {
        return Ok(());
    }
    core.report_link(&format!("node {node} at {at} belongs to another cluster, {cluster:032x}"));
    Err("it belongs to another cluster".to_owned())
}

async fn ask(
    server: &Server,
    core: &CoreNode,
    node: String,
    address: SocketAddr,
) -> io::Result<LinkHello> {
    let stream = Arc::new(TcpStream::connect(address).await?);
    prepare(&stream)?;
    let (input, mut output) = halves(&stream);
    output.write_u8(LINK_BEGINS).await?;
    let question = LinkHello {
        cluster: NO_CLUSTER,
        node,
        server: server.name.clone(),
        account: String::new(),
        clients: vec![],
        is_leaving: false,
        verdict: Verdict::Welcome,
        version: LinkVersion::NEWEST,
        beyond: Some(Beyond { is_core: true, ..Beyond::default() }),
    };
    match core.key() {
        None => exchange(input, output, &question).await,
        Some(key) => {
            let name = ServerName::try_from("node").map_err(io::Error::other)?;
            let tls = TlsConnector::from(key.outward()).connect(name, input).await?;
            let (input, output) = tokio::io::split(tls);
            exchange(input, output, &question).await
        }
    }
}

async fn exchange(
    mut input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
    question: &LinkHello,
) -> io::Result<LinkHello> {
    say(&mut output, question).await?;
    Ok(hear(&mut input).await?.0)
}
