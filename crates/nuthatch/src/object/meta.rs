//! Metadata of a file: JSON under a subject made of its name.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::js::{NO_MESSAGE, ObjectInfo, ObjectLink, header_block};
use nuthatch_protocol::js::GetRequest;
use serde_json::json;

use super::{explained, stream_name};
use crate::error::CliError;
use crate::session::Session;
use crate::show::{self, DetailView};
use crate::stream::contents::stored;

/// Links to links are followed no further than this.
const MAX_LINKS: usize = 4;

/// The subject under which a bucket keeps what it knows about a file.
pub fn subject(bucket: &str, file: &str) -> String {
    format!("$O.{bucket}.M.{}", URL_SAFE.encode(file))
}

/// The subject of a file's chunks.
pub fn chunk_subject(bucket: &str, id: &str) -> String {
    format!("$O.{bucket}.C.{id}")
}

/// Metadata of a file, deleted or not; `None` if the bucket has never held it.
pub fn find(
    session: &mut Session,
    bucket: &str,
    file: &str,
) -> Result<Option<ObjectInfo>, CliError> {
    let last_by_subj = subject(bucket, file);
    let which = GetRequest { last_by_subj, ..GetRequest::default() };
    let found = match stored(session, &stream_name(bucket)?, &which) {
        Err(CliError::Js { source, .. }) if source.err_code() == Some(NO_MESSAGE) => {
            return Ok(None);
        }
        other => other.map_err(|err| explained(session, bucket, err))?,
    };
    let mut meta: ObjectInfo = serde_json::from_slice(&found.data).map_err(|err| {
        CliError::Failed(format!("what bucket {bucket} knows about {file} is damaged: {err}"))
    })?;
    meta.mtime = found.time;
    Ok(Some(meta))
}

/// Metadata of a file that exists.
pub fn get(session: &mut Session, bucket: &str, file: &str) -> Result<ObjectInfo, CliError> {
    match find(session, bucket, file)? {
        Some(meta) if !meta.deleted => Ok(meta),
        _ => Err(CliError::NotFound(format!("bucket {bucket} has no file {file:?}"))),
    }
}

/// [`get`] that follows links to other files.
pub fn resolve(session: &mut Session, bucket: &str, file: &str) -> Result<ObjectInfo, CliError> {
    let mut meta = get(session, bucket, file)?;
    for _ in 0..MAX_LINKS {
        let link = meta.options.as_ref().and_then(|options| options.link.clone());
        let Some(ObjectLink { bucket: to, name }) = link else { return Ok(meta) };
        if name.is_empty() {
            let text = format!("{file:?} is a link to the bucket {to}, not to a file");
            return Err(CliError::Failed(text));
        }
        meta = get(session, &to, &name)?;
    }
    Err(CliError::Failed(format!("{file:?} is a link to links without end")))
}

/// Writes what is known about a file in place of what was known before.
pub fn put(session: &mut Session, bucket: &str, meta: &ObjectInfo) -> Result<(), CliError> {
    let subject = subject(bucket, &meta.name);
    let headers = header_block(&[("Nats-Rollup", "sub")]);
    session.publish_stored(&subject, &headers, json!(meta).to_string().as_bytes()).map(|_| ())
}

/// Prints what is known about a file.
pub fn info(bucket: &str, file: &str, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let meta = get(&mut session, bucket, file)?;
    session.print(&json!(meta), || render(&meta))
}

/// Metadata of a file, for people.
pub fn render(meta: &ObjectInfo) -> String {
    let mut details = DetailView::default();
    details.heading(&format!("File {}", meta.name));
    details.line_if("Description", show::filled(&meta.description));
    details.line("Bucket", meta.bucket.as_str());
    details.line("Size", show::bytes(meta.size));
    details.line("Chunks", show::count(meta.chunks));
    details.line_if("Stored", (!meta.mtime.is_zero()).then(|| show::moment(meta.mtime)));
    details.line_if("Digest", show::filled(&meta.digest));
    if let Some(link) = meta.options.as_ref().and_then(|options| options.link.as_ref()) {
        details.line("Link to", format!("{} {}", link.bucket, link.name));
    }
    for (name, values) in &meta.headers {
        details.line(&format!("Header {name}"), values.join(", "));
    }
    details.render()
}
