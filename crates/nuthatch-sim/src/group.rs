//! Members of the built-in catalog's group on simulated disks and links, from their founding on, with clients and an
//! observer that sees everything.

mod check;
mod clients;
mod nemesis;
mod world;

pub use check::Violation;
pub use world::{Options, Summary, run};
