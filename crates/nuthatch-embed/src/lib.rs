//! A broker as a part of another program: several in one process, without a port if none is wanted.
//!
//! ```no_run
//! use nuthatch_embed::{Broker, Config};
//!
//! let config = Config::from_text("jetstream { store_dir: /var/lib/app/log }")?.without_listener();
//! let broker = Broker::open(config)?;
//! let mut client = broker.connect()?;
//! client.writer.publish(b"greetings", b"", b"", b"hello")?;
//! client.writer.flush()?;
//! broker.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A broker never ends its process and changes nothing that belongs to all of it: it handles no signals and blocks
//! them on its own threads, leaves the umask, the panic hook and the standard streams alone, and logs to a file, to the
//! standard error stream, or nowhere. What would end a server (another one has taken over its log, the disk of a node
//! has failed) ends the broker alone: [`Broker::fault`] tells why, and every call fails with that.
//!
//! A broker may be a node of a cluster, beside others of this process or of other machines. It serves JetStream once a
//! majority of the nodes is there, for which opening it does not wait.
//!
//! ```no_run
//! use nuthatch_embed::{Broker, Config};
//!
//! let node = |name: &str, port: u16| {
//!     let text = format!(
//!         "server_name: {name}, jetstream {{ store_dir: /var/lib/app/{name} }}
//!          cluster {{ name: app, host: 127.0.0.1, port: {port}
//!                    routes: [nats://127.0.0.1:6222, nats://127.0.0.1:6223, nats://127.0.0.1:6224] }}"
//!     );
//!     Ok::<_, Box<dyn std::error::Error>>(Broker::open(Config::from_text(&text)?.without_listener())?)
//! };
//! let nodes = [node("a", 6222)?, node("b", 6223)?, node("c", 6224)?];
//! // Clients of one node reach the others, and streams with `num_replicas: 3` outlast one of them.
//! let client = nodes[0].connect()?;
//! nodes[0].close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Acknowledged means what it means for a server: the host may be killed at any time.

mod broker;
mod config;
mod life;

pub use broker::{Broker, BrokerError, CloseError, ConnectFailed, OpenError};
pub use config::{Config, ConfigError};
pub use nuthatch_client as client;
