//! nuthatch-server
