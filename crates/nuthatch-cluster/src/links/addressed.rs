//! A packet on its way: how heavy it is, and its bytes on a connection.

use crate::channel::Channel;
use crate::packet::{self, Packet};
use bytes::Bytes;
use nuthatch_catalog_group::LogNumber;
use std::io::{self, IoSlice, Write as _};

/// A packet on its way, and the log that it is about.
pub(super) type Addressed = (LogNumber, Packet);

/// What a packet takes of the bytes that may wait.
pub(super) fn weight(packet: &Packet) -> usize {
    256 + packet.payloads.iter().map(Bytes::len).sum::<usize>()
}

/// Appends a packet with its payloads.
pub(super) fn put_packet(to: &mut Vec<u8>, (log, packet): &Addressed) {
    to.extend_from_slice(&packet::encode(*log, packet));
    packet.payloads.iter().for_each(|payload| to.extend_from_slice(payload));
}

/// Writes a packet with its payloads.
pub(super) fn write_packet(channel: &mut Channel, (log, packet): &Addressed) -> io::Result<()> {
    let head = packet::encode(*log, packet);
    let mut parts = vec![IoSlice::new(&head)];
    parts.extend(packet.payloads.iter().map(|payload| IoSlice::new(payload)));
    let mut left = &mut parts[..];
    while !left.is_empty() {
        match channel.write_vectored(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut left, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    channel.flush()
}
