//! Why a request was not answered as asked.

use hyper::StatusCode;
use serde_json::{Value, json};

/// A failure, as the browser is told.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The request is wrong.
    #[error("{0}")]
    BadRequest(String),
    /// Nobody is logged in, or no longer.
    #[error("{0}")]
    NotLoggedIn(String),
    /// The request did not come from the console's own page.
    #[error("refused: {0}")]
    Foreign(&'static str),
    /// The console changes nothing.
    #[error("this console is read-only")]
    ReadOnly,
    /// Nobody may use the console.
    #[error("this console is closed: {0}")]
    Closed(String),
    /// The user may not do that.
    #[error("your user may not do this: {0}")]
    Denied(String),
    /// There is no such page or thing.
    #[error("{0} not found")]
    NotFound(String),
    /// The broker said no.
    #[error("{description} ({err_code})")]
    Refused {
        /// HTTP-like class.
        code: u64,
        /// Entry of JetStream's error table.
        err_code: u64,
        /// Words.
        description: String,
    },
    /// Nobody listens on a subject.
    #[error("nobody listens on {0:?}")]
    NoResponders(String),
    /// Too much is asked at a time.
    #[error("too many requests at a time; try again")]
    Busy,
    /// A body is too large.
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    /// The broker did not answer in time.
    #[error("no answer in time")]
    TimedOut,
    /// The broker cannot be asked.
    #[error("the broker cannot be asked: {0}")]
    Unavailable(String),
}

impl Failure {
    /// A wrong request, in words.
    pub fn bad(text: impl Into<String>) -> Self {
        Self::BadRequest(text.into())
    }

    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::NotLoggedIn(_) => StatusCode::UNAUTHORIZED,
            Self::Foreign(_) | Self::ReadOnly | Self::Closed(_) | Self::Denied(_) => {
                StatusCode::FORBIDDEN
            }
            Self::NotFound(_) | Self::Refused { code: 404, .. } => StatusCode::NOT_FOUND,
            Self::Refused { .. } => StatusCode::CONFLICT,
            Self::NoResponders(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Busy => StatusCode::TOO_MANY_REQUESTS,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            Self::Unavailable(_) => StatusCode::BAD_GATEWAY,
        }
    }

    /// The body of the answer.
    pub fn body(&self) -> Value {
        let mut body = json!({ "error": self.to_string() });
        if let Self::Refused { err_code, .. } = self {
            body["err_code"] = (*err_code).into();
        }
        body
    }
}
