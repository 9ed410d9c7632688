//! The one writer that a stream takes records from.
//!
//! A writer that wants a stream for itself opens it with a term above the stream's. From that record
//! of the log on, what is published with another term, or with none, is refused, also what was on its
//! way already. A term never goes down; 0 is the stream of everybody.

use super::Stream;
use super::admit::{Publish, Refusal};
use crate::rules::{FENCE_WRITERS, REPLAY_TERM};
use nuthatch_protocol::headers::find_header;
use nuthatch_protocol::jserror::JsError;

/// Header of a publish: the term of the writer that it comes from.
pub const TERM_HEADER: &[u8] = b"Nuthatch-Term";

impl Stream {
    /// The term of the one writer that the stream takes records from; 0: it has none.
    #[must_use]
    pub const fn writer_term(&self) -> u64 {
        self.writer_term
    }

    /// Whether a writer may open the stream with this term.
    ///
    /// # Errors
    /// 20001 if a later writer has it, 10003 if it is no term.
    pub fn check_opening(&self, term: u64) -> Result<(), Refusal> {
        match term {
            0 => Err(JsError::BAD_REQUEST),
            term if term < self.writer_term => Err(self.fenced(term)),
            _ => Ok(()),
        }
    }

    /// Whether the writer with this term may still change the stream.
    ///
    /// # Errors
    /// 20001 if a later writer has it, 20002 if it was never opened with this term.
    pub fn check_term(&self, term: u64) -> Result<(), Refusal> {
        if !FENCE_WRITERS.holds() || term == self.writer_term {
            return Ok(());
        }
        if term < self.writer_term {
            return Err(self.fenced(term));
        }
        Err(JsError::WRITER_NOT_OPEN.with("term", term).with("stream", self.writer_term))
    }

    fn fenced(&self, term: u64) -> JsError {
        JsError::WRITER_FENCED.with("term", term).with("stream", self.writer_term)
    }

    /// The record that opens it with this term is in the log.
    pub fn set_writer_term(&mut self, term: u64) {
        self.writer_term = self.writer_term.max(term);
        self.guard();
    }

    /// Recovery: such a record was read.
    pub fn apply_writer_term(&mut self, term: u64) {
        if REPLAY_TERM.holds() {
            self.set_writer_term(term);
        }
    }

    /// Whether publishes are looked at more closely depends on term and configuration.
    pub(super) const fn guard(&mut self) {
        self.limits.guarded = self.limits.sealed || self.writer_term > 0;
    }

    /// What a stream that is sealed or has a writer says to a publish.
    #[cold]
    pub(super) fn check_writer(&self, publish: &Publish<'_>) -> Result<(), Refusal> {
        if self.limits.sealed {
            return Err(JsError::STREAM_SEALED);
        }
        let term = find_header(publish.headers, TERM_HEADER).unwrap_or_default();
        // What is no number is the term of nobody.
        let term = std::str::from_utf8(term).ok().and_then(|text| text.parse().ok());
        self.check_term(term.unwrap_or(0))
    }
}
