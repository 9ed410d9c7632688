//! nuthatch-log
