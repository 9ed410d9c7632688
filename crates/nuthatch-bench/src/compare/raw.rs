//! Limits of the machine: the disk's synced writes and the loopback interface.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::NonNull;
use std::thread;
use std::time::{Duration, Instant};

use crate::compare::server::file_error;
use crate::harness::BenchError;
use crate::payload::Payload;
use crate::report::{Latencies, RawLimit};

/// Direct writes need memory, offsets and sizes in multiples of this.
const ALIGN_BYTES: usize = 4096;

/// Chunk in which the file is filled with zeros.
const FILL_BYTES: usize = 1024 * 1024;

/// Time spent on each measurement, and most bytes written for it.
const SPAN: Duration = Duration::from_millis(800);
const MAX_FILE_BYTES: usize = 512 * 1024 * 1024;

/// Chunk and volume of the loopback measurement.
const STREAM_CHUNK_BYTES: usize = 128 * 1024;
const STREAM_BYTES: usize = 1024 * 1024 * 1024;

/// Round trips and their size of the loopback measurement.
const ROUND_TRIPS: usize = 5000;
const ROUND_TRIP_BYTES: usize = 128;

/// Measures everything, using a file in `dir`.
///
/// # Errors
/// When the file or the sockets fail.
pub fn measure(dir: &Path) -> Result<Vec<RawLimit>, BenchError> {
    let mut limits = Vec::new();
    for (size, name) in DISK_SIZES {
        let path = dir.join("raw");
        let limit = disk(&path, size, name).map_err(file_error("measure", &path));
        // The file is only in the way from here on, whatever came of it.
        let _ = fs::remove_file(&path);
        limits.push(limit?);
    }
    let failed = |source| BenchError::File { what: "cannot measure the loopback".into(), source };
    limits.push(loopback_stream().map_err(failed)?);
    limits.push(loopback_round_trip().map_err(failed)?);
    Ok(limits)
}

/// Write sizes of the disk measurements.
const DISK_SIZES: [(usize, &str); 3] =
    [(4096, "4 KiB"), (1024 * 1024, "1 MiB"), (16 * 1024 * 1024, "16 MiB")];

/// Writes and syncs `size` bytes again and again into a zero-filled file.
fn disk(path: &Path, size: usize, name: &str) -> io::Result<RawLimit> {
    let length = if size == ALIGN_BYTES { 64 * FILL_BYTES } else { MAX_FILE_BYTES };
    zero_fill(path, length)?;
    let direct = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path);
    let (file, how) = match direct {
        Ok(file) => (file, "O_DIRECT"),
        Err(_) => (OpenOptions::new().write(true).open(path)?, "buffered"),
    };
    let mut buffer = AlignedBuffer::new(size);
    buffer.bytes().copy_from_slice(Payload::new(size, 7).get(0));
    let mut latencies = Latencies::default();
    let started = Instant::now();
    let mut written = 0;
    while started.elapsed() < SPAN && written + size <= length {
        let before = Instant::now();
        file.write_all_at(buffer.bytes(), written as u64)?;
        file.sync_data()?;
        latencies.record(before.elapsed());
        written += size;
    }
    let mb_per_s = Some(written as f64 / started.elapsed().as_secs_f64() / 1e6);
    let summary = latencies.summary();
    Ok(RawLimit {
        name: format!("disk: write {name} + fdatasync ({how}, zero-filled file)"),
        mb_per_s,
        p50_us: summary.as_ref().map(|latency| latency.p50),
        p99_us: summary.as_ref().map(|latency| latency.p99),
    })
}

fn zero_fill(path: &Path, length: usize) -> io::Result<()> {
    let mut file = File::create(path)?;
    let zeros = vec![0; FILL_BYTES];
    for _ in 0..length / FILL_BYTES {
        file.write_all(&zeros)?;
    }
    file.sync_all()
}

/// Bytes per second through one loopback connection.
fn loopback_stream() -> io::Result<RawLimit> {
    let (mut near, mut far) = socket_pair()?;
    let reader = thread::spawn(move || -> io::Result<()> {
        let mut buffer = vec![0; STREAM_CHUNK_BYTES];
        while far.read(&mut buffer)? > 0 {}
        Ok(())
    });
    let chunk = Payload::new(STREAM_CHUNK_BYTES, 7);
    let started = Instant::now();
    for number in 0..STREAM_BYTES / STREAM_CHUNK_BYTES {
        near.write_all(chunk.get(number as u64))?;
    }
    drop(near);
    reader.join().map_err(|_| io::Error::other("the reader panicked"))??;
    let mb_per_s = Some(STREAM_BYTES as f64 / started.elapsed().as_secs_f64() / 1e6);
    let name = "loopback: one TCP stream, 128 KiB writes".into();
    Ok(RawLimit { name, mb_per_s, p50_us: None, p99_us: None })
}

/// Time of a small message there and back through a loopback connection.
fn loopback_round_trip() -> io::Result<RawLimit> {
    let (mut near, mut far) = socket_pair()?;
    let echo = thread::spawn(move || -> io::Result<()> {
        let mut buffer = [0; ROUND_TRIP_BYTES];
        for _ in 0..ROUND_TRIPS {
            far.read_exact(&mut buffer)?;
            far.write_all(&buffer)?;
        }
        Ok(())
    });
    let mut latencies = Latencies::default();
    let mut buffer = [0; ROUND_TRIP_BYTES];
    for _ in 0..ROUND_TRIPS {
        let before = Instant::now();
        near.write_all(&buffer)?;
        near.read_exact(&mut buffer)?;
        latencies.record(before.elapsed());
    }
    echo.join().map_err(|_| io::Error::other("the echo panicked"))??;
    let summary = latencies.summary();
    Ok(RawLimit {
        name: "loopback: 128 B there and back".into(),
        mb_per_s: None,
        p50_us: summary.as_ref().map(|latency| latency.p50),
        p99_us: summary.as_ref().map(|latency| latency.p99),
    })
}

fn socket_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    Ok((near, far))
}

/// Memory fit for direct writes.
struct AlignedBuffer {
    memory: NonNull<u8>,
    layout: Layout,
}

impl AlignedBuffer {
    /// `size` bytes, which must not be 0.
    fn new(size: usize) -> Self {
        assert!(size > 0 && size.is_multiple_of(ALIGN_BYTES));
        let layout = Layout::from_size_align(size, ALIGN_BYTES).expect("sizes are small constants");
        // SAFETY: the layout's size is not 0.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory) else { std::alloc::handle_alloc_error(layout) };
        Self { memory, layout }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the memory is ours, initialised, of this size, and borrowed as `self` is.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.layout.size()) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`, and freed only here.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) }
    }
}
