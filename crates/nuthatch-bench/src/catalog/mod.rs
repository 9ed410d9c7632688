//! `bench catalog`: how long does a server with an empty disk take until it serves a bucket that
//! holds very much? Builds a log of many streams, subjects, consumers and messages in a bucket, with
//! the log's own writer, then starts the server on it and asks what only a server that knows all of
//! it can answer: whether a publish that expects the last sequence of a subject is right, and how
//! many messages a filtered consumer has before it.
//!
//! Messages do not pass sockets or acknowledgements on their way in, so that a hundred million take
//! a minute or two; frames, footers, states and checkpoints are those of any log.

mod build;
mod check;
mod shape;
mod table;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;

use crate::compare::server::{Contender, Further, Server, file_error};
use crate::harness::BenchError;
use crate::peers::minio::Minio;
use crate::process;
use crate::requests::{self, Requests};
use build::Builder;
use nuthatch_client::units::parse_number;
use shape::Shape;

/// How long a ready server is left alone before its memory is read once more.
const SETTLE: Duration = Duration::from_secs(2);

/// Build a large log in a bucket and measure how long a server takes until it serves it
///
/// Streams, consumers and messages are written by the log's own writer, not published one by one.
/// Then the server is started on the bucket with an empty directory, three times: it takes the log over
/// from its builder, which has not closed it, then from a server that was killed, then from one that
/// ended in order. Time until its API answers, time until a publish that expects the last sequence of its
/// subject, one that expects a wrong one, and the exact num_pending of filtered consumers came out
/// right, memory, and requests to the store. One hundred million messages take 6 GB in the bucket
/// and 5 GB of memory.
#[derive(Debug, Clone, Args)]
#[command(verbatim_doc_comment)]
pub struct CatalogArgs {
    /// The Nuthatch binary (default: this one)
    #[arg(long, value_name = "PATH")]
    nuthatch: Option<PathBuf>,
    /// Directory for the bucket, the server's files and a MinIO
    #[arg(long, default_value = ".", value_name = "DIR")]
    dir: PathBuf,
    /// Use this bucket, which must hold no log (default: a directory, removed afterwards)
    #[arg(long, value_name = "URL", conflicts_with = "minio")]
    store: Option<String>,
    /// Start a MinIO and use a bucket in it, removed afterwards
    #[arg(long)]
    minio: bool,
    /// Do not build: measure what is in --store already, built with the same numbers
    #[arg(long, requires = "store")]
    built: bool,
    /// Messages over all streams
    #[arg(long, default_value = "100M", value_parser = parse_number)]
    msgs: u64,
    /// Streams
    #[arg(long, default_value = "10k", value_parser = parse_number)]
    streams: u64,
    /// Subjects over all streams
    #[arg(long, default_value = "1M", value_parser = parse_number)]
    subjects: u64,
    /// Durable consumers over all streams, each with one subject as its filter
    #[arg(long, default_value = "10k", value_parser = parse_number)]
    consumers: u64,
    /// Body size in bytes
    #[arg(long, default_value = "8", value_parser = parse_number)]
    size: u64,
    /// Write the table between the markers <!-- catalog:begin --> and <!-- catalog:end --> of this file
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// Result of one start.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    /// The preceding step.
    pub(crate) what: &'static str,
    /// Time until the API answered.
    pub(crate) ready: Duration,
    /// Time until all answers were there and right.
    pub(crate) right: Duration,
    /// Resident memory in bytes, and its peak.
    pub(crate) memory_bytes: u64,
    pub(crate) peak_bytes: u64,
    /// What it asked of the store until then.
    pub(crate) requests: Requests,
}

/// Location of the log, and what is removed after the measurement.
struct CatalogStore {
    url: String,
    /// For people.
    what: String,
    env: Vec<(String, String)>,
    /// Removed in the end.
    dir: Option<PathBuf>,
    _minio: Option<Minio>,
}

impl CatalogStore {
    fn new(args: &CatalogArgs, dir: &Path) -> Result<Self, BenchError> {
        if args.minio {
            let minio = Minio::start(dir, "catalog")?;
            let (url, what) = ("s3://catalog/log".to_owned(), "a MinIO with one drive".to_owned());
            return Ok(Self { url, what, env: minio.env(), dir: None, _minio: Some(minio) });
        }
        if let Some(url) = &args.store {
            let (url, what) = (url.clone(), url.clone());
            return Ok(Self { url, what, env: Vec::new(), dir: None, _minio: None });
        }
        let bucket = dir.join(format!("bucket-{:x}", nuthatch_client::random_u64()));
        std::fs::create_dir_all(&bucket).map_err(file_error("create", &bucket))?;
        let url = format!("file://{}", bucket.display());
        let what = "a directory".to_owned();
        Ok(Self { url, what, env: Vec::new(), dir: Some(bucket), _minio: None })
    }
}

impl Drop for CatalogStore {
    fn drop(&mut self) {
        if let Some(dir) = &self.dir {
            // Nothing is lost when it stays.
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

/// Builds, measures, and returns a table.
///
/// # Errors
/// When the store fails, a server does not start, or answers wrongly.
pub fn run(args: &CatalogArgs) -> Result<String, BenchError> {
    let shape = Shape::new(args)?;
    let dir = std::path::absolute(&args.dir).map_err(file_error("find", &args.dir))?;
    let place = CatalogStore::new(args, &dir)?;
    let builder = match args.built {
        true => None,
        false => Some(build::build(&shape, &place.url, &place.env)?),
    };
    let built = builder.as_ref().map(|builder| builder.built.clone());
    eprintln!("{built:?}");
    let command = crate::own::program(args.nuthatch.as_deref())?;
    let contender = Contender {
        name: "server".into(),
        command: vec![command, "serve".into()],
        sync_interval: None,
        slow_publish: false,
        further: Further {
            jetstream: format!("store: {:?}", place.url),
            env: place.env.clone(),
            monitoring: true,
        },
    };
    let starts = measure_all(args, &contender, &shape, &dir, builder)?;
    let text = table::render(&shape, &place.what, built.as_ref(), &starts);
    if let Some(path) = &args.markdown {
        crate::compare::write_markdown(path, "catalog", text.trim_end())?;
    }
    Ok(text)
}

/// Each start has an empty directory and takes over what the one before left.
fn measure_all(
    args: &CatalogArgs,
    contender: &Contender,
    shape: &Shape,
    dir: &Path,
    builder: Option<Builder>,
) -> Result<Vec<Start>, BenchError> {
    // What earlier measurements of a kept log published is not known here.
    let published = |number| (!args.built).then_some(number);
    let server = Server::start(contender, dir)?;
    let what =
        if args.built { "as it is" } else { "taken over from its builder, open segment full" };
    let first = measure(what, &server, shape, published(0))?;
    if let Some(builder) = builder {
        builder.end();
    }
    // Kills it.
    drop(server);
    let server = Server::start(contender, dir)?;
    let second = measure("after the server was killed", &server, shape, published(1))?;
    server.stop();
    let server = Server::start(contender, dir)?;
    let third = measure("after a clean end", &server, shape, published(2))?;
    Ok(vec![first, second, third])
}

fn measure(
    what: &'static str,
    server: &Server,
    shape: &Shape,
    published: Option<u64>,
) -> Result<Start, BenchError> {
    let ready = server.start_time;
    let asked = Instant::now();
    check::answers(&server.target()?, shape, published)?;
    let right = ready + asked.elapsed();
    let requests =
        requests::requests(server.monitoring().unwrap_or_default(), requests::OUR_METRICS)?;
    std::thread::sleep(SETTLE);
    let usage = process::usage(server.pid()).unwrap_or_default();
    let (memory_bytes, peak_bytes) = (usage.rss_bytes, usage.peak_rss_bytes);
    let start = Start { what, ready, right, memory_bytes, peak_bytes, requests };
    eprintln!("{start:?}");
    Ok(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(store: String) -> CatalogArgs {
        CatalogArgs {
            nuthatch: None,
            dir: ".".into(),
            store: Some(store),
            minio: false,
            built: false,
            msgs: 5_003,
            streams: 7,
            subjects: 35,
            consumers: 9,
            size: 8,
            markdown: None,
        }
    }

    /// What is built is what the arithmetic of the checks says.
    #[test]
    fn a_small_log_holds_what_it_should() {
        let name = format!("nuthatch-bench-catalog-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).expect("a directory");
        let url = format!("file://{}", dir.display());
        let shape = Shape::new(&args(url.clone())).expect("it makes sense");
        let builder = build::build(&shape, &url, &[]).expect("it is built");
        assert!(builder.built.requests.requests > 0);
        let counted = build::count(&url, &[]).expect("it is opened again");
        builder.end();
        std::fs::remove_dir_all(&dir).expect("it was there");
        assert_eq!((counted.streams, counted.consumers, counted.messages), (7, 9, 5_003));
    }
}
