//! A node of a quorum log that does not own it: takes clients, and hands their bytes to the node that does.
//!
//! Bytes go through as they are, TLS too, so all that a client sees is the owner's. A client that comes while there
//! is no owner waits for one; when the owner has changed, its connection ends, and with the next it is at the new one.
//! The owner sees this node's address as the client's.

use crate::server::Server;
use crate::socket::{ListenError, accept_each, bind, port_of};
use nuthatch_cluster::Cluster;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncWriteExt as _, BufReader, copy_buf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// How long a client waits for a node that owns the log.
const OWNER_WITHIN: Duration = Duration::from_secs(10);

/// How long a connection to the owner may take to be made.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);

/// Between two questions for the owner, and two looks whether it may have changed.
const OWNER_POLL: Duration = Duration::from_millis(100);

/// Clients that are relayed at a time, where `max_connections` says nothing less.
const CLIENTS_MAX: usize = 65_536;

/// Bytes on their way from a client, and to it.
const TO_OWNER_BYTES: usize = 16 << 10;
const TO_CLIENT_BYTES: usize = 16 << 10;

/// An owner whose machine is gone is missed after about three of these.
const KEEPALIVE: Duration = Duration::from_secs(2);

/// How long a client may take nothing of what is there for it.
const CLIENT_STALLS: Duration = Duration::from_secs(30);

/// What a client is told that waited in vain.
const NO_OWNER: &[u8] =
    b"-ERR 'no node owns the quorum log now, or this node cannot reach it: try another one'\r\n";

/// What a client beyond the limit is told.
const TOO_MANY: &[u8] = b"-ERR 'maximum connections exceeded'\r\n";

/// Takes clients on the client port until this node owns the log.
pub(super) struct ClientRelay {
    server: Arc<Server>,
    cluster: Arc<Cluster>,
    listener: TcpListener,
}

/// What the connections of a relay share.
struct Relay {
    owner: watch::Receiver<Option<SocketAddr>>,
    /// The owner may have changed: it was not there.
    doubt: Notify,
    places: Semaphore,
}

impl ClientRelay {
    /// Listens on the client port.
    ///
    /// # Errors
    /// [`ListenError`].
    pub(super) async fn listen(
        server: &Arc<Server>,
        cluster: &Arc<Cluster>,
    ) -> Result<Self, ListenError> {
        let options = server.options();
        let listener = bind("client port", &options.host, options.port).await?;
        let port = port_of(&listener);
        server.client_port.store(port, Ordering::Relaxed);
        server.log.info(format_args!(
            "Relaying client connections on {}:{port} to the node that owns the quorum log",
            options.host
        ));
        Ok(Self { server: server.clone(), cluster: cluster.clone(), listener })
    }

    /// Relays until `owned` is done. Connections that are relayed then end. Gives the listener back.
    pub(super) async fn until<T>(self, owned: impl Future<Output = T>) -> (T, TcpListener) {
        let (found, owner) = watch::channel(None);
        let limit = self.server.options().limits.max_connections as usize;
        let limit = limit.min(CLIENTS_MAX);
        let places = Semaphore::new(limit);
        let relay = Arc::new(Relay { owner, doubt: Notify::new(), places });
        // Each connection holds one, so all end with the last word.
        let (ending, ended) = watch::channel(());
        let accepting = accept_each(
            &self.listener,
            &self.server.log,
            || false,
            |client, _| {
                let (relay, mut ended) = (relay.clone(), ended.clone());
                async move {
                    tokio::select! {
                        () = relay.serve(client) => {}
                        _ = ended.changed() => {}
                    }
                }
            },
        );
        let owned = tokio::select! {
            owned = owned => owned,
            () = accepting => unreachable!("it accepts until it is dropped"),
            () = find_owner(&self.cluster, &found, &relay) => unreachable!("it looks until it is dropped"),
        };
        drop(ending);
        (owned, self.listener)
    }
}

/// Keeps `found` what the other nodes say.
async fn find_owner(
    cluster: &Arc<Cluster>,
    found: &watch::Sender<Option<SocketAddr>>,
    relay: &Relay,
) {
    loop {
        let promised = cluster.promised();
        let asking = cluster.clone();
        let owner = tokio::task::spawn_blocking(move || asking.find_owner()).await.ok().flatten();
        match owner {
            Some(owner) => {
                found.send_if_modified(|known| known.replace(owner) != Some(owner));
                until_doubted(cluster, promised, relay).await;
            }
            None => sleep(OWNER_POLL).await,
        }
    }
}

/// Waits until the owner may be another one.
async fn until_doubted(cluster: &Cluster, promised: u32, relay: &Relay) {
    while cluster.promised() == promised {
        if timeout(OWNER_POLL, relay.doubt.notified()).await.is_ok() {
            return sleep(OWNER_POLL).await;
        }
    }
}

impl Relay {
    async fn serve(&self, mut client: TcpStream) {
        let Ok(_place) = self.places.try_acquire() else {
            // Whoever does not read it has lost nothing else.
            let _ = client.write_all(TOO_MANY).await;
            return;
        };
        let deadline = Instant::now() + OWNER_WITHIN;
        match timeout_at(deadline, self.connect()).await {
            Ok((owner, address)) => self.copy(client, owner, address).await,
            Err(_) => {
                let _ = client.write_all(NO_OWNER).await;
            }
        }
    }

    /// Connects to the owner, once there is one.
    async fn connect(&self) -> (TcpStream, SocketAddr) {
        let mut owner = self.owner.clone();
        loop {
            let known = *owner.borrow_and_update();
            if let Some(address) = known {
                if let Ok(Ok(stream)) = timeout(CONNECT_WITHIN, TcpStream::connect(address)).await {
                    return (stream, address);
                }
                self.doubt.notify_one();
            }
            // The same node may come back, too.
            let _ = timeout(OWNER_POLL, owner.changed()).await;
        }
    }

    /// Hands bytes on in both directions until either side ends, or another node owns the log.
    async fn copy(&self, mut client: TcpStream, mut stream: TcpStream, address: SocketAddr) {
        let _ = client.set_nodelay(true);
        // One that reads nothing keeps its place no longer, whatever its owner does.
        let _ = SockRef::from(&client).set_tcp_user_timeout(Some(CLIENT_STALLS));
        let _ = prepare(&stream);
        let mut owner = self.owner.clone();
        let replaced = owner.wait_for(|known| known.is_some_and(|known| known != address));
        let (from_client, mut to_client) = client.split();
        let (from_owner, mut to_owner) = stream.split();
        let mut from_client = BufReader::with_capacity(TO_OWNER_BYTES, from_client);
        let mut from_owner = BufReader::with_capacity(TO_CLIENT_BYTES, from_owner);
        // A connection of which one direction has ended is over, as it is at a server.
        tokio::select! {
            _ = copy_buf(&mut from_client, &mut to_owner) => {}
            _ = copy_buf(&mut from_owner, &mut to_client) => {}
            _ = replaced => {}
        }
        self.doubt.notify_one();
    }
}

/// Small messages go out at once, and an owner whose machine is gone is missed.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE).with_retries(2);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(3 * KEEPALIVE))
}
