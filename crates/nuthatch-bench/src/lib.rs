//! nuthatch-bench
