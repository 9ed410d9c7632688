//! Websocket frames (RFC 6455 §5): headers, masking, close codes.

use crate::close_reason::CloseReason;

/// Longest header of a frame: 2 bytes, a length of 8 and a mask of 4.
pub const HEADER_BYTES_MAX: usize = 14;
/// Longest payload of a control frame.
pub const CONTROL_BYTES_MAX: usize = 125;

const FINAL: u8 = 0x80;
const COMPRESSED: u8 = 0x40;
const RESERVED: u8 = 0x30;
const MASKED: u8 = 0x80;
const LEN_16: u8 = 126;
const LEN_64: u8 = 127;

/// Type of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opcode {
    /// More of a message that has begun.
    Continuation,
    /// The beginning of a message. Text and binary are the same to us.
    Data,
    /// The end of the connection.
    Close,
    /// To be answered with a pong.
    Ping,
    /// An answer to a ping.
    Pong,
}

/// The header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The last frame of its message.
    pub is_final: bool,
    /// The message is compressed (RFC 7692); only on its first frame.
    pub is_compressed: bool,
    /// Its type.
    pub opcode: Opcode,
    /// The key that the payload is masked with.
    pub mask: Option<[u8; 4]>,
    /// Bytes of payload.
    pub len: u64,
}

/// A protocol error in a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// A reserved bit without a negotiated extension.
    #[error("a reserved bit is set")]
    ReservedBit,
    /// An operation that does not exist.
    #[error("the opcode {0} does not exist")]
    Opcode(u8),
    /// A length with its highest bit set.
    #[error("the length is negative")]
    Length,
    /// A control frame that is in pieces or too long.
    #[error("a control frame is fragmented or longer than {CONTROL_BYTES_MAX} bytes")]
    Control,
}

impl Header {
    /// Reads a header: it and its length; `None` if there are not enough bytes yet.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, FrameError> {
        let [first, second, ..] = *bytes else { return Ok(None) };
        if first & RESERVED != 0 {
            return Err(FrameError::ReservedBit);
        }
        let opcode = match first & 0x0f {
            0 => Opcode::Continuation,
            1 | 2 => Opcode::Data,
            8 => Opcode::Close,
            9 => Opcode::Ping,
            10 => Opcode::Pong,
            other => return Err(FrameError::Opcode(other)),
        };
        let mut at = 2;
        let mut take = |count: usize| -> Option<&[u8]> {
            let found = bytes.get(at..at + count)?;
            at += count;
            Some(found)
        };
        let len = match second & !MASKED {
            LEN_16 => take(2).map(|b| u64::from(u16::from_be_bytes([b[0], b[1]]))),
            LEN_64 => take(8).and_then(|b| b.try_into().ok()).map(u64::from_be_bytes),
            short => Some(u64::from(short)),
        };
        let Some(len) = len else { return Ok(None) };
        let mask = if second & MASKED == 0 {
            None
        } else {
            let Some(key) = take(4) else { return Ok(None) };
            Some([key[0], key[1], key[2], key[3]])
        };
        if len > i64::MAX as u64 {
            return Err(FrameError::Length);
        }
        let is_final = first & FINAL != 0;
        let is_control = !matches!(opcode, Opcode::Data | Opcode::Continuation);
        if is_control && (!is_final || len > CONTROL_BYTES_MAX as u64) {
            return Err(FrameError::Control);
        }
        let is_compressed = first & COMPRESSED != 0;
        if is_compressed && opcode != Opcode::Data {
            return Err(FrameError::ReservedBit);
        }
        Ok(Some((Self { is_final, is_compressed, opcode, mask, len }, at)))
    }

    /// Writes the header of a whole, unmasked message of a server.
    pub fn push_binary(out: &mut Vec<u8>, len: usize, is_compressed: bool) {
        let compressed = if is_compressed { COMPRESSED } else { 0 };
        out.push(FINAL | compressed | 2);
        push_len(out, len);
    }

    /// Writes a whole message of a client, masked with this key.
    pub fn push_masked(out: &mut Vec<u8>, payload: &[u8], is_compressed: bool, key: [u8; 4]) {
        let compressed = if is_compressed { COMPRESSED } else { 0 };
        push_frame(out, FINAL | compressed | 2, payload, Some(key));
    }

    /// Writes a control frame, of a client masked with this key; of `payload` at most [`CONTROL_BYTES_MAX`]
    /// bytes.
    pub fn push_control(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8], key: Option<[u8; 4]>) {
        let code = match opcode {
            Opcode::Close => 8,
            Opcode::Ping => 9,
            _ => 10,
        };
        let payload = &payload[..payload.len().min(CONTROL_BYTES_MAX)];
        push_frame(out, FINAL | code, payload, key);
    }
}

fn push_frame(out: &mut Vec<u8>, first: u8, payload: &[u8], key: Option<[u8; 4]>) {
    out.push(first);
    let second = out.len();
    push_len(out, payload.len());
    let Some(key) = key else { return out.extend_from_slice(payload) };
    out[second] |= MASKED;
    out.extend_from_slice(&key);
    let start = out.len();
    out.extend_from_slice(payload);
    unmask(&mut out[start..], key, 0);
}

#[allow(clippy::cast_possible_truncation)] // each arm has the range of its type
fn push_len(out: &mut Vec<u8>, len: usize) {
    match len {
        0..=125 => out.push(len as u8),
        126..=0xffff => {
            out.push(LEN_16);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        _ => {
            out.push(LEN_64);
            out.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
}

/// Takes the mask off bytes that begin `at` bytes into a payload.
pub fn unmask(bytes: &mut [u8], mask: [u8; 4], at: u64) {
    let mut key = mask;
    key.rotate_left((at % 4) as usize);
    let wide = u64::from_ne_bytes([key[0], key[1], key[2], key[3], key[0], key[1], key[2], key[3]]);
    let mut chunks = bytes.chunks_exact_mut(8);
    for chunk in &mut chunks {
        let word = u64::from_ne_bytes([
            chunk[0], chunk[1], chunk[2], chunk[3], chunk[4], chunk[5], chunk[6], chunk[7],
        ]);
        chunk.copy_from_slice(&(word ^ wide).to_ne_bytes());
    }
    for (byte, key) in chunks.into_remainder().iter_mut().zip(key.iter().cycle()) {
        *byte ^= key;
    }
}

/// The close code that tells a browser why (RFC 6455 §7.4; the choice is nats-server's).
#[must_use]
pub const fn close_code(reason: CloseReason) -> u16 {
    match reason {
        CloseReason::ClientClosed => 1000,
        CloseReason::AuthenticationTimeout
        | CloseReason::AuthenticationViolation
        | CloseReason::AuthenticationExpired
        | CloseReason::SlowConsumerPendingBytes
        | CloseReason::SlowConsumerWriteDeadline
        | CloseReason::MaxConnectionsExceeded
        | CloseReason::MaxControlLineExceeded
        | CloseReason::MissingAccount => 1008,
        CloseReason::TlsHandshakeError => 1015,
        CloseReason::ParseError
        | CloseReason::ProtocolViolation
        | CloseReason::BadClientProtocolVersion => 1002,
        CloseReason::MaxPayloadExceeded => 1009,
        CloseReason::WriteError
        | CloseReason::ReadError
        | CloseReason::StaleConnection
        | CloseReason::ServerShutdown => 1001,
        _ => 1011,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_every_length() {
        for (len, bytes) in [(0, 2), (125, 2), (126, 4), (65535, 4), (65536, 10)] {
            let mut out = Vec::new();
            Header::push_binary(&mut out, len, len == 126);
            assert_eq!(out.len(), bytes);
            for end in 0..out.len() {
                assert_eq!(Header::parse(&out[..end]), Ok(None));
            }
            let (header, at) = Header::parse(&out).unwrap().unwrap();
            assert_eq!((at, header.len, header.mask), (bytes, len as u64, None));
            assert_eq!((header.is_final, header.opcode), (true, Opcode::Data));
            assert_eq!(header.is_compressed, len == 126);
        }
    }

    #[test]
    fn what_is_not_allowed() {
        let fails = |bytes: &[u8], error| assert_eq!(Header::parse(bytes), Err(error));
        fails(&[0x92, 0x80, 0, 0, 0, 0], FrameError::ReservedBit);
        fails(&[0xc9, 0x80, 0, 0, 0, 0], FrameError::ReservedBit);
        fails(&[0x83, 0x80, 0, 0, 0, 0], FrameError::Opcode(3));
        fails(&[0x09, 0x80, 0, 0, 0, 0], FrameError::Control);
        fails(&[0x89, 0xfe, 0, 126, 0, 0, 0, 0], FrameError::Control);
        fails(&[0x82, 0x7f, 0x80, 0, 0, 0, 0, 0, 0, 0], FrameError::Length);
    }

    #[test]
    fn a_mask_goes_on_where_it_stopped() {
        let (mask, clear) = ([1, 2, 3, 250], (0..100_u8).collect::<Vec<_>>());
        let mut masked = clear.clone();
        for (at, byte) in masked.iter_mut().enumerate() {
            *byte ^= mask[at % 4];
        }
        for cut in 0..clear.len() {
            let mut bytes = masked.clone();
            let (head, tail) = bytes.split_at_mut(cut);
            unmask(head, mask, 0);
            unmask(tail, mask, cut as u64);
            assert_eq!(bytes, clear);
        }
    }
}
