//! A seeded scheduler in virtual time, and the schedules that run on it.
//!
//! What is simulated is written as *cores*: `step(event, now) → effects`, without sockets, files, clocks
//! or threads. A simulation is one thread that takes the next happening from a queue
//! ([`scheduler::Scheduler`]), hands it to a core, and turns the effects into further happenings by way
//! of a network ([`net`]), disks ([`disk`]) and clocks ([`clock`]) that fail as the seed says. Equal seeds
//! give equal traces.
//!
//! [`quorum`] runs the cores of `nuthatch-quorum`, [`keeper`] the same on real directories, [`node`] whole single
//! nodes, [`control`] the step machines of the control plane, [`group`] the built-in catalog's group. No crate of the
//! product depends on this one.

pub mod clock;
pub mod control;
pub mod disk;
pub mod group;
pub mod keeper;
pub mod net;
pub mod node;
pub mod quorum;
pub mod rng;
pub mod scheduler;
