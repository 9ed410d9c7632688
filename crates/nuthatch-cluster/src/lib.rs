//! Quorum logs on real disks and sockets. The protocol is `nuthatch_quorum`'s; here is what drives it.
//!
//! - [`keeper_dir`]: what a keeper has on its disk: [`small_files`] and the [`journal`]; [`inspect`] only looks, [`recover`] makes a plain directory of it. [`rules`] are switches
//!   of what that rests on.
//! - [`operation`], [`replica`], [`directory`]: a log's directory as operations that are entries of the
//!   quorum log, the files that they make, and the seam `Disk` that a log is opened on.
//! - [`packet`], [`hello`], [`links`], [`port`]: what nodes say to each other, as bytes and on sockets; [`about`] which
//!   protocols and keys of encryption they have, and where they are; [`key`] and [`channel`] keep others out of it. [`transfer`] brings the files that trimmed entries have made ([`trim_holds`] what comes behind them).
//! - [`link_hello`]: how a connection begins on which messages of clients go; the rest of it is the server's, which knows the
//!   cluster by [`membership`]. [`core_node`]: a node that has nothing but such connections.
//! - [`catalog`]: transactions as objects of a bucket, of a shared directory or of etcd; [`group`]: the built-in one, which the
//!   nodes keep themselves.
//! - [`nodes`]: which nodes there are, and how that is changed (where the catalog is outside them by `stored_nodes`, in `stored_roster`); [`zones`]: what the loss of a zone would mean. [`life`]: the threads and connections of a node, and their end.
//! - [`host`]: the cores of a log on a node with their disk (`counts`: what they notice); [`lease`]: what an owner may say. [`quorum_log`]: one log;
//!   [`in_memory`]: the one that is in memory; `in_bucket`: those that are in a bucket. `owners`: which node is to own which; [`balance`]: how it comes to. [`cluster`]: all of it put together; the keepers of further logs lie in the
//!   directory of the first one ([`sub_disk`]).
//!
//! # Why a journal with payloads
//!
//! The cores know one chain of entries. Here the journal has them with their payloads, and the files of the
//! directory are made of what is committed. So one sync of one file makes an entry durable, whatever it does; a file
//! never holds what may still be taken back; files that are behind after a power cut are brought forward by
//! applying again; and what a peer lacks that was not away for long is in the journal. The price: each byte is written
//! twice, the second time through the cache of the operating system, with nobody waiting.
//!
//! Once the files are durable the journal is trimmed, but for its newest files. Who lacks what is trimmed gets the
//! files themselves.
//!
//! # Not here yet
//!
//! `docs/cluster.md` says what is missing.

pub mod about;
mod alarms;
mod any_catalog;
pub mod balance;
mod beginning;
pub mod catalog;
mod catalog_error;
mod catalog_store;
mod catalog_trouble;
mod change_nodes;
pub mod channel;
pub mod clock;
pub mod cluster;
pub mod coding;
pub mod config;
pub mod core_node;
mod counts;
pub mod directory;
#[cfg(feature = "etcd")]
mod etcd_store;
mod files;
mod framed;
#[doc(hidden)]
pub mod fuzzing;
pub mod group;
mod group_port;
mod heal;
pub mod hello;
mod home;
pub mod host;
mod in_bucket;
pub mod in_memory;
pub mod incoming;
pub mod inspect;
pub mod journal;
pub mod keeper_dir;
pub mod key;
pub mod lease;
pub mod life;
mod line_limit;
pub mod link_hello;
pub mod links;
pub mod membership;
mod myself;
pub mod nodes;
pub mod operation;
mod owners;
pub mod packet;
mod places;
pub mod port;
pub mod quorum_log;
pub mod records;
pub mod recover;
pub mod replica;
mod replica_view;
mod ring;
mod roll;
mod route;
mod routes;
pub mod rules;
#[cfg(feature = "mutations")]
mod rules_off;
pub mod small_files;
mod space;
mod start_error;
mod starting;
mod stopwatch;
mod stored_joining;
mod stored_nodes;
#[doc(hidden)]
pub mod stored_roster;
#[doc(hidden)]
pub mod stored_steps;
pub mod sub_disk;
pub mod sync_gate;
pub mod transfer;
pub mod trim_holds;
pub mod zones;

pub use about::{KeyNames, Versions};
pub use balance::loads::{ASKED, BUSY, LOADS_HOLD, Loads, LogLoad};
pub use balance::{Move, OnMove};
pub use change_nodes::ChangeError;
pub use cluster::{Cluster, Prepared};
pub use config::{
    BUILT_IN, CORE_NODES_MAX, ClusterConfig, ConfigError, LEASE, LEASE_MIN, Logs, OtherBucket,
};
pub use core_node::CoreNode;
pub use directory::QuorumDirectory;
pub use host::NotWished;
pub use in_bucket::QuorumTenure;
pub use in_memory::{MEMORY_LOG, MemoryUsage};
pub use key::{ClusterKey, KeyError};
pub use life::{END_MAX, Life, Unended};
pub use membership::Membership;
pub use nodes::{
    Drain, Finalize, Finalizing, MovedLog, NodeSight, NodesChange, NodesError, NodesSight,
    Replacement,
};
pub use nuthatch_catalog_group::{LogCount, LogNumber, Protocol, Zone, ZoneError};
pub use quorum_log::{Followed, KeeperSight, LogSight, NodeName, QuorumLog};
pub use replica_view::ReplicaView;
pub use roll::OnRemoved;
pub use route::Route;
pub use start_error::StartError;
pub use stopwatch::Takeover;
pub use zones::{ZoneRisk, ZonesSight, takes_majority};
