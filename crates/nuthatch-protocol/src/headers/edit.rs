//! Writing and changing header blocks.
//!
//! Values must hold no CR or LF; every value that came out of a block or off the wire obeys.

use super::{EMPTY_BLOCK, Iter, VERSION};
use memchr::memchr;

const CRLF: &[u8] = b"\r\n";

/// Appends the first line of a block to `out`; continue with [`push`] and [`finish`].
#[inline]
pub fn begin(out: &mut Vec<u8>) {
    out.extend_from_slice(VERSION);
    out.extend_from_slice(CRLF);
}

/// Appends one header line to `out`, between [`begin`] and [`finish`].
#[inline]
pub fn push(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(CRLF);
}

/// Appends the empty line that ends a block.
#[inline]
pub fn finish(out: &mut Vec<u8>) {
    out.extend_from_slice(CRLF);
}

/// Adds a header at the end of `block`, which becomes a block if it was empty.
pub fn append(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    if block.is_empty() {
        begin(block);
    } else if block.ends_with(CRLF) {
        block.truncate(block.len() - CRLF.len());
    }
    push(block, name, value);
    finish(block);
}

/// Takes every header called exactly `name` out of `block`; a block that has nothing left, not
/// even a status, becomes empty. Says whether there was one.
pub fn remove(block: &mut Vec<u8>, name: &[u8]) -> bool {
    if super::find_header(block, name).is_none() {
        return false;
    }
    let mut kept = Vec::with_capacity(block.len());
    copy_without(&mut kept, block, |other| other == name);
    *block = kept;
    true
}

/// Gives the header `name` one value: replaces all there are, or adds it at the end.
pub fn set(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    remove(block, name);
    append(block, name, value);
}

/// Appends `block` to `out` without the headers whose name `drop` selects. Appends nothing if
/// neither a header nor a status would be left.
pub fn copy_without(out: &mut Vec<u8>, block: &[u8], mut drop: impl FnMut(&[u8]) -> bool) {
    let start = out.len();
    let first = memchr(b'\n', block).map_or(block.len(), |feed| feed + 1);
    out.extend_from_slice(&block[..first]);
    let mut lines = Iter { rest: &block[first..] };
    let mut before = lines.rest.len();
    while let Some((name, _)) = lines.next() {
        // Lines the iterator skips in front of a header stay or go with it.
        let end = block.len() - lines.rest.len();
        let line = &block[block.len() - before..end];
        before = lines.rest.len();
        if !drop(name) {
            out.extend_from_slice(line);
        }
    }
    out.extend_from_slice(&block[block.len() - before..]);
    if &out[start..] == EMPTY_BLOCK {
        out.truncate(start);
    }
}
