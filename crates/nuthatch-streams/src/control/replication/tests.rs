//! Pauses, and what a copy waits for, without any log.

use super::*;
use nuthatch_protocol::js::{ExternalStream, StreamInfo, StreamSourceConsumer};

fn replicator(mirrors: bool) -> Replicator {
    let source = StreamSource { name: "O".into(), ..StreamSource::default() };
    Replicator::new(Plan { target: StreamId(7), source, mirrors })
}

const HERE: Location = Location::Here { id: StreamId(1), created: Time(5) };

fn at(last_seq: u64) -> Happened {
    let mut info = Box::<StreamInfo>::default();
    info.state.last_seq = last_seq;
    Happened::Outcome(Ok(OpOutcome::Stream { info, subjects_total: 0 }))
}

/// Plays what happened, a second after each other; returns what is asked for last.
fn play(machine: &mut Replicator, happened: Vec<Happened>) -> Action {
    let mut action = machine.step(Happened::Began, Now::ZERO);
    for (at, one) in happened.into_iter().enumerate() {
        action = machine.step(one, Now::from_millis(at as u64));
    }
    action
}

fn reads_from(action: &Action) -> u64 {
    match action {
        Action::Run { side: Side::Origin, op: Op::ReadRange { request, .. } } => request.from,
        other => panic!("nothing is read: {other:?}"),
    }
}

#[test]
fn a_mirror_goes_on_behind_its_last_sequence() {
    let mut mirror = replicator(true);
    let action = play(&mut mirror, vec![Happened::Located(HERE), at(41)]);
    assert_eq!(reads_from(&action), 42);
    let range = Range { messages: Vec::new(), next: 50, last_seq: 60 };
    let action = mirror.step(Happened::Outcome(Ok(OpOutcome::Range(range))), Now::ZERO);
    let Action::Run { side: Side::Target, op: Op::Mirror { gap_to: 49, .. } } = action else {
        panic!("the gap is not stored: {action:?}")
    };
    assert_eq!(mirror.status().lag, 0, "it counts once it is stored");
    let action = mirror.step(Happened::Outcome(Ok(OpOutcome::Done)), Now::ZERO);
    assert_eq!((reads_from(&action), mirror.status().lag), (50, 11));
}

#[test]
fn a_source_of_a_backup_is_found_without_its_creation_time() {
    let mut source = replicator(false);
    let position = |seq| Happened::Outcome(Ok(OpOutcome::Sourced(seq)));
    let action = play(&mut source, vec![Happened::Located(HERE), position(0)]);
    let Action::Run { op: Op::Sourced { key, .. }, .. } = action else { panic!("{action:?}") };
    assert_eq!(key, b"O > > ");
    assert_eq!(reads_from(&source.step(position(8), Now::ZERO)), 9);
}

#[test]
fn what_was_refused_is_read_again() {
    let mut mirror = replicator(true);
    play(&mut mirror, vec![Happened::Located(HERE), at(0)]);
    let range = Range { messages: Vec::new(), next: 5, last_seq: 4 };
    mirror.step(Happened::Outcome(Ok(OpOutcome::Range(range))), Now::ZERO);
    let action =
        mirror.step(Happened::Outcome(Err(JsError::STREAM_STORE_FAILED)), Now::from_secs(1));
    assert_eq!(action, Action::Locate { begins: false });
    assert_eq!(mirror.status().error, Some(JsError::STREAM_STORE_FAILED));
    let action = mirror.step(Happened::Located(HERE), Now::from_secs(1));
    assert_eq!(action, Action::Rest { until: Now::from_millis(1_250) });
    assert_eq!(mirror.step(Happened::Rested, Now::from_secs(2)), Action::Locate { begins: true });
    mirror.step(Happened::Located(HERE), Now::from_secs(2));
    assert_eq!(reads_from(&mirror.step(at(0), Now::from_secs(2))), 1);
}

#[test]
fn a_missing_origin_is_waited_for_and_other_trouble_is_not() {
    let missing = || Happened::NotLocated(JsError::STREAM_NOT_FOUND);
    let mut mirror = replicator(true);
    assert_eq!(play(&mut mirror, vec![missing(), missing()]), Action::AwaitChange);
    let trouble = || Happened::NotLocated(JsError::CLUSTER_NOT_AVAIL);
    let mut mirror = replicator(true);
    let mut now = Now::ZERO;
    let mut pauses = Vec::new();
    mirror.step(Happened::Began, now);
    for _ in 0..8 {
        mirror.step(trouble(), now);
        let Action::Rest { until } = mirror.step(trouble(), now) else { panic!("a pause") };
        pauses.push((until - now).as_millis());
        now = until;
        mirror.step(Happened::Rested, now);
    }
    assert_eq!(pauses, [250, 500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
}

/// An attempt that lasted long makes the next pause short again, also where the origin was missing
/// meanwhile.
#[test]
fn a_copy_that_went_well_does_not_pause_long_after_its_origin_was_away() {
    let mut mirror = replicator(true);
    let refused = || Happened::Outcome(Err(JsError::STREAM_TOO_MANY_REQUESTS));
    let rest = |action: Action| match action {
        Action::Rest { until } => until,
        other => panic!("no pause: {other:?}"),
    };
    let mut now = Now::ZERO;
    mirror.step(Happened::Began, now);
    for _ in 0..8 {
        mirror.step(Happened::Located(HERE), now);
        mirror.step(refused(), now);
        now = rest(mirror.step(Happened::Located(HERE), now));
        mirror.step(Happened::Rested, now);
    }
    mirror.step(Happened::Located(HERE), now);
    mirror.step(at(1), now);
    now += Duration::from_secs(3600);
    mirror.step(refused(), now);
    let missing = Happened::NotLocated(JsError::STREAM_NOT_FOUND);
    assert_eq!(mirror.step(missing, now), Action::AwaitChange);
    mirror.step(Happened::Changed, now);
    mirror.step(Happened::Located(HERE), now);
    mirror.step(refused(), now);
    assert_eq!(rest(mirror.step(Happened::Located(HERE), now)), now + RETRY_MIN);
}

const EXTERNAL: &str = "from.a";

fn external(mirrors: bool) -> Replicator {
    let external = Some(ExternalStream { api: EXTERNAL.into(), deliver: "out".into() });
    let filter_subject = "o.a".to_owned();
    let source = StreamSource { name: "O".into(), external, filter_subject, ..<_>::default() };
    Replicator::new(Plan { target: StreamId(7), source, mirrors }).with_consumer("JS_x".into())
}

fn durable(mirrors: bool) -> Replicator {
    let consumer = StreamSourceConsumer { name: "D".into(), deliver_subject: "to.me".into() };
    let source = StreamSource { name: "O".into(), consumer: Some(consumer), ..<_>::default() };
    Replicator::new(Plan { target: StreamId(7), source, mirrors })
}

fn answered(headers: &str, body: &str) -> Happened {
    Happened::Answered { headers: headers.into(), body: body.into() }
}

fn asked(action: &Action) -> (&str, String) {
    match action {
        Action::Ask { subject, body, .. } => (subject, String::from_utf8_lossy(body).into_owned()),
        other => panic!("nothing is asked: {other:?}"),
    }
}

fn sourced(seq: u64) -> Happened {
    Happened::Outcome(Ok(OpOutcome::Sourced(seq)))
}

const UNHEARD: Happened = Happened::Unanswered(Unanswered::NobodyListens);
const IDENTITY: &str = "NATS/1.0\r\nNats-Stream-Identity: abcdefgh\r\n\r\n";

/// Only `CONSUMER.CREATE` may be asked for: the identity of the origin comes with a consumer.
#[test]
fn an_origin_is_copied_without_its_information() {
    let mut source = external(false);
    let afar = Happened::Located(Location::Afar(EXTERNAL.into()));
    let action = play(&mut source, vec![afar, UNHEARD]);
    let (subject, body) = asked(&action);
    assert_eq!(subject, "from.a.CONSUMER.CREATE.O");
    assert!(
        body.contains(r#""deliver_policy":"new""#) && body.contains("out.S.identity"),
        "{body}"
    );
    let action = source.step(answered(IDENTITY, r#"{"name":"x"}"#), Now::ZERO);
    let Action::Run { op: Op::Sourced { key, .. }, .. } = action else { panic!("{action:?}") };
    assert_eq!(key, b"O:from.a o.a > abcdefgh");
    let listen = source.step(sourced(4), Now::ZERO);
    assert_eq!(listen, Action::Listen { prefix: "out.S".into() });
    // Under its name and filter first, then as those before it, then as a server before 2.14 knows it.
    let action = source.step(Happened::Listening("out.S.1".into()), Now::ZERO);
    let (subject, body) = asked(&action);
    assert_eq!(subject, "from.a.CONSUMER.CREATE.O.JS_x.o.a");
    assert!(body.contains(r#""sourcing":true"#) && body.contains(r#""opt_start_seq":5"#), "{body}");
    let action = source.step(UNHEARD, Now::ZERO);
    assert_eq!(asked(&action).0, "from.a.CONSUMER.CREATE.O");
    let refused = r#"{"error":{"code":412,"err_code":10185,"description":"d"}}"#;
    let action = source.step(answered("", refused), Now::ZERO);
    let (subject, body) = asked(&action);
    assert!(subject.ends_with("CREATE.O") && !body.contains("sourcing"), "{subject} {body}");
    let action = source.step(answered("", r#"{"name":"x"}"#), Now::ZERO);
    assert!(matches!(action, Action::Receive { .. }), "{action:?}");
    // What is missing is named.
    source.step(Happened::Silent, Now::from_secs(5));
    let error = source.status().error.clone().expect("nothing came");
    assert!(error.description.contains("on out.S.*: deliveries must be exported"), "{error}");
}

#[test]
fn flow_control_replies_that_do_not_arrive_are_told() {
    let mut source = external(false);
    let afar = Happened::Located(Location::Afar(EXTERNAL.into()));
    play(&mut source, vec![afar, UNHEARD, answered(IDENTITY, r#"{"name":"x"}"#), sourced(4)]);
    source.step(Happened::Listening("out.S.1".into()), Now::ZERO);
    source.step(answered("", r#"{"name":"x"}"#), Now::ZERO);
    for beat in 0..3 {
        assert_eq!(source.status().error, None, "after {beat}");
        let headers = "NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 0\r\n\
                       Nats-Consumer-Stalled: $JS.FC.O.JS_x.1\r\n\r\n";
        let delivery = Delivery { headers: headers.into(), ..Delivery::default() };
        let action = source.step(Happened::Arrived(vec![delivery]), Now::ZERO);
        let Action::Send { subject, .. } = action else { panic!("{action:?}") };
        assert_eq!(subject, b"$JS.FC.O.JS_x.1");
        source.step(Happened::Sent, Now::ZERO);
    }
    let error = source.status().error.clone().expect("it is stalled");
    assert_eq!(error.err_code, JsError::SOURCE_CONSUMER_FLOW_CONTROL_STALLED.err_code);
}

#[test]
fn a_durable_consumer_is_reset_and_told_what_is_stored() {
    let mut mirror = durable(true);
    let action = play(&mut mirror, vec![Happened::Located(HERE)]);
    assert_eq!(asked(&action).0, "$JS.API.CONSUMER.RESET.O.D");
    let reset = r#"{"config":{"ack_policy":"flow_control"},"delivered":{"stream_seq":3}}"#;
    mirror.step(answered("", reset), Now::ZERO);
    let action = mirror.step(at(5), Now::ZERO);
    assert_eq!(action, Action::ListenOn { subject: "to.me".into() });
    let action = mirror.step(Happened::Listening("to.me".into()), Now::ZERO);
    assert!(matches!(action, Action::Receive { .. }), "nothing is made: {action:?}");
    // The first two are there already; the third is stored before that is said.
    let delivery = |seq: u64| Delivery {
        subject: b"o.a".to_vec(),
        reply: format!("$JS.ACK.O.D.1.{seq}.{}.7.0", seq - 3).into_bytes(),
        ..Delivery::default()
    };
    let flow = Delivery {
        reply: b"$JS.FC.O.D.1".to_vec(),
        headers: b"NATS/1.0 100 FlowControl Request\r\n\r\n".to_vec(),
        ..Delivery::default()
    };
    let arrived = vec![delivery(4), delivery(5), delivery(6), flow];
    let action = mirror.step(Happened::Arrived(arrived), Now::ZERO);
    let Action::Run { op: Op::Mirror { copies, .. }, .. } = action else { panic!("{action:?}") };
    assert_eq!(copies.iter().map(|copy| copy.seq).collect::<Vec<_>>(), [6]);
    let action = mirror.step(Happened::Outcome(Ok(OpOutcome::Done)), Now::ZERO);
    let Action::Send { headers, .. } = action else { panic!("{action:?}") };
    let told = "NATS/1.0\r\nNats-Last-Consumer: 3\r\nNats-Last-Stream: 6\r\n\r\n";
    assert_eq!(String::from_utf8_lossy(&headers), told);
}

#[test]
fn a_durable_consumer_must_acknowledge_by_flow_control() {
    for (mirrors, code) in [(true, 10214), (false, 10217)] {
        let mut copy = durable(mirrors);
        let other = answered("", r#"{"config":{"ack_policy":"explicit"}}"#);
        play(&mut copy, vec![Happened::Located(HERE), other]);
        assert_eq!(copy.status().error.as_ref().map(|error| error.err_code), Some(code));
    }
}
