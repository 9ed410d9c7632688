//! The results as Markdown.

use std::fmt::Write as _;
use std::time::Duration;

use nuthatch_object::RequestKind;

use super::load::{Found, Load};
use super::raw::RawRate;
use crate::compare::machine::Machine;
use crate::peers::Peer;
use crate::report::{LatencySummary, thousands};
use crate::table::Table;

type Outcome = Result<Found, String>;

/// The page that is being written.
pub(super) struct Page {
    head: String,
    throughput: Table,
    latency: Table,
    requests: Table,
    failures: Vec<String>,
}

impl Page {
    pub(super) fn new(machine: &Machine, span: Duration) -> Self {
        let mut head = format!(
            "{}, {} cores, {:.1} GB memory, kernel {}; load average at the start {}; one run, {} s \
             for each measurement, bodies that do not compress.\n",
            machine.cpu,
            machine.cores,
            machine.memory_bytes as f64 / 1e9,
            machine.kernel,
            load_average(),
            span.as_secs_f64(),
        );
        for (name, version) in &machine.versions {
            // Writing to a string cannot fail.
            let _ = writeln!(head, "- {name}: {version}");
        }
        Self {
            head,
            throughput: Table::new(&[
                "body",
                "system",
                "msgs/s",
                "MB/s",
                "of plain puts",
                "server CPU s/GB",
                "client CPU s/GB",
                "MinIO CPU s/GB",
                "batch p50 ms",
                "on their way",
            ]),
            latency: Table::new(&["system", "p50 ms", "p99 ms", "beyond one put, ms"]),
            requests: Table::new(&[
                "system",
                "streams",
                "msgs/s",
                "put",
                "get",
                "head",
                "list",
                "delete",
                "all",
                "bytes stored/byte",
            ]),
            failures: Vec::new(),
        }
    }

    fn failed(&mut self, what: &str, why: &str) {
        self.failures.push(format!("- {what}: {why}"));
    }

    pub(super) fn throughput(
        &mut self,
        load: &Load,
        found: &[(&'static Peer, Outcome)],
        raw: Option<Result<RawRate, String>>,
    ) {
        let body = size(load.bytes);
        let rate = raw.as_ref().and_then(|raw| raw.as_ref().ok()).map(|raw| raw.mb_per_s);
        for (number, (peer, outcome)) in found.iter().enumerate() {
            match outcome {
                Ok(found) => {
                    // The puts burnt what the first system burns, so only it is compared.
                    let part = rate.filter(|_| number == 0);
                    self.throughput.row(throughput_cells(&body, peer.name, load, found, part));
                }
                Err(why) => self.failed(&format!("{}, {body}", peer.name), why),
            }
        }
        match raw {
            Some(Ok(raw)) => self.throughput.row(vec![
                body,
                format!("plain puts, {}", raw.what),
                "–".into(),
                format!("{:.0}", raw.mb_per_s),
                "–".into(),
                "–".into(),
                format!("{:.2}", raw.cpu_s_per_gb),
                format!("{:.2}", raw.store_cpu_s_per_gb),
                "–".into(),
                "–".into(),
            ]),
            Some(Err(why)) => self.failed(&format!("plain puts, {body}"), &why),
            None => {}
        }
    }

    pub(super) fn latency(
        &mut self,
        found: &[(&'static Peer, Outcome)],
        put: Result<LatencySummary, String>,
    ) {
        let ms = |us: f64| format!("{:.2}", us / 1e3);
        let one = put.as_ref().ok().map(|put| put.p50);
        for (peer, outcome) in found {
            match outcome.as_ref().map(|found| &found.batch_us) {
                Ok(Some(single)) => {
                    let beyond = one.map_or("–".into(), |put| ms(single.p50 - put));
                    let cells = vec![peer.name.to_owned(), ms(single.p50), ms(single.p99), beyond];
                    self.latency.row(cells);
                }
                Ok(None) => self.failed(peer.name, "no single message within the time"),
                Err(why) => self.failed(peer.name, &why.clone()),
            }
        }
        match put {
            Ok(put) => {
                let name = "one put of 4 KiB".to_owned();
                self.latency.row(vec![name, ms(put.p50), ms(put.p99), "–".into()]);
            }
            Err(why) => self.failed("one put", &why),
        }
    }

    pub(super) fn requests(&mut self, streams: u64, peer: &Peer, outcome: Outcome) {
        match outcome {
            Ok(found) if found.messages == 0 => {
                let what = format!("{} with {} streams", peer.name, found.streams);
                self.failed(&what, "no message was acknowledged within the time");
            }
            Ok(found) => self.requests.row(request_cells(streams, peer.name, &found)),
            Err(why) => self.failed(&format!("{} with {streams} streams", peer.name), &why),
        }
    }

    pub(super) fn text(&self) -> String {
        let mut out = format!(
            "{}\n### Throughput\n\nPlain puts: the best of several sizes of objects, by a client that \
             burns for each byte as much CPU as the first system and its client.\n\n{}\n\
             ### One message at a time\n\nMessages of 1 KiB, one client, each awaited before the \
             next.\n\n{}\n\
             ### Requests per million messages\n\nCounted by the MinIO. Messages of 1 KiB, one \
             client, to all streams in turn, as fast as it goes.\n\n{}\n",
            self.head, self.throughput, self.latency, self.requests
        );
        if !self.failures.is_empty() {
            let _ = write!(out, "### What failed\n\n{}\n", self.failures.join("\n"));
        }
        out
    }
}

fn throughput_cells(
    body: &str,
    name: &str,
    load: &Load,
    found: &Found,
    plain: Option<f64>,
) -> Vec<String> {
    let per_gb = |cpu_s: f64| format!("{:.2}", found.per_gb(cpu_s));
    vec![
        body.to_owned(),
        name.to_owned(),
        thousands(found.per_s()),
        format!("{:.1}", found.mb_per_s()),
        plain.map_or("–".into(), |plain| format!("{:.0} %", found.mb_per_s() * 100.0 / plain)),
        per_gb(found.server_cpu_s),
        per_gb(found.client_cpu_s),
        per_gb(found.store_cpu_s),
        found.batch_us.as_ref().map_or("–".into(), |batch| format!("{:.1}", batch.p50 / 1e3)),
        thousands((load.senders * load.batch) as f64),
    ]
}

fn request_cells(asked: u64, name: &str, found: &Found) -> Vec<String> {
    let (by_kind, all) = found.requests.per_million(found.messages);
    let streams = match found.streams {
        opened if opened < asked => {
            format!("{} (of {} in the time)", thousands(opened as f64), thousands(asked as f64))
        }
        opened => thousands(opened as f64),
    };
    let mut cells = vec![name.to_owned(), streams, thousands(found.per_s())];
    cells.extend(RequestKind::ALL.map(|kind| thousands(by_kind[kind as usize])));
    cells.push(thousands(all));
    let ratio = found.requests.put_bytes as f64 / found.bytes.max(1) as f64;
    cells.push(format!("{ratio:.2}"));
    cells
}

fn size(bytes: usize) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}

fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::Requests;

    fn found(streams: u64, messages: u64) -> Found {
        Found {
            streams,
            messages,
            bytes: messages * 1024,
            seconds: 1.0,
            batch_us: None,
            server_cpu_s: 0.1,
            store_cpu_s: 0.4,
            client_cpu_s: 0.1,
            requests: Requests {
                by_kind: [30, 0, 20, 0, 0],
                requests: 50,
                put_bytes: messages * 1100,
                get_bytes: 0,
            },
        }
    }

    #[test]
    fn a_bound_that_was_met_is_said_and_failures_are_shown() {
        let machine = Machine::read(&[("a".into(), "1.0".into())]);
        let mut page = Page::new(&machine, Duration::from_secs(1));
        let [nuthatch, woodpecker] =
            ["nuthatch-minio", "woodpecker-minio"].map(|name| Peer::named(name).unwrap());
        page.requests(10_000, nuthatch, Ok(found(10_000, 100_000)));
        page.requests(10_000, woodpecker, Ok(found(321, 1_000)));
        page.requests(100, woodpecker, Ok(found(100, 0)));
        page.latency(&[(nuthatch, Err("gone".into()))], Err("no MinIO".into()));
        let raw = RawRate {
            what: "8 MiB".into(),
            mb_per_s: 204.8,
            cpu_s_per_gb: 1.0,
            store_cpu_s_per_gb: 2.0,
        };
        let load = Load {
            streams: 1,
            senders: 4,
            batch: 10,
            bytes: 1024,
            span: Duration::from_secs(1),
            setup_limit: Duration::ZERO,
        };
        page.throughput(&load, &[(nuthatch, Ok(found(1, 100_000)))], Some(Ok(raw)));
        let text = page.text();
        for part in ["321 (of 10,000 in the time)", "no message was acknowledged", "gone", "50 %"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
