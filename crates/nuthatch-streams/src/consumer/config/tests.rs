//! Refusals and defaults, one row each.
