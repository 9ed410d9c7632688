//! The engine over a log in memory that can be replayed from scratch, snapshots and states.

mod batches;
mod harness;
mod model;
mod publish;
mod reads;
mod retention;
mod thin;
mod timed;
