//! As much of Google Cloud Storage and of Azure Blob Storage as a log needs, in this process and in
//! memory: objects, ranges, listings in pages, conditional creation, removal (Azure: in batches).
//! Signatures are not checked. Written after the services' documentation; what they themselves do
//! differently is not found here.

use crate::proxy::Head;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Whose words a server speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    Gcs,
    Azure,
}

/// Objects on a page of a listing: few, so that there are pages.
const PAGE: usize = 3;

/// When everything was stored.
const STORED_AT: &str = "Fri, 21 Nov 2025 12:00:00 GMT";
const STORED_AT_ISO: &str = "2025-11-21T12:00:00.000Z";

type Objects = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// Serves an empty store on a port of its own, as long as the process lives.
pub fn serve(dialect: Dialect) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let objects = Objects::default();
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let objects = Arc::clone(&objects);
            // A client that goes away is its own business.
            std::thread::spawn(move || drop(answer(dialect, &objects, socket)));
        }
    });
    address
}

/// An answer that is being put together.
struct Answer {
    status: u16,
    headers: String,
    body: Vec<u8>,
}

impl Answer {
    const fn plain(status: u16) -> Self {
        Self { status, headers: String::new(), body: Vec::new() }
    }

    fn of(status: u16, headers: String, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers, body: body.into() }
    }
}

fn answer(dialect: Dialect, objects: &Objects, mut socket: TcpStream) -> io::Result<()> {
    let Some(mut head) = Head::read(&mut socket)? else { return Ok(()) };
    let body = head.read_body(&mut socket, head.body_len)?;
    let (path, query) = head.target.split_once('?').unwrap_or((&head.target, ""));
    // The bucket or container is the first part of the path.
    let key = decode(path.trim_start_matches('/').split_once('/').map_or("", |(_, key)| key));
    let mut objects = objects.lock().expect("nobody panics with it");
    let answer = match head.method.as_str() {
        "PUT" => put(dialect, &head, &mut objects, key, body),
        "DELETE" => Answer::plain(objects.remove(&key).map_or(404, |_| 204)),
        "POST" => remove_batch(&mut objects, &String::from_utf8_lossy(&body)),
        _ if key.is_empty() => list(dialect, &objects, query),
        _ => get(&head, &objects, &key),
    };
    drop(objects);
    let (status, len) = (answer.status, answer.body.len());
    let head_text = format!(
        "HTTP/1.1 {status} By Fake\r\ncontent-length: {len}\r\nconnection: close\r\n\
         last-modified: {STORED_AT}\r\netag: \"e\"\r\nx-goog-generation: 1\r\n{}\r\n",
        answer.headers
    );
    socket.write_all(head_text.as_bytes())?;
    if head.method == "HEAD" { Ok(()) } else { socket.write_all(&answer.body) }
}

fn put(
    dialect: Dialect,
    head: &Head,
    objects: &mut BTreeMap<String, Vec<u8>>,
    key: String,
    body: Vec<u8>,
) -> Answer {
    let creates = match dialect {
        Dialect::Gcs => head.header("x-goog-if-generation-match").as_deref() == Some("0"),
        Dialect::Azure => head.header("if-none-match").as_deref() == Some("*"),
    };
    if creates && objects.contains_key(&key) {
        return Answer::plain(if dialect == Dialect::Gcs { 412 } else { 409 });
    }
    objects.insert(key, body);
    Answer::plain(if dialect == Dialect::Gcs { 200 } else { 201 })
}

fn get(head: &Head, objects: &BTreeMap<String, Vec<u8>>, key: &str) -> Answer {
    let Some(bytes) = objects.get(key) else { return Answer::plain(404) };
    let range = head.header("range").and_then(|text| {
        let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse::<usize>().ok()?, last.parse::<usize>().ok()?))
    });
    let Some((first, last)) = range else { return Answer::of(200, String::new(), bytes.clone()) };
    let last = last.min(bytes.len().saturating_sub(1));
    if first > last {
        return Answer::plain(416);
    }
    let header = format!("content-range: bytes {first}-{last}/{}\r\n", bytes.len());
    Answer::of(206, header, &bytes[first..=last])
}

fn list(dialect: Dialect, objects: &BTreeMap<String, Vec<u8>>, query: &str) -> Answer {
    let value = |name: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| decode(value))
    };
    let prefix = value("prefix").unwrap_or_default();
    let from = match dialect {
        Dialect::Gcs => value("continuation-token"),
        Dialect::Azure => value("marker"),
    };
    let from = from.unwrap_or_default();
    let matching = objects.iter().filter(|(key, _)| key.starts_with(&prefix) && **key >= from);
    let found: Vec<(&String, usize)> =
        matching.map(|(key, bytes)| (key, bytes.len())).take(PAGE + 1).collect();
    let (page, next) = (&found[..found.len().min(PAGE)], found.get(PAGE).map(|(key, _)| *key));
    let text = match dialect {
        Dialect::Gcs => gcs_page(page, next),
        Dialect::Azure => azure_page(page, next),
    };
    Answer::of(200, "content-type: application/xml\r\n".to_owned(), text)
}

// Writing to a string cannot fail, and keys of a log need no escapes.

fn gcs_page(page: &[(&String, usize)], next: Option<&String>) -> String {
    let mut text = "<ListBucketResult>".to_owned();
    for (key, size) in page {
        let _ = write!(
            text,
            "<Contents><Key>{key}</Key><Size>{size}</Size><LastModified>{STORED_AT_ISO}\
             </LastModified><ETag>\"e\"</ETag></Contents>"
        );
    }
    if let Some(next) = next {
        let _ = write!(text, "<NextContinuationToken>{next}</NextContinuationToken>");
    }
    text + "</ListBucketResult>"
}

fn azure_page(page: &[(&String, usize)], next: Option<&String>) -> String {
    let mut text = "<EnumerationResults><Blobs>".to_owned();
    for (key, size) in page {
        let _ = write!(
            text,
            "<Blob><Name>{key}</Name><Properties><Last-Modified>{STORED_AT}</Last-Modified>\
             <Content-Length>{size}</Content-Length><Content-Type>application/octet-stream\
             </Content-Type><Etag>e</Etag></Properties></Blob>"
        );
    }
    text += "</Blobs>";
    let _ = match next {
        Some(next) => write!(text, "<NextMarker>{next}</NextMarker>"),
        None => write!(text, "<NextMarker />"),
    };
    text + "</EnumerationResults>"
}

/// A batch of Azure: a request for each blob in a part of its own, and so the answer.
fn remove_batch(objects: &mut BTreeMap<String, Vec<u8>>, body: &str) -> Answer {
    let mut text = String::new();
    let targets = body.lines().filter_map(|line| line.strip_prefix("DELETE "));
    for (number, target) in targets.enumerate() {
        let path = target.split(' ').next().unwrap_or_default().trim_start_matches('/');
        let key = decode(path.split_once('/').map_or("", |(_, key)| key));
        let status = if objects.remove(&key).is_some() { "202 Accepted" } else { "404 Not Found" };
        let _ = write!(
            text,
            "--batch\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\n\
             HTTP/1.1 {status}\r\n\r\n\r\n"
        );
    }
    text += "--batch--\r\n";
    Answer::of(202, "content-type: multipart/mixed; boundary=batch\r\n".to_owned(), text)
}

/// Undoes the escapes of an address.
fn decode(text: &str) -> String {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let escaped = code.and_then(|two| u8::from_str_radix(two, 16).ok());
        match (first, escaped) {
            (b'%', Some(byte)) => {
                out.push(byte);
                rest = &after[2..];
            }
            _ => {
                out.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
