use super::*;
use nuthatch_log::StreamId;

fn block(lines: &str) -> Vec<u8> {
    format!("NATS/1.0\r\n{lines}\r\n").into_bytes()
}

fn asked(lines: &str) -> Option<Asked> {
    Asked::read(&block(lines))
}

fn party(kind: PartyKind, account: &str) -> Party {
    Party { kind, id: 7, name: "peer".to_owned(), account: account.to_owned() }
}

fn begin(queue: &Arc<TraceQueue>, lines: &str, kind: PartyKind) -> Trace {
    let asked = asked(lines).expect("it asks");
    let dest = asked.dest.clone();
    let message =
        Traced { from: party(kind, "A"), account: AccountId::GLOBAL, subject: b"s", size: 3 };
    Trace::begin(queue, asked, &dest, message)
}

#[test]
fn what_headers_ask_for() {
    let dest = asked("Nats-Trace-Dest: t\r\nK:  v \r\nK: w\r\n").expect("it asks");
    assert_eq!((&dest.dest[..], dest.only), (&b"t"[..], false));
    assert_eq!(dest.headers["K"], ["v", "w"]);
    for yes in ["1", "true", "ON"] {
        assert!(asked(&format!("Nats-Trace-Only: {yes}\r\nNats-Trace-Dest: t\r\n")).unwrap().only);
    }
    assert!(!asked("Nats-Trace-Dest: t\r\nNats-Trace-Only: false\r\n").unwrap().only);
    for no in [
        "Nats-Trace-Only: true\r\n",
        "Nats-Trace-Dest:\r\n",
        "Nats-Trace-Dest: trace disabled\r\n",
        "nats-trace-dest: t\r\n",
        "X: Nats-Trace-Dest: t\r\n",
    ] {
        assert!(asked(no).is_none(), "{no}");
    }
    assert!(Asked::read(b"NATS/1.0 503\r\nNats-Trace-Dest: t\r\n\r\n").is_none(), "a status");
    assert!(Asked::read(b"NATS/1.0\r\nNats-Trace-Dest: t").is_none(), "no end of the line");
    let disabled = "traceparent: 00-a-b-01\r\nNats-Trace-Dest: trace disabled\r\n";
    assert!(asked(disabled).is_none(), "a server has switched it off");
}

#[test]
fn a_trace_context_asks_if_it_is_sampled() {
    let by_parent = |flags: &str| asked(&format!("TraceParent: 00-aa-bb-{flags}\r\n"));
    for sampled in ["01", "03", "7f"] {
        let asked = by_parent(sampled).expect("it asks");
        assert!(asked.dest.is_empty() && !asked.only, "{sampled}");
    }
    for not in ["00", "02", "1", "001", "xx", "ff"] {
        assert!(by_parent(not).is_none(), "{not}");
    }
    assert!(asked("traceparent: 00-aa-01\r\n").is_none(), "three parts");
    let only = asked("traceparent: 00-a-b-01\r\nNats-Trace-Only: true\r\n").expect("it asks");
    assert!(!only.only, "only who names a subject can ask for that");
}

#[test]
fn the_cheap_look_finds_whatever_asks() {
    assert!(may_ask(&block("Nats-Trace-Dest: t\r\n"), false));
    assert!(may_ask(&block("A: b\r\ntRaCePaReNt: x\r\n"), true));
    assert!(!may_ask(&block("A: b\r\ntraceparent: x\r\n"), false));
    assert!(!may_ask(&block("A: traceparent\r\n"), true));
}

#[test]
fn a_trace_is_finished_with_its_last_part() {
    let queue = Arc::new(TraceQueue::default());
    let mut finished = queue.take().expect("nobody has it");
    let mut trace = begin(&queue, "Nats-Trace-Dest: t\r\n", PartyKind::Client);
    trace.delivered(party(PartyKind::Client, "B"), (b"s.*", Some(b"q")), "");
    let question = StreamQuestion {
        route: StreamRoute { log: crate::log_id::LogId(0), stream: StreamId(1) },
        account: AccountId::GLOBAL,
        subject: b"s".to_vec(),
        reply: Vec::new(),
        headers: trace.block(&block("Nats-Expected-Last-Sequence: 4\r\n")),
        body_len: 0,
        only: false,
        answer: None,
    };
    let part = trace.stored("S".to_owned(), question);
    drop(trace);
    assert!(finished.try_recv().is_err(), "the stream has not answered");
    let refusal = br#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 9"},"stream":"S","seq":0}"#;
    part.answered(refusal);
    drop(part);
    let trace = finished.try_recv().expect("it is finished");
    let json = serde_json::to_value(&trace.steps).expect("it can be written");
    assert_eq!(json[0]["type"], "in");
    assert_eq!(json[1]["acc"], "B", "another account than it came in by");
    assert_eq!((&json[1]["sub"], &json[1]["queue"]), (&"s.*".into(), &"q".into()));
    let Step::Stream { question: Some(question), .. } = &trace.steps[2] else {
        panic!("no stream")
    };
    assert_eq!(question.outcome().error, "last sequence mismatch: 4 vs 9");
    assert!(!question.outcome().is_checked);
}

#[test]
fn of_a_huge_header_block_little_is_kept() {
    let many: String = (0..100_000).map(|n| format!("{n}:x\r\n")).collect();
    let asked = asked(&format!("{many}Nats-Trace-Only: 1\r\nNats-Trace-Dest: t\r\n")).unwrap();
    assert_eq!((&asked.dest[..], asked.only), (&b"t"[..], true), "whatever stands before");
    assert_eq!(asked.headers.len(), TRACE_HEADERS_MAX);
    assert_eq!(asked.omitted, 100_002 - TRACE_HEADERS_MAX as u64);
    assert!(asked.weight > TRACE_HEADERS_MAX * 128 && asked.weight < 64 << 10, "{}", asked.weight);
    let long = "x".repeat(TRACE_HEADER_BYTES_MAX);
    let asked = Asked::read(&block(&format!("L: {long}\r\nNats-Trace-Dest: t\r\n"))).unwrap();
    assert_eq!((asked.headers.len(), asked.omitted), (1, 1));
    assert!(asked.headers.contains_key("Nats-Trace-Dest"));
}

#[test]
fn a_message_that_goes_to_many_streams_has_its_headers_once() {
    let queue = Arc::new(TraceQueue::default());
    let mut finished = queue.take().expect("nobody has it");
    let trace = begin(&queue, "Nats-Trace-Dest: t\r\n", PartyKind::Client);
    let block = block(&format!("L: {}\r\n", "x".repeat(1 << 20)));
    let (one, other) = (trace.block(&block), trace.block(&block));
    assert!(Arc::ptr_eq(&one, &other));
    drop(trace);
    let weight = finished.try_recv().expect("it is finished").weight;
    assert!(weight > block.len() && weight < block.len() + 4096, "{weight}");
}

#[test]
fn what_is_forgotten_is_not_told() {
    let queue = Arc::new(TraceQueue::default());
    let mut finished = queue.take().expect("nobody has it");
    begin(&queue, "Nats-Trace-Dest: t\r\n", PartyKind::Client).forget();
    assert!(finished.try_recv().is_err());
}

#[test]
fn steps_beyond_the_bound_are_counted() {
    let queue = Arc::new(TraceQueue::default());
    let mut finished = queue.take().expect("nobody has it");
    let trace = begin(&queue, "Nats-Trace-Dest: t\r\n", PartyKind::Client);
    for _ in 0..TRACE_STEPS_MAX + 5 {
        trace.mapped(b"x");
    }
    drop(trace);
    let trace = finished.try_recv().expect("it is finished");
    assert_eq!((trace.steps.len(), trace.omitted), (TRACE_STEPS_MAX, 6));
}

#[test]
fn the_queue_drops_what_is_too_much() {
    let queue = Arc::new(TraceQueue::default());
    let mut finished = queue.take().expect("nobody has it");
    for _ in 0..TRACES_QUEUED_MAX + 3 {
        drop(begin(&queue, "Nats-Trace-Dest: t\r\n", PartyKind::Client));
    }
    assert_eq!(queue.take_lost(), 3);
    while let Ok(trace) = finished.try_recv() {
        queue.published(&trace);
    }
    let huge = vec![b'x'; TRACE_BYTES_QUEUED_MAX / 3];
    for _ in 0..4 {
        begin(&queue, "Nats-Trace-Dest: t\r\n", PartyKind::Client).mapped(&huge);
    }
    assert_eq!(queue.take_lost(), 2, "its bytes are bounded too");
}

#[test]
fn other_servers_are_numbered_and_told() {
    let queue = Arc::new(TraceQueue::default());
    let mut finished = queue.take().expect("nobody has it");
    let lines = "Nats-Trace-Dest: t\r\nNats-Trace-Hop: 2\r\nNats-Trace-Only: 1\r\n";
    let mut trace = begin(&queue, lines, PartyKind::Leaf);
    let headers = block(lines);
    let sent = trace.sent(party(PartyKind::Leaf, "A"), Support::Full, false, &headers);
    let sent = Asked::read(&sent.expect("it is sent")).expect("it asks");
    assert_eq!(sent.headers["Nats-Trace-Hop"], ["2.1"]);
    let old = trace.sent(party(PartyKind::Leaf, "A"), Support::None, false, &headers);
    assert!(old.is_none(), "that server would deliver it");
    let denied = trace.sent(party(PartyKind::Leaf, "A"), Support::Full, true, &headers);
    assert!(denied.is_none());
    drop(trace);
    let trace = finished.try_recv().expect("it is finished");
    assert_eq!(trace.hops, 3);
    let json = serde_json::to_value(&trace.steps).expect("it can be written");
    let errors: Vec<_> = (1..4).map(|at| json[at]["error"].as_str().unwrap_or_default()).collect();
    assert_eq!(errors, ["", NOT_UNDERSTOOD, NOT_SENT]);
    let client = begin(&queue, lines, PartyKind::Client);
    assert!(client.hop.is_empty(), "a client cannot say how far a message has come");
}
