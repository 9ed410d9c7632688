//! The consumer against a fake stream, log and sink.

#[macro_use]
mod fakes;

mod acks;
mod model;
mod positions;
mod pulls;
mod pushes;
mod restarts;
