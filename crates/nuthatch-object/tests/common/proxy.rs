//! A proxy between a client of a store and the store, which does by a seed what networks and stores
//! do: errors before and after a request was carried out, answers that are slow, lost, cut off or
//! never come, connections that are reset before, within and after a body, requests that arrive
//! twice or long after whoever sent them gave up, conflicts that did not happen, and the death of
//! the sender. It counts what it sees. One connection carries one request.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// Largest head and body of a request that is taken.
const MAX_HEAD_BYTES: usize = 64 << 10;
const MAX_BODY_BYTES: usize = 64 << 20;

/// How long a request is left without an answer at most: far longer than any client here waits.
const SILENCE: Duration = Duration::from_secs(60);

/// Conditional creations go wrong so many times as often as other requests.
const CREATION_FACTOR: u64 = 4;

/// The slowest of slow answers.
const SLOW_MS: u64 = 30;

/// What happens to requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub seed: u64,
    /// Of a hundred requests so many do not go as they should.
    pub percent: u64,
    /// The sender dies at its so-many-th change of the store; half of the time the change is made.
    pub die_at: Option<u64>,
    /// Never shows the fences of others: what a broken fence would be.
    pub hide_fences: bool,
}

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fate {
    Served,
    /// Answered after a while.
    Slow,
    /// Answered with this status, and not carried out.
    Refused(u16),
    /// Carried out, and answered with this status.
    Forgotten(u16),
    /// The connection ends after the head.
    ResetBeforeBody,
    /// The connection ends in the middle of the body.
    ResetWithinBody,
    /// Carried out; the connection ends without an answer.
    ReplyLost,
    /// Carried out; the connection ends in the middle of the answer.
    ReplyCut,
    /// Not carried out, and never answered.
    Silent,
    /// Carried out, and never answered.
    SilentAfter,
    /// Never answered, and carried out when the sender has given up.
    Late,
    /// Carried out twice; the second answer counts.
    Twice,
    /// A conditional creation that is answered with a conflict, and not carried out.
    Conflict,
    /// The sender dies; what it still sends is refused.
    Dies {
        applied: bool,
    },
}

/// Fates that a repetition may mend, with how often each is chosen.
const FAULTS: [(Fate, u64); 15] = [
    (Fate::Slow, 3),
    (Fate::Refused(500), 2),
    (Fate::Refused(503), 2),
    (Fate::Forgotten(500), 2),
    (Fate::Forgotten(503), 2),
    (Fate::ResetBeforeBody, 2),
    (Fate::ResetWithinBody, 2),
    (Fate::ReplyLost, 2),
    (Fate::ReplyCut, 2),
    (Fate::Twice, 3),
    (Fate::Conflict, 3),
    // These cost the time that the client waits.
    (Fate::Silent, 1),
    (Fate::SilentAfter, 1),
    (Fate::Late, 1),
    (Fate::Served, 1),
];

/// Runs once, when the sender is about to make its so-many-th change; its requests wait meanwhile.
pub struct Interruption {
    pub at: u64,
    pub run: Box<dyn FnOnce() + Send>,
}

/// A proxy on a port of its own, gone with the value.
pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<ProxyShared>,
}

struct ProxyShared {
    upstream: SocketAddr,
    faults: Faults,
    attempts: Mutex<HashMap<String, u64>>,
    changes: AtomicU64,
    fates: Mutex<BTreeMap<Fate, u64>>,
    seen: Mutex<BTreeMap<String, u64>>,
    interruption: Mutex<Option<Interruption>>,
    /// Held by every request on its way to the store, and alone by an interruption.
    gate: RwLock<()>,
    stopped: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Proxy {
    /// Listens in front of `upstream`.
    pub fn start(upstream: SocketAddr, faults: Faults) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(ProxyShared {
            upstream,
            faults,
            attempts: Mutex::default(),
            changes: AtomicU64::new(0),
            fates: Mutex::default(),
            seen: Mutex::default(),
            interruption: Mutex::default(),
            gate: RwLock::new(()),
            stopped: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                if accepting.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&accepting);
                // A connection that breaks is what this is for.
                std::thread::spawn(move || drop(shared.serve(socket)));
            }
        });
        Self { address, shared }
    }

    pub fn interrupt(&self, interruption: Interruption) {
        *lock(&self.shared.interruption) = Some(interruption);
    }

    /// Takes back an interruption whose turn has not come; whether there was one.
    pub fn cancel(&self) -> bool {
        lock(&self.shared.interruption).take().is_some()
    }

    /// Changes of the store that were asked for.
    pub fn changes(&self) -> u64 {
        self.shared.changes.load(Ordering::SeqCst)
    }

    /// How often each fate was dealt out.
    pub fn fates(&self) -> BTreeMap<Fate, u64> {
        lock(&self.shared.fates).clone()
    }

    /// Requests by method and kind of object: `PUT data`, `HEAD fence`, `GET list` and so on.
    pub fn seen(&self) -> BTreeMap<String, u64> {
        lock(&self.shared.seen).clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

/// A request without its body.
pub struct Head {
    bytes: Vec<u8>,
    /// What of the body came with the head.
    begun: Vec<u8>,
    pub method: String,
    pub target: String,
    pub body_len: usize,
}

impl Head {
    /// `None` if the connection ended before a request came.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let (mut bytes, mut chunk) = (Vec::new(), [0; 8 << 10]);
        let end = loop {
            if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            let n = from.read(&mut chunk)?;
            if n == 0 || bytes.len() > MAX_HEAD_BYTES {
                return Ok(None);
            }
            bytes.extend_from_slice(&chunk[..n]);
        };
        let begun = bytes.split_off(end);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let mut words = text.lines().next().unwrap_or_default().split(' ').map(str::to_owned);
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut head = Self { bytes, begun, method, target, body_len: 0 };
        let body_len = head.header("content-length").and_then(|text| text.parse().ok());
        head.body_len = body_len.unwrap_or(0);
        if head.body_len > MAX_BODY_BYTES || head.header("transfer-encoding").is_some() {
            return Err(io::Error::other("a body that is not taken here"));
        }
        Ok(Some(head))
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<String> {
        let text = String::from_utf8_lossy(&self.bytes);
        let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
        let found = pairs.find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim().to_owned())
    }

    fn is_change(&self) -> bool {
        matches!(self.method.as_str(), "PUT" | "POST" | "DELETE")
    }

    /// What kind of object it is about.
    fn kind(&self) -> &'static str {
        let kinds = ["selftest", "fence", "catalog", "data"];
        let has = |kind: &&&str| self.target.contains(&format!("/{kind}/"));
        match kinds.iter().find(has) {
            _ if self.target.contains("list-type=2") => "list",
            Some(kind) => kind,
            None => "other",
        }
    }

    /// Reads so many bytes of the body, those that came with the head included.
    pub fn read_body(&mut self, from: &mut impl Read, len: usize) -> io::Result<Vec<u8>> {
        let mut body = std::mem::take(&mut self.begun);
        let missing = len.saturating_sub(body.len()) as u64;
        from.take(missing).read_to_end(&mut body)?;
        if body.len() < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(body)
    }

    /// The head as it is sent on: the store closes the connection after its answer.
    fn sent_on(&self) -> Vec<u8> {
        let mut bytes = self.bytes[..self.bytes.len() - 2].to_vec();
        bytes.extend_from_slice(b"connection: close\r\n\r\n");
        bytes
    }
}

impl ProxyShared {
    fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        client.set_read_timeout(Some(SILENCE))?;
        client.set_nodelay(true)?;
        let Some(mut head) = Head::read(&mut client)? else { return Ok(()) };
        *lock(&self.seen).entry(format!("{} {}", head.method, head.kind())).or_default() += 1;
        let fate = self.fate_of(&head);
        *lock(&self.fates).entry(fate).or_default() += 1;
        let taken = match fate {
            Fate::ResetBeforeBody => return Ok(()),
            Fate::ResetWithinBody => head.body_len / 2,
            _ => head.body_len,
        };
        let body = head.read_body(&mut client, taken)?;
        if self.faults.hide_fences && head.method == "HEAD" && head.kind() == "fence" {
            return answer(&mut client, 404);
        }
        self.deal(fate, &head, &body, &mut client)
    }

    fn deal(&self, fate: Fate, head: &Head, body: &[u8], client: &mut TcpStream) -> io::Result<()> {
        match fate {
            Fate::Served => client.write_all(&self.forward(head, body)?),
            Fate::Slow => {
                let pause = self.chance(&format!("slow {}", head.target), SLOW_MS);
                std::thread::sleep(Duration::from_millis(pause));
                client.write_all(&self.forward(head, body)?)
            }
            Fate::Refused(status) => answer(client, status),
            Fate::Forgotten(status) => {
                self.forward(head, body)?;
                answer(client, status)
            }
            Fate::ResetBeforeBody | Fate::ResetWithinBody => Ok(()),
            Fate::ReplyLost => self.forward(head, body).map(drop),
            Fate::ReplyCut => {
                let reply = self.forward(head, body)?;
                client.write_all(&reply[..reply.len() / 2])
            }
            Fate::Silent => wait_for_end(client),
            Fate::SilentAfter => {
                self.forward(head, body)?;
                wait_for_end(client)
            }
            Fate::Late => {
                wait_for_end(client)?;
                self.forward(head, body).map(drop)
            }
            Fate::Twice => {
                self.forward(head, body)?;
                client.write_all(&self.forward(head, body)?)
            }
            Fate::Conflict => answer(client, 409),
            Fate::Dies { applied } => {
                if applied {
                    self.forward(head, body)?;
                }
                answer(client, 403)
            }
        }
    }

    /// Carries a request out; the store's whole answer.
    fn forward(&self, head: &Head, body: &[u8]) -> io::Result<Vec<u8>> {
        let _gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let mut store = TcpStream::connect(self.upstream)?;
        store.set_nodelay(true)?;
        store.write_all(&[&head.sent_on(), body].concat())?;
        let mut reply = Vec::new();
        store.read_to_end(&mut reply)?;
        Ok(reply)
    }

    fn chance(&self, what: &str, of: u64) -> u64 {
        let mut attempts = lock(&self.attempts);
        let attempt = attempts.entry(what.to_owned()).or_default();
        *attempt += 1;
        let mut hasher = DefaultHasher::new();
        (self.faults.seed, what, *attempt).hash(&mut hasher);
        hasher.finish() % of
    }

    fn fate_of(&self, head: &Head) -> Fate {
        let what = format!("{} {}", head.method, head.target);
        if !head.is_change() {
            let dead = self.faults.die_at.is_some_and(|at| self.number() >= at);
            return if dead { Fate::Dies { applied: false } } else { self.trouble(head, &what) };
        }
        let number = self.changes.fetch_add(1, Ordering::SeqCst) + 1;
        let due = lock(&self.interruption).take_if(|interruption| interruption.at <= number);
        if let Some(interruption) = due {
            let _alone = self.gate.write().unwrap_or_else(PoisonError::into_inner);
            (interruption.run)();
        }
        match self.faults.die_at {
            Some(at) if number > at => Fate::Dies { applied: false },
            Some(at) if number == at => {
                Fate::Dies { applied: self.chance(&format!("death {what}"), 2) == 0 }
            }
            _ => self.trouble(head, &what),
        }
    }

    fn number(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    fn trouble(&self, head: &Head, what: &str) -> Fate {
        // There are few conditional creations, and they are the most delicate.
        let creates = head.header("if-none-match").is_some();
        let percent = self.faults.percent * if creates { CREATION_FACTOR } else { 1 };
        if self.chance(&format!("fails? {what}"), 100) >= percent {
            return Fate::Served;
        }
        let all: u64 = FAULTS.iter().map(|(_, weight)| weight).sum();
        let mut at = self.chance(&format!("how? {what}"), all);
        let chosen = FAULTS.iter().find(|(_, weight)| {
            let here = at < *weight;
            at = at.saturating_sub(*weight);
            here
        });
        match chosen.map_or(Fate::Served, |(fate, _)| *fate) {
            Fate::Conflict if !creates => Fate::Refused(503),
            Fate::ResetWithinBody if head.body_len < 2 => Fate::ResetBeforeBody,
            fate => fate,
        }
    }
}

/// Waits until the client gives up.
fn wait_for_end(client: &mut TcpStream) -> io::Result<()> {
    let mut rest = [0; 1024];
    // An error is an end as well.
    while client.read(&mut rest).is_ok_and(|n| n > 0) {}
    Ok(())
}

fn answer(client: &mut TcpStream, status: u16) -> io::Result<()> {
    let text =
        format!("HTTP/1.1 {status} By Seed\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    client.write_all(text.as_bytes())
}
