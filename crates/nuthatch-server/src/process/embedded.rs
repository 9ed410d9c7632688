//! A server as a part of another program: it takes no signals, leaves the umask alone and never ends the process.

use super::{Clients, RunError, Running, Services, cluster, start, stop};
use crate::listener;
use crate::server::Server;
use crate::system;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// A server that runs in another program.
pub struct Embedded {
    server: Arc<Server>,
    running: Running,
}

impl Embedded {
    /// Starts the server within the runtime of the caller; `listens`: on its client port too. To be awaited to
    /// its end: given up half-way, it would leave logs open.
    ///
    /// # Errors
    /// Why it does not start. Then nothing of it runs once the runtime has ended.
    pub async fn start(
        server: &Arc<Server>,
        services: Services,
        listens: bool,
    ) -> Result<Self, RunError> {
        server.set_runtime(tokio::runtime::Handle::current());
        system::install(server);
        let clients = if listens { Clients::Listen } else { Clients::InProcess };
        let running = start(server, services, clients).await?;
        Ok(Self { server: server.clone(), running })
    }

    /// Waits for something that ends the server, such as another one that has taken over its log, or the failed disk of
    /// a node: the reason.
    pub async fn fault(&mut self) -> String {
        tokio::select! {
            () = self.server.fatal.wait() => self.server.fatal.reason().unwrap_or_default(),
            error = cluster::failed(&mut self.running.node) => error.to_string(),
        }
    }

    /// Stops everything, in order.
    ///
    /// # Errors
    /// It has stopped, but a log did not close cleanly.
    pub async fn stop(self) -> Result<(), RunError> {
        let stopped = stop(&self.server, &self.running).await;
        if let Some(node) = self.running.node {
            node.closed().await;
        }
        stopped
    }
}

impl Server {
    /// A connection of this process to a server that runs: this end of a pair of sockets that have no address.
    /// It is greeted as any client is, without TLS, and must show who it is where others must.
    ///
    /// # Errors
    /// The server takes no clients (it starts or stops), or the system has no more descriptors.
    pub fn connect_in_process(self: &Arc<Self>) -> io::Result<UnixStream> {
        listener::local::connect(self)
    }
}
