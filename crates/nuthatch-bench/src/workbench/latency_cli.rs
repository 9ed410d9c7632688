//! The command line of `bench latency`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::latency::{self, Column, Pacing, TestSize};
use crate::harness::{BenchError, Target};
use crate::picture;
use crate::plot::{self, Series};
use crate::queue::QueueSpec;
use crate::table::Table;
use nuthatch_client::connect::ConnectArgs;

/// One-way latency for the payload sizes of seed 003: core NATS, then JetStream
///
/// The sizes and counts of the NATS Java client's benchmark (seed 003,
/// https://nats.io/blog/java-client-latency-benchmarking/):
///
///   none    5000 messages of 0, 8, 32, 256, 512, 1024, 4096, 8192 bytes
///   nano       5 messages of 0, 8, 32, 256, 512 bytes
///   tiny      50 messages of 0, 8, 32, 256, 512, 1024 bytes
///   small    250 messages of 0, 8, 32, 256, 512, 1024 bytes
///   med     2500 messages of 0, 8, 32, 256, 512, 1024, 4096, 8192 bytes
///   large  25000 messages of 0, 8, 32, 256, 512, 1024, 4096, 8192 bytes
///
/// The tables are in microseconds (that of the seed says nanos, but its CSV shows that it prints
/// microseconds); the CSV is in nanoseconds.
#[derive(Debug, Clone, Args)]
#[command(verbatim_doc_comment)]
pub struct LatencyArgs {
    /// Which test
    #[arg(value_enum, default_value_t, hide_possible_values = true)]
    size: TestSize,
    /// Write a row per message and a column per payload size, in nanoseconds
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw the distribution as SVG or PNG, also several times; JetStream's goes to a file with
    /// `-jetstream` before the ending
    #[arg(long, value_name = "FILE.svg|FILE.png")]
    histogram: Vec<PathBuf>,
    /// Open loop: messages per second, latencies count from when a message was due (default: the
    /// next message when the last one has arrived, as in the seed)
    #[arg(long)]
    rate: Option<f64>,
    /// Leave JetStream out
    #[arg(long)]
    core_only: bool,
}

/// Runs `bench latency` and returns what to print.
///
/// # Errors
/// When the server cannot be reached, a message is lost, or a file cannot be written.
pub fn run(args: &LatencyArgs, connect: &ConnectArgs) -> Result<String, BenchError> {
    for path in &args.histogram {
        picture::check(path)?;
    }
    let target = Target {
        options: connect.options()?,
        server_pid: None,
        timeout: connect.timeout,
        watched: None,
    };
    let pacing = Pacing { rate: args.rate, column_limit: None };
    let core = latency::core(&target, args.size, pacing)?;
    write_files(args, "", "Core publish and subscribe", &core)?;
    let jetstream = match args.core_only {
        true => None,
        false => {
            let spec = QueueSpec {
                driver: "nats".into(),
                url: connect.server.clone(),
                name: "benchlatency".into(),
                settings: Default::default(),
            };
            let columns = latency::durable(&spec, args.size, pacing)?;
            write_files(args, "-jetstream", "JetStream, publish to delivery", &columns)?;
            Some(columns)
        }
    };
    if connect.json {
        let summaries =
            |columns: &[Column]| columns.iter().map(Column::summary).collect::<Vec<_>>();
        let value = json!({ "unit": "µs", "core": summaries(&core),
            "jetstream": jetstream.as_deref().map(summaries) });
        return Ok(value.to_string());
    }
    let mut out = format!("Core latency in µs\n{}", table(&core));
    if let Some(columns) = &jetstream {
        out += &format!(
            "\nJetStream latency in µs, from the publish to the delivery\n{}",
            table(columns)
        );
    }
    Ok(out)
}

/// The columns of the seed's table and two percentiles more.
pub fn table(columns: &[Column]) -> Table {
    let mut table =
        Table::new(&["payload", "count", "min", "median", "p99", "p99.9", "max", "std dev"]);
    for column in columns {
        let s = column.summary();
        let mut cells =
            vec![format!("{} bytes", s.payload_bytes), crate::report::thousands(s.count as f64)];
        let numbers = [s.min, s.median, s.p99, s.p999, s.max];
        cells.extend(numbers.map(|value| format!("{value:.2}")));
        cells.push(format!("+/- {:.2}", s.std_dev));
        table.row(cells);
    }
    table
}

fn write_files(
    args: &LatencyArgs,
    suffix: &str,
    title: &str,
    columns: &[Column],
) -> Result<(), BenchError> {
    if let Some(path) = &args.csv {
        write(&with_suffix(path, suffix), latency::csv(columns).as_bytes())?;
    }
    let series: Vec<Series> = columns.iter().enumerate().map(series).collect();
    for path in &args.histogram {
        picture::write(&with_suffix(path, suffix), &plot::histogram(title, "µs", &series))?;
    }
    Ok(())
}

fn series((colour, column): (usize, &Column)) -> Series {
    let points = column.ns.iter().map(|ns| (*ns as f64 / 1000.0, 1.0)).collect();
    Series { name: format!("{} bytes", column.payload_bytes), points, colour }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = match path.extension() {
        Some(ending) => format!("{stem}{suffix}.{}", ending.to_string_lossy()),
        None => format!("{stem}{suffix}"),
    };
    path.with_file_name(name)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), BenchError> {
    fs::write(path, bytes).map_err(crate::compare::file_error("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files() {
        assert_eq!(with_suffix(Path::new("/a/b.csv"), "-x"), Path::new("/a/b-x.csv"));
        assert_eq!(with_suffix(Path::new("b"), "-x"), Path::new("b-x"));
    }
}
