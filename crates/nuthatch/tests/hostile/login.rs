//! Handshakes: TLS that is begun and left, plain text where TLS is required, and passwords that cost
//! time to compare.

use crate::rig::{HASHED_PASSWORD, Rig, Who, scaled, write_certificate};
use crate::support::{Server, TIMEOUT, TempDir};
use crate::wire::Raw;
use crate::{Attack, Outcome};
use nuthatch_client::{Client, ConnectOptions};
use std::thread;
use std::time::{Duration, Instant};

/// Handshakes that are begun and left.
const HALF_OPEN: usize = 300;
/// The first bytes of a ClientHello of 512 bytes.
const HELLO: &[u8] = &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03];
/// When the last of them must be gone: the server gives each 2 s.
const CLOSED_WITHIN: Duration = Duration::from_secs(20);
/// Bytes that a connection in its handshake may take.
const HANDSHAKES_BYTES: u64 = HALF_OPEN as u64 * (64 << 10);

pub const ATTACKS: &[Attack] = &[
    Attack::new("tls-half-open", half_open).costs(HANDSHAKES_BYTES),
    Attack::new("tls-downgrade", downgrade).ours_only(),
    Attack::new("bcrypt-load", bcrypt_load),
];

/// Handshakes that never go on are ended by the server, and hold up nobody.
fn half_open(rig: &Rig) -> Outcome {
    let address = rig.address();
    let mut held = Vec::new();
    for n in 0..HALF_OPEN {
        let mut raw = Raw::open(&address);
        raw.read_until(b"\r\n", TIMEOUT);
        match n % 4 {
            0 => drop(raw.send(&HELLO[..1])),
            1 => drop(raw.send(HELLO)),
            2 => drop(raw.send(&[HELLO, &[0xff; 501]].concat())),
            _ => drop(raw.send(&[0x16, 0x03, 0x01, 0xff, 0xff])),
        }
        held.push(raw);
    }
    let deadline = Instant::now() + CLOSED_WITHIN;
    let is_open = |raw: &mut Raw| {
        let left = deadline.saturating_duration_since(Instant::now());
        !raw.is_closed_within(left.max(Duration::from_millis(1)))
    };
    let open = held.iter_mut().filter_map(|raw| is_open(raw).then_some(()));
    match open.count() {
        0 => Ok("closed".to_owned()),
        open => Err(format!("{open} of {HALF_OPEN} are still open")),
    }
}

/// Where TLS with a client's certificate is required, nothing less gets a word in.
fn downgrade(rig: &Rig) -> Outcome {
    assert_eq!(rig.who(), Who::Ours);
    let dir = TempDir::new("hostile-tls");
    write_certificate(dir.path());
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| dir.path().join(name));
    let text = format!(
        "tls {{ cert_file: {cert:?}, key_file: {key:?}, ca_file: {cert:?}, verify: true, timeout: 2 }}"
    );
    let file = dir.path().join("server.conf");
    std::fs::write(&file, text).expect("writes");
    let server = Server::start(&dir.path().join("data"), &["-c", file.to_str().expect("plain")]);
    let address = server.url.replace("tls://", "nats://");
    let address = address.trim_start_matches("nats://");
    for text in [
        "CONNECT {}\r\nPING\r\n",
        "CONNECT {\"tls_required\":false}\r\nPUB a 1\r\nx\r\nPING\r\n",
        "PING\r\n",
    ] {
        let mut raw = Raw::open(address);
        raw.read_until(b"\r\n", TIMEOUT);
        let told = raw.exchange(text.as_bytes(), b"PONG\r\n", Duration::from_secs(10));
        if told.ends_with(b"PONG\r\n") {
            return Err("plain text was answered".to_owned());
        }
    }
    let mut options =
        ConnectOptions::new(&format!("tls://{address}")).map_err(|e| e.to_string())?;
    options.timeout = Duration::from_secs(20);
    options.tls.ca = Some(cert.clone());
    if Client::connect(&options).is_ok() {
        return Err("let in without a certificate".to_owned());
    }
    (options.tls.cert, options.tls.key) = (Some(cert), Some(key));
    Client::connect(&options).map_err(|e| format!("with its certificate: {e}"))?;
    server.stop();
    Ok("refused".to_owned())
}

/// Wrong passwords against a hash, many at a time: each is refused, and the right one is let in.
fn bcrypt_load(rig: &Rig) -> Outcome {
    let (threads, tries) = (16, scaled(20, 4));
    let let_in: usize = thread::scope(|scope| {
        let attempt = |n: usize| {
            scope.spawn(move || {
                let wrong = |t| format!("wrong {n} {t}");
                (0..tries).filter(|t| rig.try_client("hashed", &wrong(*t), "x").is_ok()).count()
            })
        };
        let all: Vec<_> = (0..threads).map(attempt).collect();
        all.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    if let_in > 0 {
        return Err(format!("{let_in} wrong passwords were let in"));
    }
    rig.try_client("hashed", HASHED_PASSWORD, "x")?;
    Ok(format!("{} refused", threads * tries))
}
