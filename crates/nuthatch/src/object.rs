//! Object stores: a stream `OBJ_<bucket>` that holds files in chunks under `$O.<bucket>.C.<id>` and
//! what is known about each under `$O.<bucket>.M.<name>` (ADR-20).

mod bucket;
mod meta;
mod transfer;

use clap::{Args, Subcommand};
use nuthatch_client::connect::ConnectArgs;

use crate::error::CliError;
use crate::session::Session;

/// Commands about object stores.
#[derive(Debug, Clone, Subcommand)]
pub enum ObjectCommand {
    /// Create a bucket
    Add(Box<bucket::AddArgs>),
    /// Store a file
    Put(transfer::PutArgs),
    /// Fetch a file
    Get(transfer::GetArgs),
    /// List buckets, or the files of a bucket
    #[command(visible_alias = "list")]
    Ls(bucket::LsArgs),
    /// Show what is known about a bucket or a file
    #[command(visible_alias = "show", alias = "i")]
    Info(InfoArgs),
    /// Delete a file, or a whole bucket
    #[command(visible_alias = "del")]
    Rm(RmArgs),
    /// Forbid every further change of a bucket
    Seal(bucket::SealArgs),
    /// Follow the changes of a bucket
    Watch(bucket::WatchArgs),
}

/// A bucket and perhaps a file in it.
#[derive(Debug, Clone, Args)]
pub struct InfoArgs {
    /// Bucket name
    bucket: String,
    /// Name of the file in the bucket
    file: Option<String>,
}

/// Options of `object rm`.
#[derive(Debug, Clone, Args)]
pub struct RmArgs {
    #[command(flatten)]
    name: InfoArgs,
    /// Do not ask
    #[arg(long, short)]
    force: bool,
}

/// Runs a command about object stores.
pub fn run(command: &ObjectCommand, connect: &ConnectArgs) -> Result<(), CliError> {
    match command {
        ObjectCommand::Add(args) => bucket::add(args, connect),
        ObjectCommand::Put(args) => transfer::put(args, connect),
        ObjectCommand::Get(args) => transfer::get(args, connect),
        ObjectCommand::Ls(args) => bucket::ls(args, connect),
        ObjectCommand::Info(args) => match &args.file {
            Some(file) => meta::info(&args.bucket, file, connect),
            None => bucket::info(&args.bucket, connect),
        },
        ObjectCommand::Rm(args) => match &args.name.file {
            Some(file) => transfer::rm(&args.name.bucket, file, args.force, connect),
            None => bucket::rm(&args.name.bucket, args.force, connect),
        },
        ObjectCommand::Seal(args) => bucket::seal(args, connect),
        ObjectCommand::Watch(args) => bucket::watch(args, connect),
    }
}

/// What the streams behind buckets begin with.
const STREAM_PREFIX: &str = "OBJ_";

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
