//! Members of the built-in catalog's group on simulated disks and links, from their founding on, with clients and an
//! observer that sees everything.

mod absence;
mod check;
mod clients;
mod joining;
mod nemesis;
mod steps;
mod summary;
mod themes;
mod world;

pub use check::Violation;
pub use summary::Summary;
pub use world::{Options, run};
