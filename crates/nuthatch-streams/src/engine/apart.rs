//! What an engine is asked where the two logs of a move have come to different nodes ([`crate::migration`]).

use super::Engine;
use super::migration::{MigrationState, append_move};
use super::outputs::Done;
use crate::migration::refusal_of;
use crate::op::{CopyStanding, OpOutcome};
use crate::rules::{GOES_TO_AFTER_COMMIT, REFUSED_NEVER_SETTLES};
use crate::sink::{AccountId, Sink};
use crate::stream::Provenance;
use nuthatch_log::{LogAccess, StreamId};
use nuthatch_protocol::jserror::JsError;

impl<S: Sink> Engine<S> {
    /// See [`Op::RefuseCopy`](crate::Op::RefuseCopy).
    pub(super) fn refuse_copy<L: LogAccess>(
        &mut self,
        id: StreamId,
        (account, name): (AccountId, &str),
        here: &str,
        log: &mut L,
    ) -> Done {
        let slot = self.streams.get_mut(id).ok_or(JsError::STREAM_NOT_FOUND)?;
        if (slot.stream.account(), slot.stream.config().name.as_str()) != (account, name) {
            return Err(JsError::STREAM_NOT_FOUND);
        }
        if !matches!(slot.migration, MigrationState::Arriving) {
            // A state that is not durable yet is, when this is: the answer waits for the same frame or a later one.
            let lsn = append_move(&slot.stream, slot.stream.provenance().to.as_ref(), log)?;
            self.streams.changed(id, lsn);
            return Ok((Some(lsn), OpOutcome::Copy(CopyStanding::Settled)));
        }
        let refused = refusal_of(here, id);
        let lsn = append_move(&slot.stream, Some(&refused), log)?;
        if REFUSED_NEVER_SETTLES.holds() {
            let provenance = slot.stream.provenance().clone();
            slot.stream.set_provenance(Provenance { to: Some(refused), ..provenance });
        }
        self.streams.changed(id, lsn);
        Ok((Some(lsn), OpOutcome::Copy(CopyStanding::Refused)))
    }

    /// See [`Op::GoesTo`](crate::Op::GoesTo).
    pub(super) fn goes_to<L: LogAccess>(&mut self, id: StreamId, log: &mut L) -> Done {
        let slot = self.streams.get(id).ok_or(JsError::STREAM_NOT_FOUND)?;
        let to = slot.stream.provenance().to.clone();
        // Whoever hears it drops the copy that is not named: it must not be named again after a crash.
        let lsn = GOES_TO_AFTER_COMMIT
            .holds()
            .then(|| append_move(&slot.stream, to.as_ref(), log))
            .transpose()?;
        Ok((lsn, OpOutcome::GoesTo(to)))
    }

    /// See [`Op::Hold`](crate::Op::Hold).
    pub(super) fn hold<L: LogAccess>(&mut self, id: StreamId, refuses: bool, log: &mut L) -> Done {
        let slot = self.streams.get(id).ok_or(JsError::STREAM_NOT_FOUND)?;
        let may_wait = match &slot.migration {
            MigrationState::Here | MigrationState::Undecided { .. } => true,
            // A mover that has asked for it hears of it first.
            MigrationState::OutboundStream(leaving) => refuses && leaving.is_told(),
            MigrationState::Arriving | MigrationState::Settled(_) => false,
        };
        if may_wait {
            self.streams.migrate(id, MigrationState::Undecided { refuses });
        }
        if refuses {
            self.release_deferred(log);
        }
        Ok((None, OpOutcome::Done))
    }
}
