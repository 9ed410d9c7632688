//! Metadata of a file: JSON under a subject made of its name.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use nuthatch_client::connect::ConnectArgs;
use serde_json::{Value, json};

use super::{explained, stream_name};
use crate::error::CliError;
use crate::input::block_of;
use crate::session::Session;
use crate::show::{self, DetailView, number};
use crate::stream::contents::{decoded, stored};

/// JetStream has no message under a subject.
const NO_MESSAGE: u64 = 10037;

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
pub fn find(session: &mut Session, bucket: &str, file: &str) -> Result<Option<Value>, CliError> {
    let which = json!({ "last_by_subj": subject(bucket, file) });
    let found = match stored(session, &stream_name(bucket)?, &which) {
        Err(CliError::Js { source, .. }) if source.err_code() == Some(NO_MESSAGE) => {
            return Ok(None);
        }
        other => other.map_err(|err| explained(session, bucket, err))?,
    };
    let mut meta: Value = serde_json::from_slice(&decoded(&found["data"])).map_err(|err| {
        CliError::Failed(format!("what bucket {bucket} knows about {file} is damaged: {err}"))
    })?;
    meta["mtime"] = found["time"].clone();
    Ok(Some(meta))
}

/// Metadata of a file that exists.
pub fn get(session: &mut Session, bucket: &str, file: &str) -> Result<Value, CliError> {
    match find(session, bucket, file)? {
        Some(meta) if meta["deleted"] != true => Ok(meta),
        _ => Err(CliError::NotFound(format!("bucket {bucket} has no file {file:?}"))),
    }
}

/// [`get`] that follows links to other files.
pub fn resolve(session: &mut Session, bucket: &str, file: &str) -> Result<Value, CliError> {
    let mut meta = get(session, bucket, file)?;
    for _ in 0..MAX_LINKS {
        let link = meta["options"]["link"].clone();
        if !link.is_object() {
            return Ok(meta);
        }
        let (to, name) = (show::text(&link["bucket"]), show::text(&link["name"]));
        if name.is_empty() {
            let text = format!("{file:?} is a link to the bucket {to}, not to a file");
            return Err(CliError::Failed(text));
        }
        meta = get(session, &to, &name)?;
    }
    Err(CliError::Failed(format!("{file:?} is a link to links without end")))
}

/// Writes what is known about a file in place of what was known before.
pub fn put(session: &mut Session, bucket: &str, meta: &Value) -> Result<(), CliError> {
    let subject = subject(bucket, &show::text(&meta["name"]));
    let headers = block_of(&[("Nats-Rollup", "sub")]);
    session.publish_stored(&subject, &headers, meta.to_string().as_bytes()).map(|_| ())
}

/// Prints what is known about a file.
pub fn info(bucket: &str, file: &str, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let meta = get(&mut session, bucket, file)?;
    session.print(&meta, || render(&meta))
}

/// Metadata of a file, for people.
pub fn render(meta: &Value) -> String {
    let mut details = DetailView::default();
    details.heading(&format!("File {}", show::text(&meta["name"])));
    details.line_if("Description", show::some_text(&meta["description"]));
    details.line("Bucket", show::text(&meta["bucket"]));
    details.line("Size", show::bytes(number(&meta["size"])));
    details.line("Chunks", show::count(number(&meta["chunks"])));
    details.line_if("Stored", show::some_text(&meta["mtime"]).map(|_| show::time(&meta["mtime"])));
    details.line_if("Digest", show::some_text(&meta["digest"]));
    let link = &meta["options"]["link"];
    if link.is_object() {
        let to = format!("{} {}", show::text(&link["bucket"]), show::text(&link["name"]));
        details.line("Link to", to);
    }
    for (name, values) in meta["headers"].as_object().into_iter().flatten() {
        details.line(&format!("Header {name}"), show::text(values));
    }
    details.render()
}
