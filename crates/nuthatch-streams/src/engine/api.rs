//! Management operations: which of them wait, and who runs each.

use super::Engine;
use super::consumer_ops::ConsumerOps;
use super::details::Details;
use super::pending::OpOrInfo;
use crate::op::{Op, OpOutcome, OpResult, Respond};
use crate::sink::Sink;
use nuthatch_log::LogAccess;

impl<S: Sink> Engine<S> {
    /// Runs an operation. Whoever waits is told at once, or once it is durable.
    pub(super) fn op<L: LogAccess>(&mut self, op: Op, respond: Respond, log: &mut L) {
        if writes(&op)
            && let Err(error) = self.out.check_log()
        {
            return respond(Err(error));
        }
        let Some((op, respond)) = self.hold_op(op, respond, log) else { return };
        // Who published without waiting for the acknowledgement and then asks finds the message.
        if let Op::StreamInfo { id, .. } | Op::ConsumerInfo { id, .. } = &op
            && !self.out.has_failed()
            && let Some(lsn) =
                self.streams.get(*id).and_then(|slot| slot.stream.contents().uncommitted())
            && lsn > log.committed()
        {
            let question = OpOrInfo::Question(Box::new(op));
            return self.out.await_commit(lsn, respond, question);
        }
        self.run_op(op, respond, log);
    }

    /// What an operation on consumers needs.
    pub(super) const fn consumer_ops<'a, L: LogAccess>(
        &'a mut self,
        log: &'a mut L,
    ) -> ConsumerOps<'a, S, L> {
        let (streams, sweeps, out) = (&mut self.streams, &mut self.sweeps, &mut self.out);
        ConsumerOps::new(&mut self.dispatch, streams, sweeps, out, &self.config.consumers, log)
    }

    /// An operation on a consumer that writes nothing.
    fn tell_consumer<L: LogAccess>(&mut self, op: Op, log: &mut L) -> OpResult {
        match op {
            Op::StartConsumer { id, name } => self.consumer_ops(log).start(id, &name),
            Op::UnpinConsumer { id, name, group } => {
                self.consumer_ops(log).unpin(id, &name, &group)
            }
            other => unreachable!("{other:?} is no notice to a consumer"),
        }
    }

    /// An operation on a stream that writes nothing.
    fn tell_stream<L: LogAccess>(&mut self, op: Op, log: &mut L) -> OpResult {
        match op {
            Op::Sourced { id, key } => self.streams.sourced(id, &key),
            Op::WouldTake { id, message } => self.would_take(id, &message, log),
            other => unreachable!("{other:?} is no question to a stream"),
        }
    }

    pub(super) fn run_op<L: LogAccess>(&mut self, op: Op, respond: Respond, log: &mut L) {
        let done = match op {
            Op::CreateStream { id, account, config } => {
                return self.create_stream(id, account, config, respond, log);
            }
            Op::UpdateStream { id, config } => return self.update_stream(id, config, respond, log),
            Op::DeleteStream { id } => return self.delete_stream(id, respond, log),
            Op::StreamInfo { id, deleted_details, subjects_filter, offset } => {
                let details = Details::new(deleted_details, subjects_filter, offset);
                self.streams.expire(id, log);
                return self.details.ask(id, details, respond, &self.streams, log.now());
            }
            Op::Purge { id, request } => {
                self.streams.change(id, |slot, ledger| slot.purge(&request, ledger, log))
            }
            op @ (Op::Fence { .. } | Op::Truncate { .. }) => self.writer_op(op, log),
            Op::DeleteMessage { id, seq } => {
                self.streams.change(id, |slot, ledger| slot.delete_message(seq, ledger, log))
            }
            Op::GetMessage { id, request } => return self.get_message(id, request, respond, log),
            Op::CreateConsumer { id, request } => self.consumer_ops(log).create(id, &request),
            Op::DeleteConsumer { id, name } => self.consumer_ops(log).delete_named(id, &name),
            Op::ReadRange { id, request } => return self.read_range(id, request, respond, log),
            Op::Mirror { id, copies, gap_to } => {
                self.store_copies(id, &copies, Some(gap_to), true, log)
            }
            Op::Source { id, copies } => self.store_copies(id, &copies, None, false, log),
            op @ (Op::Sourced { .. } | Op::WouldTake { .. }) => {
                return respond(self.tell_stream(op, log));
            }
            Op::ResetConsumer { id, name, seq } => self.consumer_ops(log).reset(id, &name, seq),
            op @ (Op::StartConsumer { .. } | Op::UnpinConsumer { .. }) => {
                return respond(self.tell_consumer(op, log));
            }
            Op::ConsumerInfo { id, name } => {
                return respond(self.consumer_ops(log).info(id, &name));
            }
            Op::ConsumerState { id, name } => {
                return respond(self.consumer_ops(log).state(id, &name));
            }
            Op::FinishRestore { id, config, consumers } => {
                return self.finish_restore(id, config, &consumers, respond, log);
            }
            Op::RemoveRestored { id, seqs } => {
                self.streams.change(id, |slot, ledger| slot.remove_restored(&seqs, ledger, log))
            }
            Op::ListConsumers { id, offset, limit, names_only } => {
                return respond(self.consumer_ops(log).list(id, offset, limit, names_only));
            }
            Op::Leave { id, log: here, to, config } => {
                return self.leave(id, (here, to), config, respond, log);
            }
            Op::Settle { id, state } => return self.settle(id, state, respond, log),
            op @ (Op::Arrive { .. }
            | Op::Stay { .. }
            | Op::Probe { .. }
            | Op::Forget { .. }
            | Op::RefuseCopy { .. }
            | Op::GoesTo { .. }
            | Op::Hold { .. }) => self.migration_op(op, log),
            Op::Catalog => {
                return respond(Ok(self.streams.catalog(self.recovery.unreadable_records())));
            }
            Op::SetAccounts(bounds) => self.streams.ledger_mut().set_bounds(bounds),
            Op::Sizes => return respond(Ok(OpOutcome::Sizes(self.streams.sizes()))),
            Op::Usage { account } => {
                let usage = self.streams.usage(account, self.out.missing_messages());
                return respond(Ok(OpOutcome::Usage(usage)));
            }
        };
        self.out.finish(done, respond);
    }
}

/// True if an operation needs the log.
const fn writes(op: &Op) -> bool {
    !matches!(
        op,
        Op::StreamInfo { .. }
            | Op::GetMessage { .. }
            | Op::ReadRange { .. }
            | Op::Sourced { .. }
            | Op::WouldTake { .. }
            | Op::ConsumerInfo { .. }
            | Op::ConsumerState { .. }
            | Op::StartConsumer { .. }
            | Op::ListConsumers { .. }
            | Op::Catalog
            | Op::SetAccounts(_)
            | Op::Sizes
            | Op::Usage { .. }
            | Op::GoesTo { .. }
            | Op::Hold { .. }
            // Writes nothing; what was held is refused one by one.
            | Op::Stay { refused: None, .. }
            // Says itself that nothing was written.
            | Op::Settle { .. }
    )
}
