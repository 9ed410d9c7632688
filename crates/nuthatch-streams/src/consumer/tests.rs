//! The consumer against a fake stream, log and sink.
