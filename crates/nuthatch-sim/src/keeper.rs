//! Nodes of a quorum log on real directories: each has a keeper's directory and the files that committed entries make
//! on a disk that forgets what was not synced, while the power goes at any operation.

mod check;
mod faults;
mod files;
mod machine;
mod model;
mod world;

pub use check::{Violation, ViolationKind};
pub use world::{Options, Planted, Summary, run};
