//! nuthatch-server

pub mod options;
