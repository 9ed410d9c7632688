//! `bench objects`: logs kept as objects, compared in one run: Nuthatch and Woodpecker, each on a
//! MinIO of its own with the same settings on the same disk, beside what that MinIO takes from a
//! client that only puts objects and burns as much CPU per byte as Nuthatch and its client do.
//!
//! Requests are counted by the MinIO, so they are counted alike.

mod load;
mod page;
mod raw;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::compare;
use crate::compare::machine::Machine;
use crate::harness::BenchError;
use crate::peers::{self, Peer};
use crate::scale;
use load::{Found, Load};
use nuthatch_client::units::{parse_duration, parse_number};
use page::Page;
use raw::RawPuts;

/// Messages of all batches on their way, where messages are small.
const WINDOW_MESSAGES: usize = 20_000;

/// Body size of the rows that count requests and of single messages.
const SMALL_BYTES: usize = 1024;

/// Compare logs that are kept as objects: Nuthatch and Woodpecker on MinIO
///
/// One run: throughput at each body size beside the rate of plain puts while burning the same CPU;
/// latency of single messages beside that of a put; requests per million messages at several counts
/// of streams, for which Woodpecker opens a log each, as many as it can within --setup-limit. Bodies
/// do not compress. Needs the peers nuthatch-minio and woodpecker-minio (see `nuthatch bench
/// peers`). Prints Markdown. With the defaults it takes about seven minutes.
#[derive(Debug, Clone, Args)]
#[command(verbatim_doc_comment)]
pub struct ObjectsArgs {
    /// Directory for the stores, on the disk to be measured
    #[arg(long, default_value = ".", value_name = "DIR")]
    dir: PathBuf,
    /// Peers that keep objects, the first of which the plain puts are compared with
    #[arg(long, value_delimiter = ',', default_value = "nuthatch-minio,woodpecker-minio")]
    systems: Vec<String>,
    /// Body sizes, with commas
    #[arg(long, value_delimiter = ',', default_value = "1KiB,64KiB,1MiB", value_parser = parse_number)]
    sizes: Vec<u64>,
    /// Connections that send at a time; each waits for its batch before the next
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1000))]
    senders: u16,
    /// Bytes of all batches on their way, where messages are large
    #[arg(long, default_value = "64MiB", value_parser = parse_number)]
    window: u64,
    /// Counts of streams for the requests per million messages; none with 0
    #[arg(long, value_delimiter = ',', default_value = "1,100,10k", value_parser = parse_number)]
    streams: Vec<u64>,
    /// Length of each measurement
    #[arg(long = "for", default_value = "8s", value_parser = parse_duration)]
    span: Duration,
    /// How long opening many streams may take
    #[arg(long, default_value = "60s", value_parser = parse_duration)]
    setup_limit: Duration,
    /// Write the tables between the markers <!-- objects:begin --> and <!-- objects:end --> of this file
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

impl Load {
    /// As many messages on their way as make sense for their size.
    fn full(bytes: usize, args: &ObjectsArgs) -> Self {
        let senders = usize::from(args.senders);
        let window = (args.window as usize / bytes.max(1)).min(WINDOW_MESSAGES);
        let batch = (window / senders).max(1);
        let setup_limit = Duration::ZERO;
        Self { streams: 1, senders, batch, bytes, span: args.span, setup_limit }
    }

    /// One at a time.
    const fn light(span: Duration) -> Self {
        let setup_limit = Duration::ZERO;
        Self { streams: 1, senders: 1, batch: 1, bytes: SMALL_BYTES, span, setup_limit }
    }
}

/// Measures everything; returns Markdown.
///
/// # Errors
/// When a peer is not known, or a file cannot be written. What fails to be measured is said in the
/// tables.
pub fn run(args: &ObjectsArgs) -> Result<String, BenchError> {
    let systems: Result<Vec<&'static Peer>, BenchError> =
        args.systems.iter().map(|name| Peer::named(name)).collect();
    let systems = systems?;
    if let Some(other) = systems.iter().find(|peer| !peer.on_objects) {
        let text = format!("{} does not keep its log as objects", other.name);
        return Err(BenchError::Usage(text));
    }
    scale::raise_file_limit();
    let version = |peer: &&'static Peer| {
        let version = peers::cli::version(peer);
        (peer.name.to_owned(), version.unwrap_or_else(|| "not installed".into()))
    };
    let versions: Vec<_> = systems.iter().map(version).collect();
    let mut page = Page::new(&Machine::read(&versions), args.span);
    for bytes in &args.sizes {
        throughput(args, &systems, *bytes as usize, &mut page);
    }
    latency(args, &systems, &mut page);
    for streams in args.streams.iter().filter(|streams| **streams > 0) {
        requests(args, &systems, *streams, &mut page);
    }
    let text = page.text();
    if let Some(path) = &args.markdown {
        compare::write_markdown(path, "objects", text.trim_end())?;
    }
    Ok(text)
}

fn measure(args: &ObjectsArgs, peer: &'static Peer, load: &Load) -> Result<Found, String> {
    eprintln!("{}: {load:?}", peer.name);
    let found = load::run(peer, &args.dir, load).map_err(|error| error.to_string());
    eprintln!("  {found:?}");
    found
}

fn throughput(args: &ObjectsArgs, systems: &[&'static Peer], bytes: usize, page: &mut Page) {
    let load = Load::full(bytes, args);
    let found: Vec<_> = systems.iter().map(|peer| (*peer, measure(args, peer, &load))).collect();
    let burnt =
        found.first().and_then(|(_, found)| found.as_ref().ok()).map(Found::own_cpu_s_per_byte);
    let raw = burnt.map(|cpu_s_per_byte| {
        let puts = RawPuts { cpu_s_per_byte, span: args.span / 2 };
        let raw = puts.best(&args.dir).map_err(|error| error.to_string());
        eprintln!("plain puts: {raw:?}");
        raw
    });
    page.throughput(&load, &found, raw);
}

fn latency(args: &ObjectsArgs, systems: &[&'static Peer], page: &mut Page) {
    let load = Load::light(args.span / 2);
    let found: Vec<_> = systems.iter().map(|peer| (*peer, measure(args, peer, &load))).collect();
    let put = raw::single(&args.dir, args.span / 4).map_err(|error| error.to_string());
    page.latency(&found, put);
}

fn requests(args: &ObjectsArgs, systems: &[&'static Peer], streams: u64, page: &mut Page) {
    let full = Load::full(SMALL_BYTES, args);
    // One sender for all streams, so that it is the same messages for everybody.
    let (senders, batch, setup_limit) = (1, full.batch * full.senders, args.setup_limit);
    let load = Load { streams, senders, batch, setup_limit, ..full };
    for peer in systems {
        page.requests(streams, peer, measure(args, peer, &load));
    }
}
