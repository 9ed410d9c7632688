//! The end of a life, and what must be true after it.

use super::super::rig::{Rig, held};
use super::{
    ALL_EXPIRED_MS, CONSUMERS, INTEREST, QUEUE, STREAMS, Shown, World, id, number_at, subject_of,
};
use nuthatch_log::env::Clock;
use std::collections::{BTreeMap, BTreeSet};

impl World {
    pub fn end(&mut self, rig: &mut Rig) {
        self.settle(rig);
        let is_durable = rig.has_failed() || {
            (0..3).for_each(|_| rig.pass(300));
            self.settle(rig);
            false
        };
        let mut shown = Shown::default();
        for (number, &(stream, name, ..)) in CONSUMERS.iter().enumerate() {
            if let Some(info) = rig.consumer_info(id(stream), name)
                && self.readers[number].exists
            {
                let progress = (info.ack_floor.stream_seq, info.delivered.stream_seq);
                shown.progress.insert(number, progress);
            }
        }
        for stream in 0..STREAMS.len() {
            if let Some(info) = rig.info(id(stream)) {
                shown.held.insert(stream, held(&info));
            }
        }
        if !is_durable && !self.probe(rig) {
            shown.progress.clear();
        }
        self.take_in(rig);
        self.now_ns = rig.clock.now().0;
        self.sent.clear();
        self.waiting.clear();
        self.readers.iter_mut().for_each(|reader| reader.outstanding.clear());
        self.shown = shown;
    }

    pub fn check_stream(&mut self, rig: &mut Rig, number: usize) -> Result<(), String> {
        let (now_ns, name) = (self.now_ns, STREAMS[number]);
        let stream = &mut self.streams[number];
        let Some(info) = rig.info(id(number)) else {
            return if stream.exists { Err(format!("stream {name} is lost")) } else { Ok(()) };
        };
        stream.exists = true;
        let (held, last) = (held(&info), info.state.last_seq);
        if let Some((&seen, _)) = stream.seen.last_key_value()
            && seen > last
        {
            return Err(format!("{name} ends at {last}, and {seen} was seen"));
        }
        if let Some(back) = held.intersection(&stream.gone).next() {
            return Err(format!("message {back} of {name} has come back"));
        }
        let mut batches: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for &seq in &held {
            let body = rig.read(id(number), seq);
            if stream.seen.get(&seq).is_some_and(|known| *known != body) {
                return Err(format!("message {seq} of {name} has changed"));
            }
            let batch = batches.entry(number_at(&body, 0)).or_insert((number_at(&body, 1), 0));
            batch.1 += 1;
            stream.seen.insert(seq, body);
        }
        if let Some((token, (count, found))) = batches.iter().find(|(_, (count, n))| count != n) {
            return Err(format!("{found} of the {count} messages of batch {token} are there"));
        }
        let shown = self.shown.held.get(&number).cloned().unwrap_or_default();
        let excused = |seq: &u64| {
            let body = stream.seen.get(seq);
            stream.doubtful.contains(seq)
                || body.is_some_and(|body| stream.expires(number, body, now_ns, 1000))
        };
        let lost: Vec<u64> = shown.difference(&held).filter(|seq| !excused(seq)).copied().collect();
        let allowed = match number {
            QUEUE => stream.in_flight,
            INTEREST if self.sweeps[1] => u64::MAX,
            _ => 0,
        };
        stream.in_flight = 0;
        if lost.len() as u64 > allowed {
            return Err(format!("messages {lost:?} of {name} are lost"));
        }
        Ok(())
    }

    pub fn check_consumer(&mut self, rig: &mut Rig, number: usize) -> Result<(), String> {
        let (stream, name, ..) = CONSUMERS[number];
        let reader = &self.readers[number];
        let Some(info) = rig.consumer_info(id(stream), name) else {
            return if reader.exists { Err(format!("consumer {name} is lost")) } else { Ok(()) };
        };
        let found = (info.ack_floor.stream_seq, info.delivered.stream_seq);
        match self.shown.progress.get(&number) {
            Some(shown) if found.0 < shown.0 || found.1 < shown.1 => {
                Err(format!("{name} was shown at {shown:?} and is at {found:?}"))
            }
            _ => Ok(()),
        }
    }

    /// Every consumer takes and acknowledges what it gets, until there is nothing more.
    pub fn drain(&self, rig: &mut Rig) -> Result<(), String> {
        let held: Vec<BTreeSet<u64>> = (0..STREAMS.len())
            .map(|number| rig.info(id(number)).map(|info| held(&info)).unwrap_or_default())
            .collect();
        let mut got: [BTreeSet<u64>; 7] = Default::default();
        let mut idle = 0;
        while idle < 3 {
            for (stream, name, _, _) in CONSUMERS.iter().filter(|consumer| !consumer.3) {
                rig.pull(id(*stream), name, 900);
            }
            rig.settle();
            let delivered = rig.take().delivered;
            idle = if delivered.is_empty() { idle + 1 } else { 0 };
            for one in delivered {
                let number = CONSUMERS.iter().position(|known| known.1 == one.consumer);
                let number = number.expect("a consumer of ours");
                got[number].insert(one.seq);
                rig.ack(id(CONSUMERS[number].0), &one, "+ACK", false);
            }
            rig.pass(550);
        }
        for (number, got) in got.iter().enumerate() {
            if rig.consumer_info(id(CONSUMERS[number].0), CONSUMERS[number].1).is_some() {
                self.check_drained(number, &held[CONSUMERS[number].0], got)?;
            }
        }
        self.check_empty(rig)
    }

    fn check_drained(
        &self,
        number: usize,
        held: &BTreeSet<u64>,
        got: &BTreeSet<u64>,
    ) -> Result<(), String> {
        let (stream, name, wants, _) = CONSUMERS[number];
        let (known, reader) = (&self.streams[stream], &self.readers[number]);
        if let Some(seq) = got.intersection(&reader.confirmed).next() {
            return Err(format!("{name} gets {seq} after its confirmed acknowledgement"));
        }
        for seq in held.difference(got).filter(|seq| !reader.sent.contains(seq)) {
            let body = &known.seen[seq];
            let is_wanted = wants.is_none_or(|subject| subject_of(body) == subject);
            if is_wanted && !known.expires(stream, body, self.now_ns, 3000) {
                return Err(format!("{name} never gets {seq}, which it did not acknowledge"));
            }
        }
        Ok(())
    }

    /// What everybody acknowledged, and what is older than it may get, does not stay.
    fn check_empty(&self, rig: &mut Rig) -> Result<(), String> {
        for _ in 0..3 {
            rig.pass(ALL_EXPIRED_MS);
        }
        let all_there = self.readers[0].exists && self.readers[1].exists;
        for (number, name) in STREAMS.iter().enumerate() {
            let left = rig.info(id(number)).map(|info| info.state.messages).unwrap_or_default();
            if left > 0 && (number != QUEUE || all_there) {
                return Err(format!("{left} messages of {name} stay for ever"));
            }
        }
        Ok(())
    }
}
