//! Entry points for fuzzers: the readers of what other nodes say and of what the catalog holds, with the
//! checksums set right first, because no fuzzer guesses them. Not part of the API.

use crate::catalog;
use crate::coding::crc;
use crate::hello::{HELLO_BYTES, Hello};
use crate::link_hello::{LINK_HELLO_FRONT, LINK_HELLO_FRONT_BEYOND, LinkHello};
use crate::operation;
use crate::packet::{self, HEADER_BYTES, Header};
use crate::port::read_packet;
use crate::stored_roster;
use bytes::Bytes;
use nuthatch_catalog_group::LogNumber;

/// A packet: what a node sends on a connection. What is taken is written again as it was.
pub fn packet(data: &[u8]) {
    let _ = read_packet(&mut &*data);
    let Some((&[low, high], rest)) = data.split_first_chunk() else { return };
    let len = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
    let (message, payloads) = rest.split_at(len);
    let header = Header::of(LogNumber::FIRST, message, payloads.len());
    let Ok(taken) = packet::decode(header, message, Bytes::copy_from_slice(payloads)) else {
        return;
    };
    let again = packet::encode(LogNumber::FIRST, &taken);
    assert_eq!(again[HEADER_BYTES..], *message, "a message has one form");
}

/// What a node begins with.
pub fn hello(data: &[u8]) {
    let mut bytes = [0; HELLO_BYTES];
    let len = data.len().min(HELLO_BYTES);
    bytes[..len].copy_from_slice(&data[..len]);
    let _ = Hello::decode(&bytes);
    let sum = crc(&bytes[..HELLO_BYTES - 4]);
    bytes[HELLO_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
    if let Ok(hello) = Hello::decode(&bytes) {
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    }
}

/// What the catalog holds, and the operations of an entry.
pub fn objects(data: &[u8]) {
    catalog::fuzz(data);
    stored_roster::fuzz(data);
    let _ = operation::operations(data);
}

/// What a node begins a connection for messages of clients with.
pub fn link_hello(data: &[u8]) {
    let _ = LinkHello::decode(data);
    for front in [LINK_HELLO_FRONT, LINK_HELLO_FRONT_BEYOND] {
        // A checksum that fits, behind as long a body as there is.
        let mut bytes = front.to_vec();
        bytes.extend_from_slice(&(data.len() as u32).to_le_bytes());
        bytes.extend_from_slice(data);
        bytes.extend_from_slice(&crc(&bytes).to_le_bytes());
        let Ok(Some((hello, used))) = LinkHello::decode(&bytes) else { continue };
        assert_eq!(used, bytes.len(), "all of it is the hello");
        let again = hello.encode().expect("what was read can be said");
        // An address has several forms.
        assert!(hello.beyond.is_some() || again == bytes, "a hello has one form");
        let read = LinkHello::decode(&again).map(|read| read.map(|(hello, _)| hello));
        assert_eq!(read, Ok(Some(hello)), "what is said is what was read");
    }
}
