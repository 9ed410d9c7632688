//! What it takes to bring streams elsewhere while they are used: to another log of the server
//! (`bench move`), and here from a nats-server (`bench import`).

pub mod importing;
mod load;
pub mod moving;

use std::path::{Path, PathBuf};

use crate::compare::file_error;
use crate::harness::BenchError;
use crate::report::RunReport;

/// The Nuthatch binary that was named, or this one.
fn program(named: Option<&Path>) -> Result<PathBuf, BenchError> {
    match named {
        Some(path) => std::path::absolute(path).map_err(file_error("find", path)),
        None => std::env::current_exe().map_err(file_error("find", Path::new("this binary"))),
    }
}

/// A stream that was not filled as asked is not measured.
fn without_errors(report: RunReport) -> Result<(), BenchError> {
    match report.first_error {
        None => Ok(()),
        Some(error) => Err(BenchError::Failed(format!("the stream could not be filled: {error}"))),
    }
}
