//! A client in another account that does what clients do all day, and notes how long it takes.
//!
//! Three connections publish a message to one another every few milliseconds, and now and then one to a
//! stream. A delay ends when the message or the stream's answer is there, so what stands still for
//! some time is seen whole.

use crate::rig::{CANARY_NAME, Rig};
use crate::support::{TIMEOUT, api_ok};
use nuthatch_client::{Client, Event, TransportError};
use serde_json::json;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Connections, each of which listens to the next: threads of the server are few, and a message
/// crosses from one to another.
const CONNECTIONS: usize = 3;
/// Between two messages of a connection.
const PERIOD: Duration = Duration::from_millis(5);
/// One of so many goes to the stream as well.
const STREAM_EVERY: u64 = 8;

/// The worst of what was measured.
#[derive(Clone, Copy, Default, Debug)]
pub struct Delays {
    /// From publishing a core message to its arrival.
    pub core: Duration,
    /// From publishing to the stream to its acknowledgement.
    pub stream: Duration,
    /// What never came, or was answered with an error.
    pub lost: usize,
}

#[derive(Default)]
struct Notes {
    /// When what is on its way was sent: by kind, connection and number.
    on_the_way: HashMap<(bool, usize, u64), Instant>,
    worst: Delays,
    /// How the last publish to the stream was answered that was not acknowledged.
    refused: String,
}

impl Notes {
    fn arrived(&mut self, is_ack: bool, connection: usize, number: u64) {
        let Some(sent) = self.on_the_way.remove(&(is_ack, connection, number)) else { return };
        let delay = sent.elapsed();
        let worst = if is_ack { &mut self.worst.stream } else { &mut self.worst.core };
        *worst = delay.max(*worst);
    }
}

/// The canary, at work.
pub struct Canary {
    notes: Arc<Mutex<Notes>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Canary {
    pub fn start(rig: &Rig) -> Self {
        let mut client = rig.client_named("canary", CANARY_NAME);
        let config = json!({"name": "CANARY", "subjects": ["kept.>"], "max_msgs": 1000});
        api_ok(&mut client, "STREAM.CREATE.CANARY", &config);
        let (notes, stop): (Arc<Mutex<Notes>>, Arc<AtomicBool>) =
            (Arc::new(Mutex::new(Notes::default())), Arc::default());
        let singing = Arc::new(AtomicUsize::new(CONNECTIONS));
        let bird = |number| {
            let client = listening(rig, number);
            let (notes, stop, singing) = (notes.clone(), stop.clone(), singing.clone());
            Bird { number, client, notes, stop, singing }
        };
        let birds: Vec<Bird> = (0..CONNECTIONS).map(bird).collect();
        let threads = birds.into_iter().map(|bird| thread::spawn(move || bird.sing())).collect();
        Self { notes, stop, threads }
    }

    /// Forgets what was measured so far.
    pub fn begin(&self) {
        self.notes.lock().expect("lock").worst = Delays::default();
    }

    /// Waits for what is on its way, and ends.
    pub fn end(self) -> Delays {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a connection of the canary failed");
        }
        let notes = self.notes.lock().expect("lock");
        if !notes.refused.is_empty() || !notes.on_the_way.is_empty() {
            crate::say(&format!("    missing: {:?} {}", notes.on_the_way.keys(), notes.refused));
        }
        Delays { lost: notes.worst.lost + notes.on_the_way.len(), ..notes.worst }
    }
}

/// A connection that is subscribed to the next one's messages and to the answers to its own.
fn listening(rig: &Rig, number: usize) -> Client {
    let mut client = rig.client_named("canary", CANARY_NAME);
    let heard = (number + 1) % CONNECTIONS;
    client.subscribe(&format!("tick.{heard}.*"), "").expect("subscribes");
    client.subscribe(&format!("ack.{number}.*"), "").expect("subscribes");
    client.round_trip(TIMEOUT).expect("subscribed");
    client
}

/// One connection of it.
struct Bird {
    number: usize,
    client: Client,
    notes: Arc<Mutex<Notes>>,
    stop: Arc<AtomicBool>,
    /// Connections that still send.
    singing: Arc<AtomicUsize>,
}

impl Bird {
    /// Ends when all has come after it was told to stop, or the connection is lost.
    fn sing(mut self) {
        let (mut next, mut count) = (Instant::now(), 0);
        while !self.stop.load(Ordering::Relaxed) {
            if Instant::now() >= next {
                count += 1;
                next = Instant::now() + PERIOD;
                if self.send(count).is_err() {
                    break;
                }
            }
            if self.receive(next.saturating_duration_since(Instant::now())).is_err() {
                break;
            }
        }
        self.singing.fetch_sub(1, Ordering::AcqRel);
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline && !self.is_done() && self.receive(PERIOD).is_ok() {}
    }

    /// Nobody sends any more, and everything has come.
    fn is_done(&self) -> bool {
        let nobody = self.singing.load(Ordering::Acquire) == 0;
        nobody && self.notes.lock().expect("lock").on_the_way.is_empty()
    }

    fn send(&mut self, count: u64) -> Result<(), TransportError> {
        let me = self.number;
        let is_kept = count.is_multiple_of(STREAM_EVERY);
        {
            let mut notes = self.notes.lock().expect("lock");
            notes.on_the_way.insert((false, me, count), Instant::now());
            if is_kept {
                notes.on_the_way.insert((true, me, count), Instant::now());
            }
        }
        let writer = &mut self.client.writer;
        writer.publish(format!("tick.{me}.{count}").as_bytes(), b"", b"", b"tick")?;
        if is_kept {
            let reply = format!("ack.{me}.{count}");
            writer.publish(b"kept.x", reply.as_bytes(), b"", b"kept")?;
        }
        writer.flush()
    }

    fn receive(&mut self, wait: Duration) -> Result<(), TransportError> {
        let mut is_pinged = false;
        while let Some(event) = self.client.reader.next_buffered()? {
            match event {
                Event::Message(message) => {
                    let mut notes = self.notes.lock().expect("lock");
                    let mut tokens = message.subject.split(|byte| *byte == b'.');
                    let is_ack = tokens.next() == Some(b"ack");
                    let mut number = || number_of(tokens.next());
                    let (connection, count) = (number() as usize, number());
                    if is_ack && !message.payload.starts_with(b"{\"stream\"") {
                        notes.refused = String::from_utf8_lossy(message.payload).into_owned();
                        notes.worst.lost += 1;
                    }
                    notes.arrived(is_ack, connection, count);
                }
                Event::Ping => is_pinged = true,
                _ => {}
            }
        }
        if is_pinged {
            self.client.writer.pong()?;
            self.client.writer.flush()?;
        }
        match self.client.reader.fill(wait.max(Duration::from_millis(1))) {
            Err(TransportError::TimedOut(_)) => Ok(()),
            other => other,
        }
    }
}

fn number_of(token: Option<&[u8]>) -> u64 {
    let text = token.and_then(|token| std::str::from_utf8(token).ok());
    text.and_then(|text| text.parse().ok()).expect("the canary's own subjects")
}
