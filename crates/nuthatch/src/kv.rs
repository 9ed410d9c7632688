//! Key-value buckets: a stream `KV_<bucket>` with subjects `$KV.<bucket>.<key>` (ADR-8).

mod bucket;
mod entry;
mod watch;

use clap::{Args, Subcommand};
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::js::API_PREFIX;

use crate::error::CliError;
use crate::session::Session;

/// Commands about key-value buckets.
#[derive(Debug, Clone, Subcommand)]
pub enum KvCommand {
    /// Create a bucket
    #[command(visible_alias = "new")]
    Add(Box<bucket::AddArgs>),
    /// Change a bucket's configuration
    Edit(Box<bucket::AddArgs>),
    /// Store a value under a key
    Put(entry::PutArgs),
    /// Store a value under a key that has none
    Create(entry::CreateArgs),
    /// Replace a value, if nobody has replaced it meanwhile
    Update(entry::UpdateArgs),
    /// Print a key's value
    Get(entry::GetArgs),
    /// Follow the changes of a bucket or of some keys
    Watch(watch::WatchArgs),
    /// List buckets, or the keys of a bucket
    #[command(visible_alias = "list")]
    Ls(watch::LsArgs),
    /// Show all values that a key has had and that are kept
    History(watch::HistoryArgs),
    /// Delete a key, or a whole bucket
    #[command(visible_alias = "rm")]
    Del(entry::DelArgs),
    /// Delete a key and its history
    Purge(entry::PurgeArgs),
    /// Make an old value of a key the new one
    Revert(entry::RevertArgs),
    /// Show a bucket's configuration and state
    #[command(visible_alias = "status", alias = "view")]
    Info(BucketArgs),
    /// Remove what is left of deleted keys
    Compact(bucket::CompactArgs),
}

/// The name of a bucket.
#[derive(Debug, Clone, Args)]
pub struct BucketArgs {
    /// Bucket name
    bucket: String,
}

/// A bucket and a key in it.
#[derive(Debug, Clone, Args)]
pub struct KeyArgs {
    /// Bucket name
    bucket: String,
    /// Key: letters, digits and - / _ = .
    key: String,
}

/// Runs a command about key-value buckets.
pub fn run(command: &KvCommand, connect: &ConnectArgs) -> Result<(), CliError> {
    match command {
        KvCommand::Add(args) => bucket::add(args, connect),
        KvCommand::Edit(args) => bucket::edit(args, connect),
        KvCommand::Put(args) => entry::put(args, connect),
        KvCommand::Create(args) => entry::create(args, connect),
        KvCommand::Update(args) => entry::update(args, connect),
        KvCommand::Get(args) => entry::get(args, connect),
        KvCommand::Watch(args) => watch::run(args, connect),
        KvCommand::Ls(args) => watch::ls(args, connect),
        KvCommand::History(args) => watch::history(args, connect),
        KvCommand::Del(args) => entry::del(args, connect),
        KvCommand::Purge(args) => entry::purge(args, connect),
        KvCommand::Revert(args) => entry::revert(args, connect),
        KvCommand::Info(args) => bucket::info(args, connect),
        KvCommand::Compact(args) => bucket::compact(args, connect),
    }
}

/// What the streams behind buckets begin with.
const STREAM_PREFIX: &str = "KV_";

/// Puts a failure into the words of buckets.
fn explained(session: &mut Session, bucket: &str, err: CliError) -> CliError {
    session.about_bucket(STREAM_PREFIX, bucket, err)
}

/// The stream behind a bucket.
///
/// # Errors
/// When the name is none for a bucket.
pub fn stream_name(bucket: &str) -> Result<String, CliError> {
    let good = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    if bucket.is_empty() || !bucket.chars().all(good) {
        let text = format!("{bucket:?} is no bucket name: letters, digits, _ and - only");
        return Err(CliError::Usage(text));
    }
    Ok(format!("{STREAM_PREFIX}{bucket}"))
}

impl KeyArgs {
    /// The stream behind the bucket.
    fn stream(&self) -> Result<String, CliError> {
        stream_name(&self.bucket)
    }

    /// The subject of the key as the stream stores it.
    fn subject(&self) -> Result<String, CliError> {
        let good = |c: char| c.is_ascii_alphanumeric() || "-/_=.".contains(c);
        let key = &self.key;
        if !key.chars().all(good) || key.split('.').any(str::is_empty) {
            let text = format!(
                "{key:?} is no key: letters, digits and - / _ = . only, no dot at \
                                either end, no two in a row"
            );
            return Err(CliError::Usage(text));
        }
        Ok(format!("$KV.{}.{key}", self.bucket))
    }

    /// The subject to publish to: that of the key, behind the API's prefix when that is not the
    /// usual one, so that it reaches the domain.
    fn target(&self, session: &Session) -> Result<String, CliError> {
        let subject = self.subject()?;
        if session.api_prefix == API_PREFIX {
            return Ok(subject);
        }
        Ok(format!("{}.{subject}", session.api_prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(stream_name("my-Bucket_1").unwrap(), "KV_my-Bucket_1");
        assert!(stream_name("a.b").is_err());
        assert!(stream_name("").is_err());
        let key = |key: &str| KeyArgs { bucket: "b".into(), key: key.into() }.subject();
        assert_eq!(key("a.b/c=d_e-1").unwrap(), "$KV.b.a.b/c=d_e-1");
        for bad in ["", ".a", "a.", "a..b", "a b", "a*", ">"] {
            assert!(key(bad).is_err(), "{bad}");
        }
    }
}
