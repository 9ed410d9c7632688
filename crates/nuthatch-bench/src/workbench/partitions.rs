//! `bench partitions` (seed 001): several streams behind a deterministic partition of subjects;
//! published to synchronously, in batches of 100, and by five publishers.

use std::time::{Duration, Instant};

use nuthatch_protocol::transform::Transform;
use nuthatch_protocol::wire::write::push_u64;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::harness::{BenchError, Target, share};
use crate::payload::Payload;
use crate::report::{LatencySummary, Tally};
use nuthatch_client::js::{self, JsError, PubAck, STREAM_NOT_FOUND};
use nuthatch_client::{Client, Event, TransportError};

/// Bytes of a body, as in the seed.
pub const BODY_BYTES: usize = 128;

/// Messages of a batch in the seed.
pub const BATCH: usize = 100;

/// Publishers of the last phase in the seed.
pub const PUBLISHERS: usize = 5;

/// How long the subject of the probe for a mapping may take.
const PROBE_WAIT: Duration = Duration::from_millis(300);

/// Who maps `events.7` to `events.7.3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mapping {
    /// The server, by its configuration.
    Server,
    /// This client, with the same function, because the server has no such mapping.
    Client,
}

/// The plan.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Streams. A mapping in the server is used only when it has this count.
    pub partitions: u32,
    /// Messages of the phases with batches, with the subjects `events.0`, `events.1`, …
    pub messages: u64,
    /// Messages of the synchronous phase.
    pub sync_messages: u64,
}

/// One phase.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Phase {
    /// Such as `5 publishers, batches of 100`.
    pub name: String,
    /// Messages per second of all publishers together.
    pub per_s: f64,
    /// Messages per second of each publisher.
    pub publishers: Vec<f64>,
    /// Latency of acks in microseconds.
    pub ack_us: Option<LatencySummary>,
    /// Messages of each stream afterwards, as the server reports them.
    pub streams: Vec<u64>,
    /// Acks from another stream than the partition function says, refusals, and the like.
    pub errors: u64,
    /// The first of them.
    pub first_error: Option<String>,
}

/// Everything.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Partitions {
    /// Who mapped.
    pub mapping: Mapping,
    /// The phases in order.
    pub phases: Vec<Phase>,
}

/// Runs the three phases of the seed, each on empty streams.
///
/// # Errors
/// When the server cannot be reached or refuses.
pub fn run(target: &Target, plan: Plan) -> Result<Partitions, BenchError> {
    let mut control = target.connect()?;
    let transform = transform(plan.partitions)?;
    create_streams(&mut control, target, plan.partitions)?;
    let mapping = find_mapping(target, &transform)?;
    purge(&mut control, target, plan.partitions)?;
    let settings = [
        ("1 publisher, synchronous".to_owned(), 1, 1, plan.sync_messages),
        (format!("1 publisher, batches of {BATCH}"), 1, BATCH, plan.messages),
        (format!("{PUBLISHERS} publishers, batches of {BATCH}"), PUBLISHERS, BATCH, plan.messages),
    ];
    let mut phases = Vec::new();
    for (name, publishers, window, messages) in settings {
        let tallies = publish(target, &transform, mapping, publishers, window, messages)?;
        let streams = message_counts(&mut control, target, plan.partitions)?;
        phases.push(Phase::new(name, tallies, streams));
        purge(&mut control, target, plan.partitions)?;
    }
    delete_streams(&mut control, target, plan.partitions)?;
    Ok(Partitions { mapping, phases })
}

impl Phase {
    fn new(name: String, tallies: Vec<Tally>, streams: Vec<u64>) -> Self {
        let rate = |tally: &Tally| {
            let seconds = tally.finished.duration_since(tally.started).as_secs_f64();
            tally.msgs as f64 / seconds.max(1e-9)
        };
        let publishers: Vec<f64> = tallies.iter().map(rate).collect();
        let mut all = tallies.into_iter();
        let mut sum = all.next().unwrap_or_default();
        all.for_each(|tally| sum.merge(tally));
        let mut phase = Self {
            name,
            per_s: rate(&sum),
            publishers,
            ack_us: sum.latencies.summary(),
            errors: sum.errors,
            first_error: sum.first_error.clone(),
            streams,
        };
        let stored: u64 = phase.streams.iter().sum();
        if stored != sum.msgs {
            phase.errors += 1;
            let text = format!("{} acks, but {stored} messages are stored", sum.msgs);
            phase.first_error.get_or_insert(text);
        }
        phase
    }

    /// Smallest, average, largest and standard deviation of the publishers' rates.
    pub fn spread(&self) -> [f64; 4] {
        let count = self.publishers.len().max(1) as f64;
        let average = self.publishers.iter().sum::<f64>() / count;
        let squares: f64 = self.publishers.iter().map(|rate| (rate - average).powi(2)).sum();
        let min = self.publishers.iter().copied().fold(f64::INFINITY, f64::min);
        let max = self.publishers.iter().copied().fold(0.0, f64::max);
        [min, average, max, (squares / count).sqrt()]
    }
}

fn transform(partitions: u32) -> Result<Transform, BenchError> {
    let destination = format!("events.{{{{wildcard(1)}}}}.{{{{partition({partitions},1)}}}}");
    Transform::new("events.*", &destination).map_err(|err| BenchError::Usage(err.to_string()))
}

fn stream_name(partition: u32) -> String {
    format!("events-{partition}")
}

fn create_streams(
    control: &mut Client,
    target: &Target,
    partitions: u32,
) -> Result<(), BenchError> {
    delete_streams(control, target, partitions)?;
    for partition in 0..partitions {
        let name = stream_name(partition);
        let config = json!({
            "name": name, "subjects": [format!("events.*.{partition}")], "storage": "file",
            "retention": "limits", "discard": "old", "num_replicas": 1, "allow_rollup_hdrs": true,
            "duplicate_window": 120_000_000_000u64,
        });
        js::api(control, &format!("STREAM.CREATE.{name}"), &config, target.timeout)?;
    }
    Ok(())
}

fn delete_streams(
    control: &mut Client,
    target: &Target,
    partitions: u32,
) -> Result<(), BenchError> {
    for partition in 0..partitions {
        let what = format!("STREAM.DELETE.{}", stream_name(partition));
        match js::api(control, &what, &Value::Null, target.timeout) {
            Err(JsError::Api(err)) if err.err_code == STREAM_NOT_FOUND => {}
            result => drop(result?),
        }
    }
    Ok(())
}

fn purge(control: &mut Client, target: &Target, partitions: u32) -> Result<(), BenchError> {
    for partition in 0..partitions {
        let what = format!("STREAM.PURGE.{}", stream_name(partition));
        js::api(control, &what, &Value::Null, target.timeout)?;
    }
    Ok(())
}

fn message_counts(
    control: &mut Client,
    target: &Target,
    partitions: u32,
) -> Result<Vec<u64>, BenchError> {
    let mut counts = Vec::new();
    for partition in 0..partitions {
        let what = format!("STREAM.INFO.{}", stream_name(partition));
        let info = js::api(control, &what, &Value::Null, target.timeout)?;
        counts.push(info["state"]["messages"].as_u64().unwrap_or(0));
    }
    Ok(counts)
}

/// Publishes to `events.probe` and looks what arrives.
fn find_mapping(target: &Target, transform: &Transform) -> Result<Mapping, BenchError> {
    let mut client = target.connect()?;
    client.subscribe("events.probe.*", "")?;
    client.round_trip(target.timeout)?;
    client.writer.publish(b"events.probe", b"", b"", b"")?;
    client.writer.flush()?;
    let mut expected = Vec::new();
    transform.apply(b"events.probe", 0, &mut expected);
    match client.next_message(Instant::now() + PROBE_WAIT) {
        Ok(message) if message.subject.as_bytes() == expected => Ok(Mapping::Server),
        Ok(message) => {
            let expected = String::from_utf8_lossy(&expected);
            let text = format!("the server maps to {}, not {expected}", message.subject);
            Err(BenchError::Failed(text))
        }
        Err(TransportError::TimedOut(_)) => Ok(Mapping::Client),
        Err(err) => Err(err.into()),
    }
}

fn publish(
    target: &Target,
    transform: &Transform,
    mapping: Mapping,
    publishers: usize,
    window: usize,
    messages: u64,
) -> Result<Vec<Tally>, BenchError> {
    let mut states = Vec::new();
    let mut first = 0;
    for index in 0..publishers {
        let count = share(messages, publishers, index);
        states.push(Publisher::connect(target, transform, mapping, window, first, count)?);
        first += count;
    }
    let timeout = target.timeout;
    let results: Vec<Result<Tally, BenchError>> = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for mut publisher in states {
            threads.push(scope.spawn(move || publisher.run(timeout).map(|()| publisher.tally)));
        }
        threads.into_iter().map(|t| t.join().unwrap_or(Err(BenchError::Panicked))).collect()
    });
    results.into_iter().collect()
}

/// One connection that publishes `events.<first>`, `events.<first + 1>`, …
struct Publisher<'a> {
    client: Client,
    transform: &'a Transform,
    mapping: Mapping,
    payload: Payload,
    /// Reply subject up to the token.
    reply: Vec<u8>,
    subject: Vec<u8>,
    mapped: Vec<u8>,
    first: u64,
    count: u64,
    sent: u64,
    answered: u64,
    /// When each unanswered message was sent and which stream must answer, at its number modulo
    /// the window.
    slots: Vec<(Instant, String)>,
    tally: Tally,
}

impl<'a> Publisher<'a> {
    fn connect(
        target: &Target,
        transform: &'a Transform,
        mapping: Mapping,
        window: usize,
        first: u64,
        count: u64,
    ) -> Result<Self, BenchError> {
        let mut client = target.connect()?;
        let reply = format!("{}.p.", client.inbox());
        client.subscribe(&format!("{reply}*"), "")?;
        client.round_trip(target.timeout)?;
        Ok(Self {
            client,
            transform,
            mapping,
            payload: Payload::new(BODY_BYTES, first),
            reply: reply.into_bytes(),
            subject: Vec::new(),
            mapped: Vec::new(),
            first,
            count,
            sent: 0,
            answered: 0,
            slots: vec![(Instant::now(), String::new()); window],
            tally: Tally::default(),
        })
    }

    fn run(&mut self, timeout: Duration) -> Result<(), BenchError> {
        self.tally.started = Instant::now();
        while self.answered < self.count {
            // A batch goes out when the one before it has been acknowledged, as `nats bench` does.
            if self.answered == self.sent {
                let end = self.count.min(self.sent + self.slots.len() as u64);
                while self.sent < end {
                    self.publish_one()?;
                }
                self.client.writer.flush()?;
            }
            self.read_acks(timeout)?;
        }
        self.tally.finished = Instant::now();
        self.tally.bytes = self.tally.msgs * BODY_BYTES as u64;
        Ok(())
    }

    fn publish_one(&mut self) -> Result<(), TransportError> {
        let number = self.first + self.sent;
        self.subject.clear();
        self.subject.extend_from_slice(b"events.");
        push_u64(&mut self.subject, number);
        self.mapped.clear();
        self.transform.apply_matching(&self.subject, 0, &mut self.mapped);
        let slot = (self.sent % self.slots.len() as u64) as usize;
        let (sent_at, stream) = &mut self.slots[slot];
        let partition = self.mapped.rsplit(|byte| *byte == b'.').next().unwrap_or_default();
        stream.clear();
        stream.push_str("events-");
        stream.push_str(std::str::from_utf8(partition).unwrap_or_default());
        *sent_at = Instant::now();
        let prefix = self.reply.len();
        push_u64(&mut self.reply, self.sent);
        let subject = match self.mapping {
            Mapping::Server => &self.subject,
            Mapping::Client => &self.mapped,
        };
        self.client.writer.publish(subject, &self.reply, b"", self.payload.get(number))?;
        self.reply.truncate(prefix);
        self.sent += 1;
        Ok(())
    }

    fn read_acks(&mut self, timeout: Duration) -> Result<(), TransportError> {
        let Self { client, slots, tally, reply, answered, sent, .. } = self;
        loop {
            match client.reader.next_buffered()? {
                None => break,
                Some(Event::Message(ack)) => {
                    *answered += 1;
                    let token = ack.subject.strip_prefix(&reply[..]);
                    let token = token.and_then(nuthatch_client::frame::decimal);
                    let Some(token) = token.filter(|token| token < sent) else {
                        tally.error(|| "an ack for nothing".into());
                        continue;
                    };
                    // Acks of different streams may overtake each other.
                    let (sent_at, stream) = &slots[(token % slots.len() as u64) as usize];
                    match (ack.status(), PubAck::parse(ack.payload, stream)) {
                        (None, PubAck::Stored(_)) => {
                            tally.msgs += 1;
                            tally.latencies.record(sent_at.elapsed());
                        }
                        (status, answer) => tally.error(|| format!("{status:?} {answer:?}")),
                    }
                }
                Some(Event::Ping) => client.writer.pong()?,
                Some(Event::Error(text)) => return Err(TransportError::Server(text.into())),
                Some(Event::Pong | Event::Ok | Event::Info(_)) => {}
            }
        }
        if *answered < *sent { client.reader.fill(timeout) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distribution_of_the_seed() {
        let transform = transform(5).unwrap();
        let mut counts = [0; 5];
        let mut mapped = Vec::new();
        for number in 0..200_000 {
            mapped.clear();
            assert!(transform.apply(format!("events.{number}").as_bytes(), 0, &mut mapped));
            counts[usize::from(mapped.last().unwrap() - b'0')] += 1;
        }
        assert_eq!(counts, [39_973, 39_968, 39_960, 40_054, 40_045]);
    }

    #[test]
    fn the_spread_of_publishers() {
        let tally = |msgs| {
            let mut tally = Tally::default();
            (tally.msgs, tally.finished) = (msgs, Instant::now() + Duration::from_secs(1));
            tally
        };
        let phase = Phase::new("x".into(), vec![tally(100), tally(200)], vec![200, 90]);
        let [min, average, max, std_dev] = phase.spread();
        assert!((min - 100.0).abs() < 1.0 && (max - 200.0).abs() < 1.0, "{min} {max}");
        assert!((average - 150.0).abs() < 1.0 && (std_dev - 50.0).abs() < 1.0);
        assert_eq!(phase.errors, 1, "290 are stored of 300 acknowledged");
    }
}
