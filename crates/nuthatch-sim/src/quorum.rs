//! Nodes of a quorum log on simulated disks, links and clocks, with clients and an observer that sees
//! everything.

mod checker;
mod faults;
mod host;
mod world;

pub use checker::{Violation, ViolationKind};
pub use faults::{Fault, Mix, THEMES, Theme};
pub use world::{Options, Summary, World, run};
