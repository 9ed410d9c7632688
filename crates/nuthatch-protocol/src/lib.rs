//! nuthatch-protocol
