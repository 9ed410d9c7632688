//! What an operation keeps in memory while it waits in a log's queue.
//!
//! An estimate from lengths, without what an allocator adds. Whatever a request can make large counts:
//! names, filters, subjects, metadata, messages, states.

use super::{Op, Replica};
use crate::consumer::PreparedConsumer;
use nuthatch_protocol::js::{
    ConsumerConfig, ConsumerSnapshot, Metadata, StreamConfig, StreamSource, SubjectTransformConfig,
};

/// Of one entry of a map beside its key and value.
const ENTRY_BYTES: usize = 48;

impl Op {
    /// Bytes that the operation keeps in memory, about.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        size_of::<Self>() + self.heap_bytes()
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Self::CreateStream { config, .. } | Self::UpdateStream { config, .. } => stream(config),
            Self::Arrive { config, from, .. } => stream(config) + from.log.len(),
            Self::Leave { log, to, config, .. } => log.len() + to.log.len() + stream(config),
            Self::CreateConsumer { request, .. } => prepared(request),
            Self::FinishRestore { config, consumers, .. } => {
                stream(config) + consumers.iter().map(snapshot).sum::<usize>()
            }
            Self::RemoveRestored { seqs, .. } => size_of_val(seqs.as_slice()),
            Self::Mirror { copies, .. } | Self::Source { copies, .. } => replicas(copies),
            Self::Settle { state, .. } => state.len(),
            Self::RefuseCopy { name, log, .. } => name.len() + log.len(),
            Self::Sourced { key, .. } => key.len(),
            Self::StreamInfo { subjects_filter, .. } => subjects_filter.len(),
            Self::Purge { request, .. } | Self::Truncate { request, .. } => request.filter.len(),
            Self::GetMessage { request, .. } => {
                request.last_by_subj.len() + request.next_by_subj.len()
            }
            Self::WouldTake { message, .. } => message.subject.len() + message.headers.len(),
            Self::ReadRange { request, .. } => strings(&request.filters),
            Self::DeleteConsumer { name, .. }
            | Self::ConsumerInfo { name, .. }
            | Self::ConsumerState { name, .. }
            | Self::StartConsumer { name, .. }
            | Self::ResetConsumer { name, .. } => name.len(),
            Self::UnpinConsumer { name, group, .. } => name.len() + group.len(),
            Self::Stay { refused, .. } => refused.as_ref().map_or(0, |refused| refused.log.len()),
            Self::SetAccounts(bounds) => bounds.len() * ENTRY_BYTES,
            Self::DeleteStream { .. }
            | Self::DeleteMessage { .. }
            | Self::Fence { .. }
            | Self::ListConsumers { .. }
            | Self::Probe { .. }
            | Self::GoesTo { .. }
            | Self::Hold { .. }
            | Self::Forget { .. }
            | Self::Catalog
            | Self::Sizes
            | Self::Usage { .. } => 0,
        }
    }
}

fn strings(all: &[String]) -> usize {
    all.iter().map(|text| size_of::<String>() + text.len()).sum()
}

fn metadata(all: &Metadata) -> usize {
    all.iter().map(|(key, value)| ENTRY_BYTES + key.len() + value.len()).sum()
}

fn transform(transform: &SubjectTransformConfig) -> usize {
    size_of::<SubjectTransformConfig>() + transform.src.len() + transform.dest.len()
}

fn source(source: &StreamSource) -> usize {
    size_of::<StreamSource>()
        + source.name.len()
        + source.filter_subject.len()
        + source.subject_transforms.iter().map(transform).sum::<usize>()
}

fn stream(config: &StreamConfig) -> usize {
    size_of::<StreamConfig>()
        + config.name.len()
        + config.description.len()
        + strings(&config.subjects)
        + config.placement.as_ref().map_or(0, |placement| strings(&placement.tags))
        + config.mirror.iter().chain(&config.sources).map(source).sum::<usize>()
        + metadata(&config.metadata)
}

fn consumer(config: &ConsumerConfig) -> usize {
    size_of::<ConsumerConfig>()
        + config.name.len()
        + config.description.len()
        + config.filter_subject.len()
        + strings(&config.filter_subjects)
        + size_of_val(config.backoff.as_slice())
        + metadata(&config.metadata)
}

/// A request has its filters twice: as they were sent, and as they are asked.
fn prepared(prepared: &PreparedConsumer) -> usize {
    consumer(&prepared.request().config) + prepared.filter().bytes()
}

fn snapshot(snapshot: &ConsumerSnapshot) -> usize {
    let state = snapshot.state.as_ref();
    let entries = state.map_or(0, |state| state.pending.len() + state.redelivered.len());
    consumer(&snapshot.config) + entries * ENTRY_BYTES
}

fn replicas(copies: &[Replica]) -> usize {
    let one = |copy: &Replica| {
        size_of::<Replica>() + copy.subject.len() + copy.headers.len() + copy.body.len()
    };
    copies.iter().map(one).sum()
}

#[cfg(test)]
mod tests;
