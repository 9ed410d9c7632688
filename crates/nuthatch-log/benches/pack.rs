//! What compressing cold data gains and costs: `cargo bench -p nuthatch-log --bench pack`. For each
//! kind of message, frame size and level of zstd: what records become, and how fast; and what they
//! become if every subject is written once in each frame and referred to by number.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Bytes of records in each measurement.
const DATA_BYTES: usize = 16 << 20;

/// Distinct subjects.
const SUBJECTS: u64 = 1_000_000;

const WORDS: [&str; 24] = [
    "accepted",
    "address",
    "amount",
    "basket",
    "city",
    "courier",
    "customer",
    "delivered",
    "email",
    "invoice",
    "item",
    "notified",
    "order",
    "packed",
    "paid",
    "parcel",
    "phone",
    "price",
    "quantity",
    "returned",
    "sent",
    "status",
    "street",
    "warehouse",
];

struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = self.0 ^ self.0 >> 33;
        mixed.wrapping_mul(0xFF51_AFD7_ED55_8CCD) >> 20
    }
}

/// An event as services write them: names of fields repeat, values mostly do not.
fn event(chance: &mut Chance, len: usize) -> Vec<u8> {
    let mut text = String::with_capacity(len + 64);
    let _ = write!(
        text,
        "{{\"id\":\"{:016x}\",\"at\":{}",
        chance.next(),
        1_790_000_000_000 + chance.next() % 1_000_000
    );
    while text.len() < len {
        let word = WORDS[chance.next() as usize % WORDS.len()];
        match chance.next() % 3 {
            0 => write!(text, ",\"{word}\":{}", chance.next() % 100_000),
            1 => write!(text, ",\"{word}_id\":\"{:08x}\"", chance.next() & 0xFFFF_FFFF),
            _ => write!(text, ",\"{word}\":\"{}\"", WORDS[chance.next() as usize % WORDS.len()]),
        }
        .expect("text takes everything");
    }
    text.truncate(len.max(2) - 1);
    text.push('}');
    text.into_bytes()
}

fn noise(chance: &mut Chance, len: usize) -> Vec<u8> {
    (0..len).map(|_| chance.next() as u8).collect()
}

/// A subject out of a million; every other message is of one of a hundred that are busy.
fn subject(chance: &mut Chance) -> String {
    let busy = chance.next().is_multiple_of(2);
    let n = chance.next() % if busy { 100 } else { SUBJECTS };
    format!("orders.eu-{}.shop{}.{n:07}", n % 8, n % 1000)
}

/// A record as the log writes it, with a subject or with a number in its place.
fn record(out: &mut Vec<u8>, seq: u64, subject: &[u8], body: &[u8]) {
    let len = (32 + subject.len() + body.len()) as u32;
    out.extend_from_slice(&[1, 0]);
    out.extend_from_slice(&(subject.len() as u16).to_le_bytes());
    out.extend_from_slice(&7u32.to_le_bytes());
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&seq.to_le_bytes());
    out.extend_from_slice(&(1_790_000_000_000_000_000 + seq * 137_211).to_le_bytes());
    out.extend_from_slice(subject);
    out.extend_from_slice(body);
}

type Message = (String, Vec<u8>);

/// The messages as frames of about `frame_bytes`; with `numbered`, subjects once at the beginning.
fn frames(messages: &[Message], frame_bytes: usize, numbered: bool) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let (mut names, mut body, mut numbers) = (Vec::new(), Vec::new(), HashMap::new());
    for (seq, (subject, payload)) in messages.iter().enumerate() {
        if numbered {
            let next = numbers.len() as u32;
            let number = *numbers.entry(subject.as_str()).or_insert_with(|| {
                names.push(subject.len() as u8);
                names.extend_from_slice(subject.as_bytes());
                next
            });
            record(&mut body, seq as u64, &number.to_le_bytes()[..3], payload);
        } else {
            record(&mut body, seq as u64, subject.as_bytes(), payload);
        }
        if names.len() + body.len() >= frame_bytes {
            names.append(&mut body);
            frames.push(std::mem::take(&mut names));
            numbers.clear();
        }
    }
    frames
}

struct Outcome {
    percent: f64,
    pack: Duration,
    unpack: Duration,
    bytes: usize,
}

fn measure(frames: &[Vec<u8>], plain_bytes: usize, level: i32) -> Outcome {
    let mut compressor = zstd::bulk::Compressor::new(level).expect("memory");
    let started = Instant::now();
    let packed: Vec<Vec<u8>> =
        frames.iter().map(|frame| compressor.compress(frame).expect("packs")).collect();
    let pack = started.elapsed();
    let started = Instant::now();
    for (packed, plain) in packed.iter().zip(frames) {
        let mut out = vec![0; plain.len()];
        zstd::bulk::decompress_to_buffer(packed, &mut out).expect("unpacks");
        assert!(out == *plain);
    }
    let unpack = started.elapsed();
    let stored: usize = packed.iter().map(Vec::len).sum();
    let percent = stored as f64 * 100.0 / plain_bytes as f64;
    Outcome { percent, pack, unpack, bytes: frames.iter().map(Vec::len).sum() }
}

fn main() {
    println!(
        "{:<16} {:>6} {:>5} {:>9} {:>11} {:>10} {:>12}",
        "messages", "frame", "level", "stored %", "numbered %", "pack MB/s", "unpack MB/s"
    );
    type Make = fn(&mut Chance, usize) -> Vec<u8>;
    let kinds: [(&str, Make, usize); 4] = [
        ("events of 100 B", event, 100),
        ("events of 1 KiB", event, 1024),
        ("noise of 100 B", noise, 100),
        ("noise of 1 KiB", noise, 1024),
    ];
    for (name, make, len) in kinds {
        let mut chance = Chance(1);
        let messages: Vec<Message> = (0..DATA_BYTES / (len + 60))
            .map(|_| (subject(&mut chance), make(&mut chance, len)))
            .collect();
        for (kib, level) in [(64, 3), (128, 1), (128, 3), (128, 6), (128, 9), (256, 3), (1024, 3)] {
            let plain = frames(&messages, kib << 10, false);
            let plain_bytes = plain.iter().map(Vec::len).sum();
            let one = measure(&plain, plain_bytes, level);
            let other = measure(&frames(&messages, kib << 10, true), plain_bytes, level);
            let rate = |took: Duration| one.bytes as f64 / took.as_secs_f64() / 1e6;
            println!(
                "{name:<16} {kib:>6} {level:>5} {:>9.1} {:>11.1} {:>10.0} {:>12.0}",
                one.percent,
                other.percent,
                rate(one.pack),
                rate(one.unpack)
            );
        }
    }
}
