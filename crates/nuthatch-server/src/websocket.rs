//! Clients over websocket: the protocol text of NATS in the data frames of RFC 6455, with the
//! compression of RFC 7692.
//!
//! A websocket is a pair of adapters, [`input::Input`] and [`output::Output`], between a connection's
//! tasks and its socket; nothing else in the server knows of frames. The framing is ours because no
//! kept library has server-side compression, streaming payloads and vectored writes.

use crate::close_reason::CloseReason;
use crate::options::WebsocketOptions;
use std::fmt::{Arguments, Display};
use tokio::io::{AsyncRead, AsyncReadExt};

pub(crate) use self::control::Control;
pub(crate) use self::input::Input;
pub(crate) use self::output::Output;
pub(crate) use self::upgrade::Refusal;
pub use self::upgrade::{Cookies, Upgrade};

mod control;
pub(crate) mod dial;
mod frame;
mod input;
mod output;
mod upgrade;

/// Largest head of a request.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// The connection that a websocket belongs to, as its adapters see it.
pub(crate) trait Owner: Display + Send + Sync + 'static {
    /// Largest payload of a message, in bytes.
    fn max_payload_bytes(&self) -> usize;

    /// Lets what the control frames hold be written.
    fn wake_writer(&self);

    /// Closes the connection because of what its client sent, and logs why.
    fn broken(&self, reason: CloseReason, why: Arguments<'_>);

    /// Why it was closed, if it was.
    fn close_reason(&self) -> Option<CloseReason>;
}

/// Reads the request of a client: the upgrade and the answer that accepts it. `None`: the client went
/// away.
pub(crate) async fn read_request<S: AsyncRead + Unpin>(
    socket: &mut S,
    options: &WebsocketOptions,
    tls: bool,
) -> Result<Option<(Upgrade, Vec<u8>)>, Refusal> {
    let mut head = Vec::with_capacity(1024);
    loop {
        match socket.read_buf(&mut head).await {
            Ok(count) if count > 0 => {}
            _ => return Ok(None),
        }
        if let Some(done) = upgrade::examine(&head, options, tls)? {
            return Ok(Some(done));
        }
        if head.len() > HEAD_BYTES_MAX {
            let why = format!("the request is longer than {HEAD_BYTES_MAX} bytes");
            return Err(Refusal { status: 431, why });
        }
    }
}
