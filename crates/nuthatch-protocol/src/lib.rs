//! nuthatch-protocol

pub mod jserror;
