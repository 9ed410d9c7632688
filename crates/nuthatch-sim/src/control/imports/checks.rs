//! What must hold of imports.

use super::{NAME, Violation, World, key};
use crate::control::log::SimStream;
use nuthatch_log::StreamId;
use nuthatch_streams::stream::importing_name;

impl World {
    /// What clients see is all that the other server had.
    pub(super) fn check_shown(&self) -> Result<(), Violation> {
        let Some(id) = self.shown.filter(|_| !self.clears) else { return Ok(()) };
        let of = self.whole.1.len();
        match self.log.durable.get(&id) {
            Some(stream) if stream.config.name == NAME && self.is_whole(stream) => Ok(()),
            stream => {
                let messages = stream.map_or(0, |stream| stream.messages.len());
                Err(Violation::HalfShown { messages, of })
            }
        }
    }

    fn is_whole(&self, stream: &SimStream) -> bool {
        let (last, messages) = &self.whole;
        let here = stream.messages.iter().map(|(seq, stored)| (*seq, stored.token));
        stream.last == *last && here.eq(messages.iter().map(|(seq, token)| (*seq, *token)))
    }

    /// What is being imported, as the log has it.
    fn importing(&self) -> impl Iterator<Item = (&StreamId, &SimStream)> {
        let streams = self.log.durable.iter();
        streams.filter(|(_, stream)| importing_name(&stream.config.name).is_some())
    }

    pub(super) fn check_cancelled(&self) -> Result<(), Violation> {
        match self.importing().next() {
            Some((_, stream)) => Err(Violation::Left { name: stream.config.name.clone() }),
            None => Ok(()),
        }
    }

    /// What is here is what is there, without holes, and what was confirmed.
    pub(super) fn check_importing(&self) -> Result<(), Violation> {
        for (id, stream) in self.importing() {
            if self.imports.target(&key()).is_none_or(|target| target.stream != *id) {
                return Err(Violation::Left { name: stream.config.name.clone() });
            }
            let last = stream.last;
            for (seq, token) in self.origin.range(..=last) {
                match stream.messages.get(seq) {
                    None => return Err(Violation::Hole { copy: "the import", seq: *seq, last }),
                    Some(stored) if stored.token != *token => {
                        return Err(Violation::Differs { copy: "the import", seq: *seq });
                    }
                    Some(_) => {}
                }
            }
            if let Some((of, seq)) = self.confirmed
                && of == *id
                && seq > last
            {
                return Err(Violation::MessageLost { seq });
            }
        }
        Ok(())
    }
}
