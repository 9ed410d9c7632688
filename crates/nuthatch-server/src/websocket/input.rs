//! The reading side: what is in the data frames, in one stream.
//!
//! Payloads are handed on as they come, so that a frame or a compressed message may be large
//! without anything being kept: the protocol's parser sets its own bounds.

use super::Owner;
use super::control::Control;
use super::frame::{self, CONTROL_BYTES_MAX, HEADER_BYTES_MAX, Header, Opcode};
use crate::buffers;
use crate::close_reason::CloseReason;
use bytes::{Buf, BytesMut};
use flate2::{Decompress, FlushDecompress, Status};
use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// A frame that announces more than this, or than eight of the largest messages, is refused.
const FRAME_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Inflated at a time.
const INFLATE_BYTES: usize = 16 * 1024;
/// Read when part of a frame is there already.
const READ_MORE_BYTES: usize = 16 * 1024;
/// Reads from the socket that lead to no payload, before others have their turn.
const FILLS_MAX: usize = 4;
/// Bytes cut off the end of a compressed message (RFC 7692 §7.2.1).
const DEFLATE_TAIL: &[u8] = &[0, 0, 0xff, 0xff];

/// A payload that is being read.
#[derive(Clone, Copy)]
struct Payload {
    /// Bytes of it that are still to come out of `raw`.
    left: u64,
    /// Bytes of it that have come.
    done: u64,
    /// Bytes at the front of `raw` that have their mask off already.
    clear: usize,
    mask: Option<[u8; 4]>,
    is_final: bool,
}

/// A message that is being read, which may have several frames.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Message {
    None,
    Plain,
    Compressed,
}

thread_local! {
    /// Without context takeover every message stands for itself: what inflates is borrowed.
    static INFLATE: RefCell<Vec<Decompress>> = const { RefCell::new(Vec::new()) };
}
/// Inflaters that a thread keeps.
const INFLATERS_MAX: usize = 4;

fn take_inflate() -> Decompress {
    let kept = INFLATE.with_borrow_mut(Vec::pop);
    kept.unwrap_or_else(|| Decompress::new(false))
}

fn give_inflate(mut inflate: Decompress) {
    inflate.reset(false);
    INFLATE.with_borrow_mut(|kept| {
        if kept.len() < INFLATERS_MAX {
            kept.push(inflate);
        }
    });
}

/// Unwraps frames.
pub struct Input<R> {
    inner: R,
    owner: Arc<dyn Owner>,
    control: Arc<Control>,
    /// Frames must be masked.
    masked: bool,
    /// Messages may be compressed.
    compress: bool,
    /// While a compressed message is being read.
    inflate: Option<Decompress>,
    /// Read and not unwrapped yet.
    raw: BytesMut,
    payload: Option<Payload>,
    message: Message,
    /// Rest of [`DEFLATE_TAIL`] still to be inflated.
    tail: &'static [u8],
    /// The peer has sent a close, or nonsense: nothing is read any more.
    ended: bool,
    closing: bool,
}

/// Why the connection ends.
enum Broken {
    /// The peer broke the rules.
    Protocol(String),
    /// A frame announced too much.
    TooLarge(u64),
}

impl From<frame::FrameError> for Broken {
    fn from(error: frame::FrameError) -> Self {
        Self::Protocol(error.to_string())
    }
}

impl<R: AsyncRead + Unpin> Input<R> {
    /// `masked`: frames must be masked; `compress`: messages may be compressed.
    pub fn new(
        inner: R,
        owner: Arc<dyn Owner>,
        control: Arc<Control>,
        masked: bool,
        compress: bool,
    ) -> Self {
        Self {
            inner,
            owner,
            control,
            masked,
            compress,
            inflate: None,
            raw: BytesMut::new(),
            payload: None,
            message: Message::None,
            tail: &[],
            ended: false,
            closing: false,
        }
    }

    /// Unwraps what is there into `out`, until it is full or there is nothing more to unwrap.
    fn unwrap(&mut self, out: &mut ReadBuf<'_>) -> Result<(), Broken> {
        while out.remaining() > 0 && !self.ended && !self.closing {
            if self.payload.is_none() && self.tail.is_empty() {
                if !self.next_frame()? {
                    return Ok(());
                }
                continue;
            }
            let progress = match self.message {
                Message::Compressed => self.take_compressed(out)?,
                _ => self.take_plain(out),
            };
            if !progress {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads a header, and a control frame as a whole. `false`: more bytes are needed.
    fn next_frame(&mut self) -> Result<bool, Broken> {
        let Some((header, at)) = Header::parse(&self.raw)? else { return Ok(false) };
        if self.masked && header.mask.is_none() {
            return Err(Broken::Protocol("a frame of a client is not masked".to_owned()));
        }
        match header.opcode {
            Opcode::Continuation | Opcode::Data => {
                self.begin(&header)?;
                self.raw.advance(at);
                Ok(true)
            }
            Opcode::Close | Opcode::Ping | Opcode::Pong => {
                let len = header.len as usize; // at most CONTROL_BYTES_MAX
                if self.raw.len() < at + len {
                    return Ok(false);
                }
                self.raw.advance(at);
                let mut payload = self.raw.split_to(len);
                if let Some(mask) = header.mask {
                    frame::unmask(&mut payload, mask, 0);
                }
                self.control_frame(header.opcode, &payload)?;
                Ok(true)
            }
        }
    }

    fn begin(&mut self, header: &Header) -> Result<(), Broken> {
        let begins = header.opcode == Opcode::Data;
        if begins != (self.message == Message::None) {
            let what =
                if begins { "a message begins inside another" } else { "nothing to go on with" };
            return Err(Broken::Protocol(what.to_owned()));
        }
        let max_payload = self.owner.max_payload_bytes() as u64;
        if header.len > FRAME_BYTES_MAX.max(max_payload * 8) {
            return Err(Broken::TooLarge(header.len));
        }
        if begins {
            if header.is_compressed && !self.compress {
                let what = "a compressed message although nobody agreed on it";
                return Err(Broken::Protocol(what.to_owned()));
            }
            self.message = if header.is_compressed {
                self.inflate = Some(take_inflate());
                Message::Compressed
            } else {
                Message::Plain
            };
        }
        let payload = Payload {
            left: header.len,
            done: 0,
            clear: 0,
            mask: header.mask,
            is_final: header.is_final,
        };
        self.payload = Some(payload);
        if header.len == 0 {
            self.end_payload();
        }
        Ok(())
    }

    /// A frame is over, and perhaps its message.
    fn end_payload(&mut self) {
        if self.payload.take().is_some_and(|payload| payload.is_final) {
            match self.message {
                // The message is over when its tail is inflated.
                Message::Compressed => self.tail = DEFLATE_TAIL,
                _ => self.message = Message::None,
            }
        }
    }

    fn control_frame(&mut self, opcode: Opcode, payload: &[u8]) -> Result<(), Broken> {
        match opcode {
            Opcode::Ping => {
                self.control.pong(payload);
                self.owner.wake_writer();
            }
            Opcode::Close if payload.len() == 1 => {
                return Err(Broken::Protocol("a close with half a code".to_owned()));
            }
            Opcode::Close => {
                // The same code goes back, without its text.
                self.control.close(&payload[..payload.len().min(2)]);
                self.owner.wake_writer();
                self.closing = true;
            }
            _ => {}
        }
        Ok(())
    }

    /// Copies payload. `false`: more bytes are needed.
    fn take_plain(&mut self, out: &mut ReadBuf<'_>) -> bool {
        let Some(payload) = &mut self.payload else { return true };
        let count = self.raw.len().min(out.remaining());
        let count = count.min(usize::try_from(payload.left).unwrap_or(usize::MAX));
        if count == 0 {
            return false;
        }
        if let Some(mask) = payload.mask {
            frame::unmask(&mut self.raw[..count], mask, payload.done);
        }
        out.put_slice(&self.raw[..count]);
        self.raw.advance(count);
        payload.left -= count as u64;
        payload.done += count as u64;
        if payload.left == 0 {
            self.end_payload();
        }
        true
    }

    /// Inflates payload, then the tail. `false`: more bytes are needed.
    fn take_compressed(&mut self, out: &mut ReadBuf<'_>) -> Result<bool, Broken> {
        let Some(inflate) = &mut self.inflate else { return Ok(false) };
        let input: &[u8] = match &mut self.payload {
            Some(payload) => {
                let left = usize::try_from(payload.left).unwrap_or(usize::MAX);
                let count = self.raw.len().min(left);
                if count == 0 {
                    return Ok(false);
                }
                if let Some(mask) = payload.mask {
                    let at = payload.done + payload.clear as u64;
                    frame::unmask(&mut self.raw[payload.clear..count], mask, at);
                }
                payload.clear = count;
                &self.raw[..count]
            }
            None => self.tail,
        };
        let room = out.initialize_unfilled_to(out.remaining().min(INFLATE_BYTES));
        let before = (inflate.total_in(), inflate.total_out());
        let status = inflate
            .decompress(input, room, FlushDecompress::None)
            .map_err(|error| Broken::Protocol(format!("cannot inflate: {error}")))?;
        let consumed = (inflate.total_in() - before.0) as usize;
        let produced = (inflate.total_out() - before.1) as usize;
        out.advance(produced);
        self.consume_compressed(consumed, produced, status)
    }

    fn consume_compressed(
        &mut self,
        consumed: usize,
        produced: usize,
        status: Status,
    ) -> Result<bool, Broken> {
        if status == Status::StreamEnd
            && let Some(inflate) = &mut self.inflate
        {
            inflate.reset(false);
        }
        let stuck = consumed == 0 && produced == 0 && status != Status::StreamEnd;
        match &mut self.payload {
            Some(_) if stuck => Err(Broken::Protocol("cannot inflate".to_owned())),
            Some(payload) => {
                self.raw.advance(consumed);
                payload.clear -= consumed;
                payload.left -= consumed as u64;
                payload.done += consumed as u64;
                if payload.left == 0 {
                    self.end_payload();
                }
                Ok(true)
            }
            None => {
                self.tail = &self.tail[consumed..];
                // Behind a last block the tail is nothing to inflate.
                if self.tail.is_empty() || stuck || status == Status::StreamEnd {
                    self.tail = &[];
                    self.message = Message::None;
                    self.inflate.take().into_iter().for_each(give_inflate);
                }
                Ok(true)
            }
        }
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.raw.capacity() == 0 {
            self.raw = buffers::take_read();
        }
        const { assert!(READ_MORE_BYTES > HEADER_BYTES_MAX + CONTROL_BYTES_MAX) };
        self.raw.reserve(READ_MORE_BYTES);
        let mut target = ReadBuf::uninit(self.raw.spare_capacity_mut());
        let polled = Pin::new(&mut self.inner).poll_read(cx, &mut target);
        let count = target.filled().len();
        ready!(polled)?;
        // SAFETY: `count` bytes of the spare capacity have been filled through `target`.
        unsafe { self.raw.set_len(self.raw.len() + count) };
        Poll::Ready(Ok(count))
    }

    /// An idle connection owns no buffer.
    fn give_back(&mut self) {
        if self.raw.is_empty() && self.raw.capacity() > 0 {
            buffers::give_read(std::mem::take(&mut self.raw));
        }
    }

    fn break_off(&mut self, broken: &Broken) {
        self.ended = true;
        match broken {
            Broken::Protocol(why) => {
                let why = format_args!("websocket protocol error: {why}");
                self.owner.broken(CloseReason::ProtocolViolation, why);
            }
            Broken::TooLarge(len) => {
                let why = format_args!("websocket frame of {len} bytes is too large");
                self.owner.broken(CloseReason::MaxPayloadExceeded, why);
            }
        }
    }

    /// After the peer's close: waits until ours is on its way, or until the peer is gone.
    fn poll_closing(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.control.is_close_sent(cx.waker()) {
            self.raw.clear();
            if ready!(self.poll_fill(cx))? == 0 {
                break;
            }
        }
        self.ended = true;
        Poll::Ready(Ok(()))
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Input<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = out.filled().len();
        for _ in 0..FILLS_MAX {
            if this.ended {
                return Poll::Ready(Ok(()));
            }
            if let Err(broken) = this.unwrap(out) {
                this.break_off(&broken);
            }
            if out.filled().len() > before {
                this.give_back();
                return Poll::Ready(Ok(()));
            }
            if this.closing {
                return this.poll_closing(cx);
            }
            if this.ended {
                return Poll::Ready(Ok(()));
            }
            match this.poll_fill(cx) {
                Poll::Ready(Ok(0)) => {
                    this.ended = true;
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    this.give_back();
                    return Poll::Pending;
                }
            }
        }
        // Frames that hold nothing, one after the other: others have their turn.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
