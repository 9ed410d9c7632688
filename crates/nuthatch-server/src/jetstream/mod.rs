//! The JetStream service: registry of streams, API calls, and the seam to the engines.

mod advice;
mod api;
pub mod audit;
mod backend;
mod banner;
pub mod registry;
pub mod service;

pub mod hook;
pub mod moves;
mod open;
pub mod reroute;

mod account;
mod claims;
mod clock;
mod consumers;
mod copies;
mod envelope;
mod foreign;
mod homes;
mod imports;
mod known;
mod places;
mod request;
mod restore;
mod snapshot;
mod streams;
mod view;

pub use backend::{Backend, NotTaken};
pub use clock::ServerClock;
pub use foreign::Foreign;
pub use hook::{Answers, Engines, Hook};
pub use open::start;
pub use places::LogPlace;
pub use registry::{EngineIndex, Registry, StreamRoute};
pub use service::{AccountLimits, JetStream, Settings};

#[cfg(test)]
mod tests;
