//! Codes and texts of errors, and the border that no panic crosses.

use nuthatch_embed::{BrokerError, CloseError, ConfigError, ConnectFailed, OpenError};
use std::cell::RefCell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// What a function returns. Numbers are part of the ABI, and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// Done.
    Ok = 0,
    /// An argument is null.
    Null = 1,
    /// A text is not UTF-8.
    Utf8 = 2,
    /// The configuration is of no use.
    Config = 3,
    /// The broker did not start.
    Open = 4,
    /// It did not start within `ready_timeout`.
    NotReady = 5,
    /// There is no broker of this number.
    Handle = 6,
    /// This broker was closed.
    Closed = 7,
    /// This broker has ended by itself.
    Dead = 8,
    /// This is a fork of the process that opened brokers.
    Forked = 9,
    /// The system refused something, such as descriptors.
    System = 10,
    /// The broker has no client port.
    NoListener = 11,
    /// The buffer is too small.
    Room = 12,
    /// The broker has ended, but a log did not close cleanly.
    NotClean = 13,
    /// Flags that this version does not know.
    Flags = 14,
    /// A fault of the library.
    Panic = 15,
}

/// A code and a sentence.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Code,
    text: String,
}

impl Failure {
    fn new(code: Code, text: impl ToString) -> Self {
        Self { code, text: text.to_string() }
    }

    pub(crate) fn null(name: &str) -> Self {
        Self::new(Code::Null, format!("{name} is null"))
    }

    pub(crate) fn utf8(name: &str, error: std::str::Utf8Error) -> Self {
        Self::new(Code::Utf8, format!("{name} is not UTF-8: {error}"))
    }

    pub(crate) fn flags(unknown: u32) -> Self {
        Self::new(Code::Flags, format!("this version knows no flags {unknown:#x}"))
    }

    pub(crate) fn handle(number: u64) -> Self {
        Self::new(Code::Handle, format!("{number} is no broker of this process"))
    }

    pub(crate) fn closed() -> Self {
        Self::new(Code::Closed, BrokerError::Closed)
    }

    pub(crate) fn dead(why: &str) -> Self {
        Self::new(Code::Dead, BrokerError::Dead(why.to_owned()))
    }

    pub(crate) fn forked() -> Self {
        Self::new(
            Code::Forked,
            "this process is a fork of one that opened brokers: their threads are not here; fork before, or exec after",
        )
    }

    pub(crate) fn no_listener() -> Self {
        Self::new(Code::NoListener, "this broker has no client port")
    }

    pub(crate) fn room(needed: usize, size: usize) -> Self {
        Self::new(Code::Room, format!("{needed} bytes are needed, the buffer has {size}"))
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(Code::Config, error)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let code = match &error {
            OpenError::NotReady { .. } => Code::NotReady,
            OpenError::LogFile { .. } | OpenError::Start(_) => Code::Open,
            OpenError::Threads(_) => Code::System,
            OpenError::Panic(_) => Code::Panic,
        };
        Self::new(code, error)
    }
}

impl From<ConnectFailed> for Failure {
    fn from(error: ConnectFailed) -> Self {
        let code = match &error {
            ConnectFailed::Broker(BrokerError::Closed) => Code::Closed,
            ConnectFailed::Broker(BrokerError::Dead(_)) => Code::Dead,
            ConnectFailed::System(_) | ConnectFailed::Client(_) => Code::System,
        };
        Self::new(code, error)
    }
}

impl From<CloseError> for Failure {
    fn from(error: CloseError) -> Self {
        let code = match &error {
            CloseError::NotClean(_) => Code::NotClean,
            CloseError::Dead(_) => Code::Dead,
        };
        Self::new(code, error)
    }
}

/// Runs the body of a function: its code, and the text for `nuthatch_last_error`.
pub(crate) fn guard(body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    let done = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        // What a panic carries may panic itself when it is dropped.
        std::mem::forget(panic);
        Err(Failure::new(
            Code::Panic,
            "a fault of the library; its words are on the standard error stream",
        ))
    });
    match done {
        Ok(()) => {
            note(String::new());
            Code::Ok as c_int
        }
        Err(failure) => {
            note(failure.text);
            failure.code as c_int
        }
    }
}

/// A thread that ends has no last error any more.
fn note(text: String) {
    let _ = LAST.try_with(|last| last.replace(text));
}

/// Hands out the text of this thread's last error.
pub(crate) fn with_last(take: impl FnOnce(&str) -> usize) -> usize {
    LAST.try_with(|last| take(&last.borrow())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        let mut found = String::new();
        with_last(|text| {
            text.clone_into(&mut found);
            text.len()
        });
        found
    }

    #[test]
    fn no_panic_crosses_the_border() {
        struct Rude;
        impl Drop for Rude {
            fn drop(&mut self) {
                panic!("while it is dropped");
            }
        }
        assert_eq!(guard(|| panic!("planted")), Code::Panic as c_int);
        assert!(last().contains("fault of the library"));
        assert_eq!(guard(|| std::panic::panic_any(Rude)), Code::Panic as c_int);
        assert_eq!(guard(|| Ok(())), Code::Ok as c_int);
        assert_eq!(last(), "");
    }

    #[test]
    fn each_thread_has_its_last_error() {
        assert_eq!(guard(|| Err(Failure::null("this"))), Code::Null as c_int);
        std::thread::spawn(|| assert_eq!(last(), "")).join().expect("no panic");
        assert_eq!(last(), "this is null");
    }
}
