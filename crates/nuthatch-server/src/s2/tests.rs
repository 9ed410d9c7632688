//! What one side writes the other reads, in any pieces; and what no side may write.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

fn text(size: usize) -> Vec<u8> {
    (0..size).map(|n| b"PUB orders.new 12\r\nhello world!\r\n"[n * n % 32]).collect()
}

fn admitted() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(true))
}

/// Until it is let in a side may not make large blocks.
#[tokio::test]
async fn strangers_have_small_blocks() {
    let chunk = |size: usize| {
        let mut bytes = b"\xff\x06\x00\x00S2sTwO\x01".to_vec();
        bytes.extend_from_slice(&(size as u32 + 4).to_le_bytes()[..3]);
        bytes.extend(vec![0; size + 4]);
        bytes
    };
    let large = chunk(65_537);
    for (is_in, why) in [(true, "checksum"), (false, "at most 65536")] {
        let is_in = Arc::new(AtomicBool::new(is_in));
        let mut read = Vec::new();
        let error = Input::new(large.as_slice(), is_in).read_to_end(&mut read).await.unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[tokio::test]
async fn what_is_written_is_read() {
    let (here, there) = tokio::io::duplex(100);
    let compresses = Arc::new(AtomicBool::new(false));
    let switch = compresses.clone();
    let mut output = Output::new(here, move || switch.load(Ordering::Relaxed));
    let mut input = Input::new(there, admitted());
    let sizes = [1, 63, 64, 1000, 65_536, 200_000, 7];
    let writing = tokio::spawn(async move {
        for (round, size) in sizes.into_iter().cycle().take(sizes.len() * 2).enumerate() {
            compresses.store(round >= sizes.len(), Ordering::Relaxed);
            output.write_all(&text(size)).await.unwrap();
            output.flush().await.unwrap();
        }
        output.shutdown().await.unwrap();
    });
    for size in sizes.into_iter().cycle().take(sizes.len() * 2) {
        let mut read = vec![0; size];
        input.read_exact(&mut read).await.unwrap();
        assert!(read == text(size), "{size}");
    }
    assert_eq!(input.read(&mut [0; 10]).await.unwrap(), 0);
    writing.await.unwrap();
}

/// Streams of an S2 writer: one after the other, with padding between them.
#[tokio::test]
async fn several_streams_with_padding() {
    let mut bytes = Vec::new();
    for _ in 0..3 {
        let mut packed = Vec::new();
        let mut output = Output::new(&mut packed, || true);
        output.write_all(&text(500)).await.unwrap();
        output.flush().await.unwrap();
        drop(output);
        bytes.extend_from_slice(&packed);
        bytes.extend_from_slice(b"\xfe\x03\x00\x00abc");
        // Nothing at all, and its checksum.
        bytes.extend_from_slice(b"\x01\x04\x00\x00\xd8\xea\x82\xa2");
    }
    let mut read = Vec::new();
    Input::new(bytes.as_slice(), admitted()).read_to_end(&mut read).await.unwrap();
    assert!(read == text(500).repeat(3));
}

async fn error_of(bytes: impl AsyncRead + Unpin) -> String {
    let mut read = Vec::new();
    let outcome = Input::new(bytes, admitted()).read_to_end(&mut read).await;
    outcome.err().map(|error| error.to_string()).unwrap_or_default()
}

#[tokio::test]
async fn what_a_stranger_writes() {
    let start = b"\xff\x06\x00\x00S2sTwO";
    let with = |rest: &[u8]| [start.as_slice(), rest].concat();
    for (bytes, why) in [
        (b"PING\r\n".to_vec(), "at most"),
        (b"\x00\x05\x00\x00aaaa\x01".to_vec(), "not S2"),
        (with(b"\x00\xff\xff\xff"), "at most"),
        (with(b"\xfe\xff\xff\xff"), "at most"),
        (with(b"\x00\x02\x00\x00ab"), "cut off"),
        // A block that says that it has four gigabytes, and one of a byte more than may be.
        (with(b"\x00\x09\x00\x00aaaa\xff\xff\xff\xff\x0f"), "at most"),
        (with(b"\x00\x08\x00\x00aaaa\x81\x80\x40a"), "at most"),
        (with(b"\x01\x05\x00\x00aaaax"), "checksum"),
        (with(b"\x02\x01\x00\x00a\x01\x05\x00\x00aaaax"), "unknown"),
    ] {
        let error = error_of(bytes.as_slice()).await;
        assert!(error.contains(why), "{error:?}, not {why:?}");
    }
}

/// Chunks without data hold up nobody: others have their turn in between.
#[tokio::test]
async fn many_chunks_without_data() {
    let mut bytes = b"\xff\x06\x00\x00S2sTwO".to_vec();
    for _ in 0..10_000 {
        bytes.extend_from_slice(b"\xfe\x00\x00\x00");
    }
    assert_eq!(error_of(bytes.as_slice()).await, "");
}
