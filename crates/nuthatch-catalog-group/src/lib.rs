//! The built-in catalog of quorum logs: three or five nodes order its transactions by a Raft log of their own, each
//! durably on its own disk. Nothing else is needed: no shared directory, no bucket.
//!
//! - [`member`]: the core of one member, `step(event) → effects` around the library's `RawNode`; [`taking_part`] says
//!   from when on a member may vote, [`asked`] follows the calls to their answers.
//! - [`store`]: the member's log, one file of frames; [`identity`]: its small files; [`founding`]: how a cluster begins.
//! - [`roster`]: who the nodes are, and how that changes; [`zones`]: where they are, and which spare is chosen by it.
//! - [`log_catalog`]: what the transactions make, for each log.
//! - [`packet`], [`raft_codec`], [`catalog_codec`]: all of it as bytes; [`coding`] what they are made of.
//! - [`rules`]: switches of the rules that its safety rests on.
//!
//! The core has no socket, clock, thread or chance of its own: it works on the seam `Disk` and counts ticks, so equal
//! histories give equal effects.

mod asked;
pub mod catalog_codec;
mod change;
pub mod coding;
pub mod founding;
pub mod identity;
pub mod log_catalog;
pub mod member;
pub mod packet;
pub mod raft_codec;
pub mod roster;
pub mod rules;
pub mod seeking;
pub mod store;
mod taking_part;
pub mod types;
pub mod zones;

pub use founding::{Founder, Founding};
pub use log_catalog::LogCatalog;
pub use member::{Effect, Event, Limits, Member};
pub use packet::{Body, Envelope};
pub use roster::{Change, Draining, Refusal, Replacing, Resizing, Roster};
pub use types::{Boot, LogCount, LogNumber, MemberId, Protocol};
pub use zones::{Zone, ZoneError, Zones};

/// Time between two ticks of a member, in microseconds.
pub const TICK: u64 = 50_000;
