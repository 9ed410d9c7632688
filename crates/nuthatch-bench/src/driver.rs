//! The client libraries that can drive the JetStream workloads.

use crate::harness::{BenchError, Target};
use crate::report::RunReport;
use crate::workload::js_pub::JsPub;
use crate::workload::js_read::JsRead;

/// A client library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Driver {
    /// Our own, with the least work per message
    #[default]
    Lean,
    /// The NATS project's client for Rust
    #[cfg(feature = "async-nats")]
    AsyncNats,
}

impl Driver {
    /// All that this build has.
    #[cfg(feature = "workbench")]
    pub const ALL: &[Self] = &[
        Self::Lean,
        #[cfg(feature = "async-nats")]
        Self::AsyncNats,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lean => "lean",
            #[cfg(feature = "async-nats")]
            Self::AsyncNats => "async-nats",
        }
    }

    /// Runs a publishing workload once.
    ///
    /// # Errors
    /// Like [`JsPub::run`].
    pub fn publish(self, workload: &JsPub, target: &Target) -> Result<RunReport, BenchError> {
        match self {
            Self::Lean => workload.run(target),
            #[cfg(feature = "async-nats")]
            Self::AsyncNats => crate::async_driver::publish(workload, target),
        }
    }

    /// Runs a reading workload once.
    ///
    /// # Errors
    /// Like [`JsRead::run`].
    pub fn read(self, workload: &JsRead, target: &Target) -> Result<RunReport, BenchError> {
        match self {
            Self::Lean => workload.run(target),
            #[cfg(feature = "async-nats")]
            Self::AsyncNats => crate::async_driver::read(workload, target),
        }
    }
}
