//! Whole single nodes: engines on logs, with compaction, checkpoints, a tier and moves between logs, on
//! disks and a store that fail, and clients that remember what they were told.
//!
//! All of a node runs on one thread: turns of each log, the jobs of its writer and of its worker, steps
//! of its tier are happenings of their own, whose order the seed decides.

mod check;
mod clients;
mod doctor;
mod faults;
mod harm;
mod host;
mod model;
mod moves;
mod nemesis;
mod outside;
mod rot;
mod server;
mod streams;
mod tier;
mod time;
mod violation;
mod world;

pub use faults::{Fault, Mix};
pub use violation::Violation;
pub use world::{Damage, Options, Summary, run};
