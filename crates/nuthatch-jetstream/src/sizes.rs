//! Pages of lists, and sizes of configurations.

use nuthatch_protocol::js::StreamConfig;
use nuthatch_protocol::jserror::JsError;

/// Names in one page of `STREAM.NAMES` and `CONSUMER.NAMES`.
pub(super) const NAMES_PAGE: usize = 1024;
/// Infos in one page of `STREAM.LIST` and `CONSUMER.LIST`.
pub(super) const LIST_PAGE: usize = 256;
/// What else of a stream or consumer stands in an answer, about.
pub(super) const ASSET_BYTES: usize = 1024;
/// Longest subject of a stream's or consumer's configuration, in bytes: no publish has a longer one
/// by default, and a tree of subjects is as deep as they have tokens.
pub(super) const SUBJECT_BYTES_MAX: usize = 4096;

/// Refuses subjects that are longer than any message's.
pub(super) fn check_lengths<'a>(
    subjects: impl IntoIterator<Item = &'a String>,
    kind: JsError,
) -> Result<(), JsError> {
    match subjects.into_iter().find(|subject| subject.len() > SUBJECT_BYTES_MAX) {
        Some(long) => {
            let text = format!("a subject of {} bytes: at most {SUBJECT_BYTES_MAX}", long.len());
            Err(kind.with_err(text))
        }
        None => Ok(()),
    }
}

/// The subjects and filters of a configuration.
pub(super) fn subjects_of(config: &StreamConfig) -> impl Iterator<Item = &String> {
    config.subjects.iter().chain(subjects_of_sources(config))
}

/// The filters and transforms of a mirror or of sources.
fn subjects_of_sources(config: &StreamConfig) -> impl Iterator<Item = &String> {
    let sources = config.mirror.iter().chain(&config.sources);
    sources.flat_map(|source| {
        let transforms = source.subject_transforms.iter();
        transforms.flat_map(|t| [&t.src, &t.dest]).chain([&source.filter_subject])
    })
}

/// A request's offset as a count; negative means 0, as upstream.
pub(super) fn offset_of(offset: i64) -> usize {
    usize::try_from(offset).unwrap_or(0)
}

/// What a configuration adds to an answer, about.
pub(super) fn config_bytes(config: &StreamConfig) -> usize {
    let subjects = subjects_of(config);
    let metadata = config.metadata.iter().map(|(key, value)| key.len() + value.len());
    subjects.map(String::len).sum::<usize>() + metadata.sum::<usize>() + ASSET_BYTES
}
