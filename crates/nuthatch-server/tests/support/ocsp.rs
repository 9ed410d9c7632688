//! An authority with a scripted OCSP responder.
#![allow(dead_code, reason = "not every test file uses every helper")]

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, CustomExtension, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, SerialNumber, SigningKey,
};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// What a responder says of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Good,
    Revoked,
    /// For so many seconds.
    RevokedFor(u64),
    /// Signed by somebody whose certificate ends in so many seconds.
    RevokedByDelegate(i64),
    Unknown,
    /// Good, for so many seconds.
    GoodFor(u64),
    /// Good, without an end.
    GoodWithoutEnd,
    /// Good, until an hour ago.
    Expired,
    /// Good, from the next hour on.
    Future,
    /// Good, signed by somebody whom the authority lets sign.
    Delegated,
    /// Good, signed by a certificate of the authority for another purpose.
    Usurped,
    /// Good, signed by somebody else.
    Forged,
    /// Good of another certificate.
    Other,
    /// Good, with a critical extension that nobody knows.
    CriticalExtension,
    /// 200 KB.
    Large,
    /// Nothing, for long.
    Slow,
    /// Status 500.
    Failure,
    /// "try later"
    TryLater,
    /// No OCSP.
    Nonsense,
    /// The connection ends.
    Gone,
}

const HOUR: Duration = Duration::from_secs(3600);

pub fn tlv(id: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut out = vec![id];
    match content.len() {
        len @ 0..0x80 => out.push(len as u8),
        len => {
            out.push(0x82);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
    }
    out.extend_from_slice(&content);
    out
}

/// The value at the start: its content, and what follows.
fn value(bytes: &[u8]) -> (&[u8], &[u8]) {
    let (start, len) = match bytes[1] {
        len @ 0..=0x7f => (2, usize::from(len)),
        0x81 => (3, usize::from(bytes[2])),
        _ => (4, usize::from(u16::from_be_bytes([bytes[2], bytes[3]]))),
    };
    (&bytes[start..start + len], &bytes[start + len..])
}

fn time(at: SystemTime) -> Vec<u8> {
    let at = jiff::Timestamp::try_from(at).unwrap();
    tlv(0x18, &[at.strftime("%Y%m%d%H%M%SZ").to_string().as_bytes()])
}

/// The id of the certificate that a request asks about, and its serial number.
pub fn asked(request: &[u8]) -> (Vec<u8>, u8) {
    let mut inner = request;
    for _ in 0..4 {
        inner = value(inner).0;
    }
    let (mut fields, rest) = value(inner);
    assert!(rest.is_empty());
    let id = inner.to_vec();
    for _ in 0..3 {
        fields = value(fields).1;
    }
    (id, *value(fields).0.last().unwrap())
}

struct Keys {
    authority: CertifiedIssuer<'static, KeyPair>,
    delegate: (KeyPair, Certificate),
    usurper: (KeyPair, Certificate),
    stranger: KeyPair,
}

impl Keys {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let signer = |purpose| {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.extended_key_usages = vec![purpose];
            let certificate = params.signed_by(&key, &authority).unwrap();
            (key, certificate)
        };
        let delegate = signer(ExtendedKeyUsagePurpose::OcspSigning);
        let usurper = signer(ExtendedKeyUsagePurpose::ClientAuth);
        Self { delegate, usurper, stranger: KeyPair::generate().unwrap(), authority }
    }

    /// Another certificate of the delegate.
    fn until(&self, end: SystemTime) -> Certificate {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::OcspSigning];
        params.not_after = end.into();
        params.signed_by(&self.delegate.0, &self.authority).unwrap()
    }
}

/// An authority.
pub struct Authority {
    pub directory: PathBuf,
    keys: Keys,
    answers: Mutex<HashMap<u8, Answer>>,
    /// Requests that came.
    pub requests: AtomicUsize,
    pub port: u16,
}

impl Authority {
    /// One with a responder that says "unknown" of everything.
    pub fn new(name: &str) -> Arc<Self> {
        let directory =
            std::env::temp_dir().join(format!("nuthatch-ocsp-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let keys = Keys::new();
        std::fs::write(directory.join("ca.pem"), keys.authority.pem()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (answers, requests) = (Mutex::default(), AtomicUsize::new(0));
        let authority = Arc::new(Self { directory, keys, answers, requests, port });
        let responder = Arc::downgrade(&authority);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some(authority) = responder.upgrade() else { return };
                std::thread::spawn(move || authority.serve(stream));
            }
        });
        authority
    }

    pub fn set(&self, serial: u8, answer: Answer) {
        self.answers.lock().unwrap().insert(serial, answer);
    }

    pub fn count(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// A certificate that names the responder.
    pub fn issue(&self, name: &str, serial: u8) {
        self.issue_with(name, serial, true, false);
    }

    /// A certificate that may name the responder, and may demand stapling.
    pub fn issue_with(&self, name: &str, serial: u8, named: bool, must_staple: bool) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.serial_number = Some(SerialNumber::from(vec![serial]));
        if named {
            let method = [0x06, 8, 0x2b, 6, 1, 5, 5, 7, 0x30, 1];
            let access = tlv(0x30, &[&method, &tlv(0x86, &[self.url().as_bytes()])]);
            let oid = &[1, 3, 6, 1, 5, 5, 7, 1, 1];
            let extension = CustomExtension::from_oid_content(oid, tlv(0x30, &[&access]));
            params.custom_extensions.push(extension);
        }
        if must_staple {
            let oid = &[1, 3, 6, 1, 5, 5, 7, 1, 24];
            let extension = CustomExtension::from_oid_content(oid, vec![0x30, 3, 2, 1, 5]);
            params.custom_extensions.push(extension);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.keys.authority).unwrap();
        std::fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    /// `cert_file` and the like for the files of this name.
    pub fn tls(&self, name: &str, further: &str) -> String {
        format!(
            "tls {{ cert_file: '{}', key_file: '{}', ca_file: '{}', timeout: 20, {further} }}",
            self.path(&format!("{name}.pem")).display(),
            self.path(&format!("{name}.key")).display(),
            self.path("ca.pem").display(),
        )
    }

    /// The response to a request.
    pub fn response(&self, request: &[u8], answer: Answer) -> Vec<u8> {
        let (mut id, _) = asked(request);
        let now = SystemTime::now();
        let (mut from, mut until) = (now - HOUR, Some(now + HOUR));
        let state: &[u8] = match answer {
            Answer::Revoked | Answer::RevokedFor(_) | Answer::RevokedByDelegate(_) => {
                &[&[0xa1, 17], &*time(now - HOUR)].concat()
            }
            Answer::Unknown => &[0x82, 0],
            _ => &[0x80, 0],
        };
        match answer {
            Answer::GoodFor(seconds) | Answer::RevokedFor(seconds) => {
                until = Some(now + Duration::from_secs(seconds))
            }
            Answer::GoodWithoutEnd => until = None,
            Answer::Expired => (from, until) = (now - HOUR * 2, Some(now - HOUR)),
            Answer::Future => from = now + HOUR,
            Answer::Other => *id.last_mut().unwrap() ^= 1,
            Answer::TryLater => return vec![0x30, 3, 0x0a, 1, 3],
            Answer::Nonsense => return b"<html>nothing here</html>".to_vec(),
            Answer::Large => return vec![0x30; 200_000],
            _ => {}
        }
        let until = until.map(|until| tlv(0xa0, &[&time(until)])).unwrap_or_default();
        let single = tlv(0x30, &[&id, state, &time(from), &until]);
        let who = tlv(0xa2, &[&tlv(0x04, &[&[7; 20]])]);
        let critical = [0x30, 9, 0x06, 2, 0x2a, 3, 0x01, 1, 0xff, 0x04, 0];
        let extensions = match answer {
            Answer::CriticalExtension => tlv(0xa1, &[&tlv(0x30, &[&critical])]),
            _ => Vec::new(),
        };
        let data = tlv(0x30, &[&who, &time(now), &tlv(0x30, &[&single]), &extensions]);
        let keys = &self.keys;
        let short_lived;
        let (key, certificate): (&dyn SigningKey, _) = match answer {
            Answer::Delegated => (&keys.delegate.0, Some(keys.delegate.1.der())),
            Answer::RevokedByDelegate(seconds) => {
                let time = Duration::from_secs(seconds.unsigned_abs());
                let end = if seconds < 0 { now - time } else { now + time };
                short_lived = keys.until(end);
                (&keys.delegate.0, Some(short_lived.der()))
            }
            Answer::Usurped => (&keys.usurper.0, Some(keys.usurper.1.der())),
            Answer::Forged => (&keys.stranger, None),
            _ => (keys.authority.key(), None),
        };
        // ecdsa-with-SHA256
        let algorithm = tlv(0x30, &[&[0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]]);
        let signature = tlv(0x03, &[&[0], &key.sign(&data).unwrap()]);
        let certificates = certificate
            .map(|certificate| tlv(0xa0, &[&tlv(0x30, &[certificate])]))
            .unwrap_or_default();
        let basic = tlv(0x30, &[&data, &algorithm, &signature, &certificates]);
        let kind = [0x06, 9, 0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1];
        let bytes = tlv(0x30, &[&kind, &tlv(0x04, &[&basic])]);
        tlv(0x30, &[&[0x0a, 1, 0], &tlv(0xa0, &[&bytes])])
    }

    fn serve(&self, mut stream: TcpStream) {
        let Some(request) = read_request(&mut stream) else { return };
        self.requests.fetch_add(1, Ordering::Relaxed);
        let serial = asked(&request).1;
        let answer = self.answers.lock().unwrap().get(&serial).copied();
        let answer = answer.unwrap_or(Answer::Unknown);
        let status = match answer {
            Answer::Gone => return,
            Answer::Slow => return std::thread::sleep(Duration::from_secs(120)),
            Answer::Failure => "500 Broken",
            _ => "200 OK",
        };
        let body = self.response(&request, answer);
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
        let _ = stream.write_all(&[head.as_bytes(), &body].concat());
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// The OCSP request in an HTTP request, be it a GET or a POST.
fn read_request(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
            if let Some(path) = head.strip_prefix("GET ") {
                return Some(of_path(path.split(' ').next().unwrap()));
            }
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
            });
            let body = &bytes[end + 4..];
            if body.len() >= length.unwrap_or(0) {
                return Some(body.to_vec());
            }
        }
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return None,
            Ok(read) => bytes.extend_from_slice(&chunk[..read]),
        }
    }
}

fn of_path(path: &str) -> Vec<u8> {
    use base64::Engine;
    let text = path.trim_start_matches('/');
    let text = text.replace("%2B", "+").replace("%2F", "/").replace("%3D", "=");
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}
