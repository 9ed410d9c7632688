//! Streams and consumers as state machines over a log.
//!
//! `Engine` implements [`nuthatch_log::Machine`]: it runs on the sequencer thread of one log, takes
//! [`Event`]s, appends records, and hands results to a [`Sink`]. No I/O, clocks, tasks or locks here:
//! time, entropy and storage come in through [`nuthatch_log::LogAccess`].

pub mod budget;
pub mod consumer;
pub mod control;
pub mod decoded_state;
pub mod engine;
pub mod event;
pub mod index;
pub mod migration;
pub mod op;
pub mod records;
pub mod rules;
pub mod sink;
pub mod steady;
pub mod stream;
pub mod subject_set;
pub mod validate;

pub use budget::AccountBounds;
pub use consumer::EndOfPulls;
pub use engine::{
    BatchLimits, Engine, EngineConfig, FollowedAnswer, FollowedGet, FollowedStep, FollowedStream,
};
pub use event::{
    AckItem, ClientBatch, DirectGetItem, Event, FlowItem, HandOff, Item, PublishItem, PullItem,
    Span, UnlessChanged,
};
pub use index::{MessageIndex, MessageMeta};
pub use op::{Op, OpOutcome, OpResult, Respond};
pub use sink::{AccountId, Delivery, Message, NullSink, Sink};
