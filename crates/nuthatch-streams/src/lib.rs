//! nuthatch-streams
