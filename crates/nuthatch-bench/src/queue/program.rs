//! A queue behind a program of `bench/peers`, for systems whose own client is in another language.
//! The program listens on a Unix socket; every sender and receiver is one connection.
//!
//! A request is `length u32 | operation u8 | body`, an answer `length u32 | status u8 | body`, all
//! big-endian, the length counting what follows it. A body with messages is
//! `count u32 | (length u32 | bytes)*`. Status 0 is success; otherwise the body is text.

use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::{Guarantee, Queue, QueueError, QueueSpec, Receiver, Sender, Source, failed};

const DRIVER: &str = "program";

/// Limit for every answer, beyond the wait that a request itself asks for.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Largest answer taken, so that a bad length cannot reserve unbounded memory.
const MAX_ANSWER_BYTES: usize = 256 * 1024 * 1024;

/// Operations of the protocol.
#[derive(Debug, Clone, Copy)]
enum Operation {
    Hello = 1,
    Prepare = 2,
    OpenSender = 3,
    OpenReceiver = 4,
    Send = 5,
    Receive = 6,
    Ack = 7,
}

/// How long opening many topics may take, unless the setting `setup_limit_s` says otherwise.
const SETUP_LIMIT_S: u64 = 60;

/// A topic of the program, or several.
pub struct ProgramQueue {
    path: String,
    name: String,
    streams: u64,
    setup_limit: Duration,
    /// Topics made, and with a sender on each.
    opened: AtomicU64,
}

impl ProgramQueue {
    /// `url` is the path of the socket. Settings: `streams`, topics over which messages are spread
    /// in turn, and `setup_limit_s`, after which no more of them are opened.
    ///
    /// # Errors
    /// When a setting makes no sense.
    pub fn new(spec: &QueueSpec) -> Result<Self, QueueError> {
        Ok(Self {
            path: spec.url.clone(),
            name: spec.name.clone(),
            streams: spec.number("streams", 1)?.max(1),
            setup_limit: Duration::from_secs(spec.number("setup_limit_s", SETUP_LIMIT_S)?),
            opened: AtomicU64::new(0),
        })
    }

    fn topic(&self, number: u64) -> String {
        if self.streams > 1 { format!("{}-{number}", self.name) } else { self.name.clone() }
    }

    fn connect(&self) -> Result<Link, QueueError> {
        Link::open(&self.path).map_err(failed(DRIVER, "connect"))
    }

    fn open(&self, operation: Operation, index: usize, topic: &str) -> Result<Link, QueueError> {
        let mut link = self.connect()?;
        let mut body = (index as u32).to_be_bytes().to_vec();
        body.extend_from_slice(topic.as_bytes());
        link.call(operation, &body).map_err(failed(DRIVER, "open the topic"))?;
        Ok(link)
    }
}

/// What a program says about itself.
#[derive(Debug, Deserialize)]
struct Hello {
    replicated: String,
    fsync: String,
}

impl Queue for ProgramQueue {
    fn guarantee(&self) -> Result<Guarantee, QueueError> {
        let mut link = self.connect()?;
        let answer = link.call(Operation::Hello, b"").map_err(failed(DRIVER, "say hello"))?;
        let hello: Hello = serde_json::from_slice(answer).map_err(failed(DRIVER, "say hello"))?;
        let Hello { replicated, fsync } = hello;
        Ok(Guarantee { replicated, fsync, source: Source::Configured })
    }

    fn streams(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    fn prepare(&self) -> Result<(), QueueError> {
        let mut link = self.connect()?;
        let started = Instant::now();
        for number in 0..self.streams {
            let prepared = link.call(Operation::Prepare, self.topic(number).as_bytes()).map(drop);
            prepared.map_err(failed(DRIVER, "create the topic"))?;
            self.opened.store(number + 1, Ordering::Relaxed);
            // The other half is for the senders.
            if started.elapsed() > self.setup_limit / 2 {
                break;
            }
        }
        Ok(())
    }

    fn sender(&self, index: usize) -> Result<Box<dyn Sender>, QueueError> {
        let started = Instant::now();
        let mut links = Vec::new();
        for number in 0..self.streams().max(1) {
            links.push(self.open(Operation::OpenSender, index, &self.topic(number))?);
            if started.elapsed() > self.setup_limit / 2 {
                break;
            }
        }
        self.opened.store(links.len() as u64, Ordering::Relaxed);
        Ok(Box::new(Links { links, next: 0 }))
    }

    fn receiver(&self, index: usize) -> Result<Box<dyn Receiver>, QueueError> {
        Ok(Box::new(self.open(Operation::OpenReceiver, index, &self.topic(0))?))
    }
}

/// One connection.
struct Link {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Link {
    fn open(path: &str) -> io::Result<Self> {
        let writer = UnixStream::connect(path)?;
        writer.set_read_timeout(Some(TIMEOUT))?;
        writer.set_write_timeout(Some(TIMEOUT))?;
        let reader = BufReader::new(writer.try_clone()?);
        Ok(Self { reader, writer, request: Vec::new(), answer: Vec::new() })
    }

    fn call(&mut self, operation: Operation, body: &[u8]) -> io::Result<&[u8]> {
        self.begin(operation);
        self.request.extend_from_slice(body);
        self.finish()
    }

    fn begin(&mut self, operation: Operation) {
        self.request.clear();
        self.request.extend_from_slice(&[0; 4]);
        self.request.push(operation as u8);
    }

    /// Sends what has been put together and reads the answer.
    fn finish(&mut self) -> io::Result<&[u8]> {
        self.post()?;
        self.answer()
    }

    /// Sends what has been put together.
    fn post(&mut self) -> io::Result<()> {
        let length = u32::try_from(self.request.len() - 4)
            .map_err(|_| io::Error::other("the request is too large"))?;
        self.request[..4].copy_from_slice(&length.to_be_bytes());
        self.writer.write_all(&self.request)
    }

    fn answer(&mut self) -> io::Result<&[u8]> {
        let length = read_u32(&mut self.reader)? as usize;
        if length == 0 || length > MAX_ANSWER_BYTES {
            return Err(io::Error::other(format!("an answer of {length} bytes")));
        }
        self.answer.resize(length, 0);
        self.reader.read_exact(&mut self.answer)?;
        match self.answer.split_first() {
            Some((0, body)) => Ok(body),
            Some((_, text)) => Err(io::Error::other(String::from_utf8_lossy(text).into_owned())),
            None => Err(io::Error::other("an empty answer")),
        }
    }
}

fn read_u32(from: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(u32::from_be_bytes(bytes))
}

impl Link {
    /// Puts messages together, of a sending request.
    fn begin_send<'a>(&mut self, batch: impl ExactSizeIterator<Item = &'a [u8]>) {
        self.begin(Operation::Send);
        self.request.extend_from_slice(&(batch.len() as u32).to_be_bytes());
        for body in batch {
            self.request.extend_from_slice(&(body.len() as u32).to_be_bytes());
            self.request.extend_from_slice(body);
        }
    }
}

/// A connection for each topic; messages go to them in turn, all at a time.
struct Links {
    links: Vec<Link>,
    next: usize,
}

impl Links {
    fn send_all(&mut self, batch: &[&[u8]]) -> io::Result<()> {
        let (count, first) = (self.links.len(), self.next);
        let used = count.min(batch.len());
        for at in 0..used {
            let link = &mut self.links[(first + at) % count];
            link.begin_send(batch[at..].iter().step_by(count).copied());
            link.post()?;
        }
        for at in 0..used {
            self.links[(first + at) % count].answer()?;
        }
        self.next = (first + batch.len()) % count;
        Ok(())
    }
}

impl Sender for Links {
    fn send(&mut self, batch: &[&[u8]]) -> Result<(), QueueError> {
        self.send_all(batch).map_err(failed(DRIVER, "send"))
    }
}

impl Receiver for Link {
    fn receive(
        &mut self,
        max: usize,
        wait: Duration,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, QueueError> {
        self.begin(Operation::Receive);
        let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
        self.request.extend_from_slice(&(max as u32).to_be_bytes());
        self.request.extend_from_slice(&wait_ms.to_be_bytes());
        let answer = self.finish().map_err(failed(DRIVER, "receive"))?;
        each_message(answer, each)
            .ok_or("the answer is cut off")
            .map_err(failed(DRIVER, "understand the answer"))
    }

    fn ack(&mut self) -> Result<(), QueueError> {
        self.call(Operation::Ack, b"").map(drop).map_err(failed(DRIVER, "acknowledge"))
    }
}

/// Walks over the messages of a body; `None` when it is not one.
fn each_message(body: &[u8], each: &mut dyn FnMut(&[u8])) -> Option<usize> {
    let (count, mut rest) = body.split_first_chunk::<4>()?;
    let count = u32::from_be_bytes(*count) as usize;
    for _ in 0..count {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let length = u32::from_be_bytes(*length) as usize;
        each(after.get(..length)?);
        rest = &after[length..];
    }
    rest.is_empty().then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_an_answer() {
        let mut seen = Vec::new();
        let body = [0, 0, 0, 2, 0, 0, 0, 1, b'a', 0, 0, 0, 0];
        let count = each_message(&body, &mut |m| seen.push(m.to_vec()));
        assert_eq!((count, seen), (Some(2), vec![b"a".to_vec(), vec![]]));
        for cut in 0..body.len() {
            assert_eq!(each_message(&body[..cut], &mut |_| {}), None, "cut at {cut}");
        }
        let longer = [&body[..], &[0]].concat();
        assert_eq!(each_message(&longer, &mut |_| {}), None);
    }
}
