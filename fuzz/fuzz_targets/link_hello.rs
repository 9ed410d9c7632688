//! See `nuthatch_fuzz::TARGETS`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nuthatch_cluster::fuzzing::link_hello(data));
