//! The engine over a log in memory that can be replayed from scratch, snapshots and states.

mod batches;
mod copying;
mod counters;
mod damage;
mod details;
mod fake_log;
mod faults;
mod harness;
mod memory_consumers;
mod migration;
mod model;
mod mutated;
mod priorities;
mod publish;
mod reads;
mod replication;
mod restore;
mod retention;
mod routes;
mod schedules;
mod thin;
mod timed;
mod writers;
