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
//! standard error stream, or nowhere. What would end a server (another one has taken over its log) ends the broker
//! alone: [`Broker::fault`] tells why, and every call fails with that.
//!
//! Acknowledged means what it means for a server: the host may be killed at any time.

mod broker;
mod config;
mod life;

pub use broker::{Broker, BrokerError, CloseError, ConnectFailed, OpenError};
pub use config::{Config, ConfigError};
pub use nuthatch_client as client;
