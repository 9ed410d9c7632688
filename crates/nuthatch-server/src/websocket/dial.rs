//! The handshake as a client: this server connects to another one as a leaf node.

use super::upgrade::{KEY_BYTES, LEAF_PATH, accept_key};
use crate::options::RemoteOptions;
use crate::random::fill_random;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Bytes of the head of an answer.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Headers of an answer that are looked at.
const HEADERS_MAX: usize = 64;
const EXTENSION: &str =
    "permessage-deflate; server_no_context_takeover; client_no_context_takeover";

/// Why there is no websocket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// The connection is gone.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The answer is longer than any should be.
    #[error("the answer's head is longer than {HEAD_BYTES_MAX} bytes")]
    TooLong,
    /// The answer is no HTTP.
    #[error("the answer cannot be read: {0}")]
    Unreadable(#[from] httparse::Error),
    /// No.
    #[error("invalid websocket connection: status {0}")]
    Status(u16),
    /// Not a websocket, or of another one's key.
    #[error("invalid websocket connection: {0}")]
    Answer(&'static str),
}

/// What was agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Agreed {
    /// Messages may be compressed.
    pub(crate) compress: bool,
    /// What goes out is masked.
    pub(crate) masked: bool,
}

/// Asks for a websocket under `path`, and waits for the answer.
///
/// # Errors
/// [`DialError`]
pub(crate) async fn dial<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut S,
    (authority, path): (&str, &str),
    remote: &RemoteOptions,
) -> Result<Agreed, DialError> {
    let mut raw = [0; KEY_BYTES];
    fill_random(&mut raw);
    let key = STANDARD.encode(raw);
    let mut request = format!(
        "GET {path}{LEAF_PATH} HTTP/1.1\r\nHost: {authority}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
    );
    if remote.websocket_compression {
        request.push_str(&format!("Sec-WebSocket-Extensions: {EXTENSION}\r\n"));
    }
    if remote.websocket_unmasked {
        request.push_str("Nats-No-Masking: true\r\n");
    }
    request.push_str("\r\n");
    socket.write_all(request.as_bytes()).await?;
    socket.flush().await?;
    let head = read_head(socket, HEAD_BYTES_MAX).await?.ok_or(DialError::TooLong)?;
    let asked =
        Agreed { compress: remote.websocket_compression, masked: !remote.websocket_unmasked };
    agreed(&head, &key, asked)
}

/// The head of an answer to an HTTP request, and nothing of what follows; `None`: it is longer than `max`.
pub(crate) async fn read_head<S: AsyncRead + Unpin>(
    socket: &mut S,
    max: usize,
) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::with_capacity(512);
    // Byte by byte: what comes behind it is another protocol's, perhaps that of TLS.
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == max {
            return Ok(None);
        }
        head.push(socket.read_u8().await?);
    }
    Ok(Some(head))
}

fn agreed(head: &[u8], key: &str, asked: Agreed) -> Result<Agreed, DialError> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut answer = httparse::Response::new(&mut headers);
    answer.parse(head)?;
    let status = answer.code.unwrap_or_default();
    if status != 101 {
        return Err(DialError::Status(status));
    }
    let values = |name: &'static str| {
        let of_name = answer.headers.iter().filter(move |h| h.name.eq_ignore_ascii_case(name));
        of_name.filter_map(|header| std::str::from_utf8(header.value).ok()).map(str::trim)
    };
    let is = |name, wanted: &str| values(name).any(|value| value.eq_ignore_ascii_case(wanted));
    if !is("Upgrade", "websocket") || !is("Connection", "upgrade") {
        return Err(DialError::Answer("it is no websocket"));
    }
    if values("Sec-WebSocket-Accept").next() != Some(accept_key(key).as_str()) {
        return Err(DialError::Answer("it answers another request"));
    }
    let mut extensions = values("Sec-WebSocket-Extensions").flat_map(|value| value.split(','));
    let deflate = extensions.find(|value| value.trim().starts_with("permessage-deflate"));
    let compress = match deflate {
        None => false,
        Some(_) if !asked.compress => {
            return Err(DialError::Answer("compression that nobody has asked for"));
        }
        Some(with) => {
            let has = |wanted| with.split(';').any(|part| part.trim().eq_ignore_ascii_case(wanted));
            if !has("server_no_context_takeover") || !has("client_no_context_takeover") {
                return Err(DialError::Answer("compression negotiation error"));
            }
            true
        }
    };
    let masked = asked.masked || !is("Nats-No-Masking", "true");
    Ok(Agreed { compress, masked })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

    fn with(lines: &str, asked: Agreed) -> Result<Agreed, String> {
        let head = format!("HTTP/1.1 101 Switching Protocols\r\n{lines}\r\n");
        agreed(head.as_bytes(), KEY, asked).map_err(|error| error.to_string())
    }

    #[test]
    fn what_a_server_answers() {
        let good = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
        let asked = Agreed { compress: true, masked: false };
        let plain = Agreed { compress: false, masked: true };
        assert_eq!(with(good, asked), Ok(plain));
        assert_eq!(with(&format!("{good}Nats-No-Masking: true\r\n"), plain), Ok(plain));
        let all =
            format!("{good}Nats-No-Masking: true\r\nSec-WebSocket-Extensions: {EXTENSION}\r\n");
        assert_eq!(with(&all, asked), Ok(asked));
        for (lines, why) in [
            ("", "no websocket"),
            (&good.replace("s3p", "s3q"), "another request"),
            (&format!("{good}Sec-WebSocket-Extensions: permessage-deflate\r\n"), "negotiation"),
        ] {
            assert!(with(lines, asked).unwrap_err().contains(why), "{why}");
        }
        assert!(with(&all, plain).unwrap_err().contains("nobody has asked"));
        let refused = agreed(b"HTTP/1.1 404 Not Found\r\n\r\n", KEY, asked);
        assert!(matches!(refused, Err(DialError::Status(404))));
    }
}
