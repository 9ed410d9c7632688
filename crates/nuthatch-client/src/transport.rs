//! The two halves of a connection: a reader with one large buffer and a writer that gathers many
//! operations into one system call.

use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use nuthatch_protocol::wire::write::{push_publish, push_subscribe, push_u64, push_unsubscribe};

use crate::frame::{self, Event, FrameError, Parsed};
use crate::socket::Socket;

/// Size of a fresh read buffer; it grows only for a single message that does not fit.
const READ_BUFFER_BYTES: usize = 512 * 1024;

/// The writer flushes by itself when this much is waiting.
const FLUSH_AT_BYTES: usize = 128 * 1024;

/// Bodies of at least this size are handed to the kernel from where they are instead of copied.
const VECTORED_FROM_BYTES: usize = 16 * 1024;

/// Errors of an open connection.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The operating system reported an error.
    #[error("connection failed: {0}")]
    Io(#[from] io::Error),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// Nothing arrived in time.
    #[error("nothing arrived within {0:?}")]
    TimedOut(Duration),
    /// The server sent something that is not the protocol.
    #[error("protocol error: {0}")]
    Frame(#[from] FrameError),
    /// The server sent `-ERR`.
    #[error("the server reports: {0}")]
    Server(String),
}

/// Receiving half.
#[derive(Debug)]
pub struct Reader {
    socket: Arc<Socket>,
    buf: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes from `start` that the event in progress needs.
    need: usize,
    timeout: Option<Duration>,
}

impl Reader {
    pub(super) fn new(socket: Arc<Socket>) -> Self {
        Self { socket, buf: vec![0; READ_BUFFER_BYTES], start: 0, end: 0, need: 1, timeout: None }
    }

    /// The next event that has already arrived, without a system call.
    ///
    /// # Errors
    /// When the bytes are not the protocol.
    pub fn next_buffered(&mut self) -> Result<Option<Event<'_>>, TransportError> {
        if self.start == self.end {
            return Ok(None);
        }
        match frame::parse(&self.buf[self.start..self.end])? {
            Parsed::Event(event, used) => {
                self.start += used;
                Ok(Some(event))
            }
            Parsed::Incomplete(need) => {
                self.need = need;
                Ok(None)
            }
        }
    }

    /// Waits for more bytes, at most `timeout`. To be called when [`Self::next_buffered`] has
    /// returned nothing.
    ///
    /// # Errors
    /// [`TransportError::TimedOut`] when nothing came, [`TransportError::Closed`] at the end of
    /// the stream, else the error of the socket.
    pub fn fill(&mut self, timeout: Duration) -> Result<(), TransportError> {
        self.set_timeout(timeout)?;
        self.make_room();
        loop {
            match self.socket.read(&mut self.buf[self.end..]) {
                Ok(0) => return Err(TransportError::Closed),
                Ok(count) => {
                    self.end += count;
                    if self.end - self.start >= self.need {
                        self.need = 1;
                        return Ok(());
                    }
                }
                Err(err) if err.kind() == ErrorKind::Interrupted => {}
                Err(err) if matches!(err.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Err(TransportError::TimedOut(timeout));
                }
                Err(err) => return Err(err.into()),
            }
        }
    }

    /// Changing the socket's timeout is a system call, so it is done only when it differs.
    fn set_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        let timeout = timeout.max(Duration::from_millis(1));
        if self.timeout != Some(timeout) {
            self.socket.set_read_timeout(Some(timeout))?;
            self.timeout = Some(timeout);
        }
        Ok(())
    }

    fn make_room(&mut self) {
        let held = self.end - self.start;
        let need = self.need.max(held + 1);
        if held == 0 || self.start + need > self.buf.len() || self.end == self.buf.len() {
            self.buf.copy_within(self.start..self.end, 0);
            self.start = 0;
            self.end = held;
        }
        if need > self.buf.len() {
            self.buf.resize(need, 0);
        }
    }
}

/// Sending half. Everything is buffered until [`Writer::flush`], or until enough has gathered.
#[derive(Debug)]
pub struct Writer {
    socket: Arc<Socket>,
    buf: Vec<u8>,
}

impl Writer {
    pub(super) fn new(socket: Arc<Socket>) -> Self {
        Self { socket, buf: Vec::with_capacity(FLUSH_AT_BYTES * 2) }
    }

    /// Publishes. `reply` and `headers` (a whole `NATS/1.0` block) may be empty.
    ///
    /// # Errors
    /// When a flush that this call caused fails.
    #[inline]
    pub fn publish(
        &mut self,
        subject: &[u8],
        reply: &[u8],
        headers: &[u8],
        payload: &[u8],
    ) -> Result<(), TransportError> {
        let reply = (!reply.is_empty()).then_some(reply);
        if payload.len() < VECTORED_FROM_BYTES {
            push_publish(&mut self.buf, subject, reply, headers, payload);
            return self.flush_if_large();
        }
        push_publish_line(&mut self.buf, subject, reply, headers.len(), payload.len());
        self.buf.extend_from_slice(headers);
        self.write_with_body(payload)
    }

    /// Subscribes; `queue` may be empty.
    ///
    /// # Errors
    /// When a flush that this call caused fails.
    pub fn subscribe(
        &mut self,
        subject: &str,
        queue: &str,
        sid: u64,
    ) -> Result<(), TransportError> {
        let queue = (!queue.is_empty()).then_some(queue.as_bytes());
        push_subscribe(&mut self.buf, subject.as_bytes(), queue, sid.to_string().as_bytes());
        self.flush_if_large()
    }

    /// Ends a subscription.
    ///
    /// # Errors
    /// When a flush that this call caused fails.
    pub fn unsubscribe(&mut self, sid: u64) -> Result<(), TransportError> {
        push_unsubscribe(&mut self.buf, sid.to_string().as_bytes(), None);
        self.flush_if_large()
    }

    /// Asks the server for a `PONG`.
    ///
    /// # Errors
    /// When a flush that this call caused fails.
    pub fn ping(&mut self) -> Result<(), TransportError> {
        self.raw(b"PING\r\n")
    }

    /// Answers a `PING`, at once.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn pong(&mut self) -> Result<(), TransportError> {
        self.buf.extend_from_slice(b"PONG\r\n");
        self.flush()
    }

    /// Queues protocol text as it is.
    ///
    /// # Errors
    /// When a flush that this call caused fails.
    pub fn raw(&mut self, text: &[u8]) -> Result<(), TransportError> {
        self.buf.extend_from_slice(text);
        self.flush_if_large()
    }

    /// Sends everything queued.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn flush(&mut self) -> Result<(), TransportError> {
        if !self.buf.is_empty() {
            self.socket.write_all(&self.buf)?;
            self.buf.clear();
        }
        Ok(())
    }

    fn flush_if_large(&mut self) -> Result<(), TransportError> {
        if self.buf.len() >= FLUSH_AT_BYTES { self.flush() } else { Ok(()) }
    }

    /// Sends what is queued, then `body` and a line end, in as few calls as the kernel allows.
    fn write_with_body(&mut self, body: &[u8]) -> Result<(), TransportError> {
        let parts: [&[u8]; 3] = [&self.buf, body, b"\r\n"];
        let mut slices = parts.map(IoSlice::new);
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            match self.socket.write_vectored(rest) {
                Ok(0) => return Err(TransportError::Closed),
                Ok(count) => IoSlice::advance_slices(&mut rest, count),
                Err(err) if err.kind() == ErrorKind::Interrupted => {}
                Err(err) => return Err(err.into()),
            }
        }
        self.buf.clear();
        Ok(())
    }
}

/// The line of a publish whose body is sent from where it is.
fn push_publish_line(
    out: &mut Vec<u8>,
    subject: &[u8],
    reply: Option<&[u8]>,
    headers_len: usize,
    payload_len: usize,
) {
    out.extend_from_slice(if headers_len == 0 { b"PUB " } else { b"HPUB " });
    out.extend_from_slice(subject);
    out.push(b' ');
    if let Some(reply) = reply {
        out.extend_from_slice(reply);
        out.push(b' ');
    }
    if headers_len > 0 {
        push_u64(out, headers_len as u64);
        out.push(b' ');
    }
    push_u64(out, (headers_len + payload_len) as u64);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (TcpStream, Reader, Writer) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let near = Arc::new(Socket::plain(near));
        let (far, _) = listener.accept().unwrap();
        (far, Reader::new(near.clone()), Writer::new(near))
    }

    #[test]
    fn large_and_small_bodies_arrive_whole() {
        let (mut far, mut reader, mut writer) = pair();
        let body = vec![7u8; 3 * READ_BUFFER_BYTES];
        let echo = std::thread::spawn(move || {
            let mut text = vec![0; b"PUB a 1\r\nx\r\nHPUB b r 3 1572867\r\nhhh".len()];
            far.read_exact(&mut text).unwrap();
            let mut rest = vec![0; 3 * READ_BUFFER_BYTES + 2];
            far.read_exact(&mut rest).unwrap();
            let line = format!("PING\r\nMSG b 1 {}\r\n", rest.len() - 2);
            far.write_all(line.as_bytes()).unwrap();
            far.write_all(&rest).unwrap();
            text
        });
        writer.publish(b"a", b"", b"", b"x").unwrap();
        writer.publish(b"b", b"r", b"hhh", &body).unwrap();
        let text = echo.join().unwrap();
        assert_eq!(text, b"PUB a 1\r\nx\r\nHPUB b r 3 1572867\r\nhhh");
        let mut seen = 0;
        while seen < 2 {
            match reader.next_buffered().unwrap() {
                None => match reader.fill(Duration::from_secs(5)) {
                    Ok(()) | Err(TransportError::Closed) => {}
                    Err(err) => panic!("{err}"),
                },
                Some(Event::Ping) => seen += 1,
                Some(Event::Message(m)) => {
                    assert!(m.payload == body);
                    seen += 1;
                }
                Some(other) => panic!("{other:?}"),
            }
        }
        assert!(matches!(reader.fill(Duration::from_secs(5)), Err(TransportError::Closed)));
    }
}
