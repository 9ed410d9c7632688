//! What it takes to bring streams elsewhere while they are used: to another log of the server
//! (`bench move`), and here from a nats-server (`bench import`).

pub mod importing;
mod load;
pub mod moving;

use crate::harness::BenchError;
use crate::report::RunReport;

/// A stream that was not filled as asked is not measured.
fn without_errors(report: RunReport) -> Result<(), BenchError> {
    match report.first_error {
        None => Ok(()),
        Some(error) => Err(BenchError::Failed(format!("the stream could not be filled: {error}"))),
    }
}
