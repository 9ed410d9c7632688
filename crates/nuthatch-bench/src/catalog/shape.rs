//! Which streams, subjects, consumers and messages there are, as arithmetic: what is built and what
//! is expected come from the same place.

use super::CatalogArgs;
use crate::harness::BenchError;

/// Messages that a stream gets in one go; then it is another's turn. Streams lie interleaved in the
/// log, as they would after months of use.
const BURST: u64 = 100;

/// The largest body: they only fill the bucket.
const MAX_BODY_BYTES: u64 = 1 << 20;

/// The numbers of a log. Stream `s` of `0..streams` has the subjects `s.<s>.<k>`, published to in
/// turn; consumer `c` belongs to stream `c % streams` and filters one of its subjects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) messages: u64,
    pub(crate) streams: u64,
    /// Subjects of each stream.
    pub(crate) subjects_each: u64,
    pub(crate) consumers: u64,
    pub(crate) body_bytes: usize,
}

impl Shape {
    pub(super) fn new(args: &CatalogArgs) -> Result<Self, BenchError> {
        let usage = |text: &str| Err(BenchError::Usage(text.to_owned()));
        if args.streams == 0 || args.streams > u64::from(u32::MAX) - 1 {
            return usage("--streams must be at least 1 and fit in 32 bits");
        }
        if args.msgs < args.subjects || args.subjects < args.streams {
            return usage(
                "there must be at least as many --subjects as --streams, and a message of each",
            );
        }
        if args.size > MAX_BODY_BYTES {
            return usage("--size is for small bodies: at most 1 MiB");
        }
        Ok(Self {
            messages: args.msgs,
            streams: args.streams,
            subjects_each: args.subjects / args.streams,
            consumers: args.consumers,
            body_bytes: args.size as usize,
        })
    }

    pub(crate) const fn subjects(&self) -> u64 {
        self.subjects_each * self.streams
    }

    /// Messages of a stream.
    pub(super) const fn messages_of(&self, stream: u64) -> u64 {
        self.messages / self.streams + (stream < self.messages % self.streams) as u64
    }

    /// Messages of a stream on its `k`-th subject.
    pub(super) const fn messages_on(&self, stream: u64, k: u64) -> u64 {
        let all = self.messages_of(stream);
        all / self.subjects_each + (k < all % self.subjects_each) as u64
    }

    /// The sequence of the last message of a stream on its `k`-th subject.
    pub(super) const fn last_on(&self, stream: u64, k: u64) -> u64 {
        (self.messages_on(stream, k) - 1) * self.subjects_each + k + 1
    }

    /// The stream of a consumer, and the subject that it filters.
    pub(super) const fn filter_of(&self, consumer: u64) -> (u64, u64) {
        (consumer % self.streams, (consumer / self.streams + consumer) % self.subjects_each)
    }

    /// Every message in its order: stretches `(stream, first, count)`, counted from 0 within each
    /// stream.
    pub(super) fn stretches(&self) -> impl Iterator<Item = (u64, u64, u64)> + use<> {
        let shape = *self;
        let rounds = shape.messages_of(0).div_ceil(BURST);
        (0..rounds).flat_map(move |round| {
            (0..shape.streams).filter_map(move |stream| {
                let first = round * BURST;
                let left = shape.messages_of(stream).saturating_sub(first);
                (left > 0).then(|| (stream, first, left.min(BURST)))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arithmetic_is_that_of_the_stretches() {
        let shape =
            Shape { messages: 1_234, streams: 3, subjects_each: 7, consumers: 5, body_bytes: 0 };
        let (mut counts, mut last) = ([[0; 7]; 3], [[0; 7]; 3]);
        for (stream, first, count) in shape.stretches() {
            for n in first..first + count {
                let (s, k) = (stream as usize, (n % 7) as usize);
                counts[s][k] += 1;
                last[s][k] = n + 1;
            }
        }
        for stream in 0..3 {
            for k in 0..7 {
                let (s, at) = (stream as usize, k as usize);
                assert_eq!(shape.messages_on(stream, k), counts[s][at], "{stream} {k}");
                assert_eq!(shape.last_on(stream, k), last[s][at], "{stream} {k}");
            }
        }
        assert_eq!(counts.iter().flatten().sum::<u64>(), 1_234);
    }
}
