//! Errors of client commands, and the exit code of each.

use std::io;
use std::process::ExitCode;

use nuthatch_bench::cli::BenchError;
use nuthatch_client::connect::SettingsError;
use nuthatch_client::connect::context::ContextError;
use nuthatch_client::js::{ApiError, JsError};
use nuthatch_client::{ConnectError, RequestError, TransportError};

/// Exit code for a command line that makes no sense; clap uses the same.
const EXIT_USAGE: u8 = 2;

/// Why a client command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The command line makes no sense.
    #[error("{0}")]
    Usage(String),
    /// An address, a context or a file with credentials is unusable.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A context is unusable.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A request got no reply.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A JetStream request failed.
    #[error("{what}: {source}{}", damage_note(&source.to_string()))]
    Js {
        /// The operation, such as `stream ORDERS`.
        what: String,
        /// Why it failed.
        source: JsError,
    },
    /// JetStream did not take a published message.
    #[error("the message was not stored: {0}")]
    NotStored(String),
    /// A stream refused a published message.
    #[error("the message was not stored: {} ({})", .0.description, .0.err_code)]
    Refused(ApiError),
    /// It does not exist.
    #[error("{0}")]
    NotFound(String),
    /// A check found the state that it reports; the report has been printed.
    #[error("the check failed")]
    Check(u8),
    /// Something else did not work.
    #[error("{0}")]
    Failed(String),
    /// A pull did not bring all messages.
    #[error("consumer {consumer}: {reason}")]
    Pull {
        /// The consumer's name.
        consumer: String,
        /// Why it ended.
        reason: String,
    },
    /// A measurement failed.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// Input or output failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The user said no.
    #[error("nothing was done")]
    Declined,
}

/// Note behind a server's error when it means that a stored message cannot be read.
pub fn damage_note(text: &str) -> &'static str {
    if text.contains("can not be read") {
        "; the stream is damaged: `nuthatch doctor` on the stopped server's directory says where"
    } else {
        ""
    }
}

impl CliError {
    /// Adds what was attempted to a JetStream error.
    pub fn js(what: impl Into<String>) -> impl FnOnce(JsError) -> Self {
        let what = what.into();
        |source| Self::Js { what, source }
    }

    /// 0 when only the reader of our output has gone, 2 for usage, a check's own code, otherwise 1.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Io(err) if err.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Self::Usage(_)
            | Self::Settings(_)
            | Self::Context(_)
            | Self::Bench(BenchError::Url(_) | BenchError::Settings(_) | BenchError::Usage(_)) => {
                ExitCode::from(EXIT_USAGE)
            }
            Self::Check(code) => ExitCode::from(*code),
            _ => ExitCode::FAILURE,
        }
    }

    /// True if there is anything to tell.
    pub fn is_silent(&self) -> bool {
        match self {
            Self::Io(err) => err.kind() == io::ErrorKind::BrokenPipe,
            Self::Check(_) => true,
            _ => false,
        }
    }
}
