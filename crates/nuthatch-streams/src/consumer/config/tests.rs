//! Refusals and defaults, one row each.

use super::*;
use crate::consumer::{check_create, check_update, check_workqueue};
use crate::subject_set::tests::steps_of;
use nuthatch_protocol::js::{ReplayPolicy, StreamConsumerLimits, Time};

type Change = fn(&mut ConsumerConfig);

fn stream() -> StreamConfig {
    StreamConfig { subjects: vec!["s.>".into()], num_replicas: 1, ..StreamConfig::default() }
}

fn request(change: impl FnOnce(&mut ConsumerConfig)) -> CreateConsumerRequest {
    let mut request = CreateConsumerRequest::default();
    request.config.ack_policy = AckPolicy::Explicit;
    change(&mut request.config);
    request
}

fn refused(change: Change, stream: &StreamConfig) -> (u16, String) {
    match validate_consumer(&request(change), stream, &ConsumerLimits::default()) {
        Ok(config) => (0, format!("{config:?}")),
        Err(error) => (error.err_code, error.description.into_owned()),
    }
}

/// A consumer whose flow control replies acknowledge.
fn acked_by_flow() -> ConsumerConfig {
    ConsumerConfig {
        ack_policy: AckPolicy::FlowControl,
        deliver_subject: "d".into(),
        ..ConsumerConfig::default()
    }
}

#[test]
fn acknowledgements_by_flow_control_bring_it_along_unless_pedantic() {
    let mut request = CreateConsumerRequest { config: acked_by_flow(), ..<_>::default() };
    let validated = |request: &CreateConsumerRequest| {
        validate_consumer(request, &stream(), &ConsumerLimits::default())
    };
    let config = validated(&request).expect("valid");
    assert!(config.flow_control && config.idle_heartbeat == 1_000_000_000 && config.ack_wait == 0);
    assert_eq!((config.max_deliver, config.max_ack_pending), (-1, 1_000));
    request.pedantic = true;
    assert_eq!(validated(&request).unwrap_err().err_code, 10219);
    request.config.flow_control = true;
    assert!(validated(&request).unwrap_err().description.contains("needs to be 1s"));
    request.config.idle_heartbeat = 1_000_000_000;
    assert_eq!(validated(&request), Ok(config));
    // A work queue takes it, too.
    let work = StreamConfig { retention: RetentionPolicy::Workqueue, ..stream() };
    let filter = Filter::new(&request.config);
    let config = validate_consumer(&request, &work, &ConsumerLimits::default()).expect("valid");
    assert_eq!(check_workqueue(&config, &filter, [].into_iter()), Ok(()));
}

#[test]
fn faults_and_their_codes() {
    let cases: [(u16, Change); 37] = [
        (10052, |c| c.name = "a.b".into()),
        (10052, |c| c.durable_name = "a b".into()),
        (10102, |c| c.durable_name = "a".repeat(256)),
        (10126, |c| c.num_replicas = 3),
        (10133, |c| c.num_replicas = -1),
        (10184, |c| c.backoff = vec![-1]),
        (10183, |c| c.ack_wait = -1),
        (10116, |c| (c.backoff, c.max_deliver) = (vec![1, 2, 3], 2)),
        (10107, |c| c.description = "x".repeat(4_097)),
        (10079, |c| c.deliver_subject = "d.*".into()),
        (10112, |c| c.deliver_subject = "d..x".into()),
        (10081, |c| c.deliver_subject = "s.x".into()),
        (10080, |c| (c.deliver_subject, c.max_waiting) = ("d".into(), 5)),
        (10082, |c| {
            c.deliver_subject = "d".into();
            (c.max_ack_pending, c.ack_policy) = (5, AckPolicy::None);
        }),
        (10083, |c| (c.deliver_subject, c.idle_heartbeat) = ("d".into(), 99_999_999)),
        (10086, |c| c.rate_limit_bps = 1),
        (10088, |c| c.idle_heartbeat = 1_000_000_000),
        (10089, |c| c.flow_control = true),
        (10115, |c| c.max_expires = 999_999),
        (10218, |c| c.ack_policy = AckPolicy::FlowControl),
        (10220, |c| (*c, c.max_ack_pending) = (acked_by_flow(), -1)),
        (10221, |c| (*c, c.ack_wait) = (acked_by_flow(), 1)),
        (10221, |c| (*c, c.backoff) = (acked_by_flow(), vec![1])),
        (10222, |c| (*c, c.max_deliver) = (acked_by_flow(), 1)),
        (10090, |c| c.direct = true),
        (10136, |c| (c.filter_subject, c.filter_subjects) = ("a".into(), vec!["b".into()])),
        (10139, |c| c.filter_subjects = vec![String::new()]),
        (10138, |c| c.filter_subjects = vec!["s.>".into(), "s.a".into()]),
        (10052, |c| c.filter_subject = "a..b".into()),
        (10095, |c| c.sample_freq = "often".into()),
        (10108, |c| (c.deliver_subject, c.flow_control) = ("d".into(), true)),
        (10132, |c| (c.durable_name, c.name) = ("a".into(), "b".into())),
        (10135, |c| drop(c.metadata.insert("k".into(), "v".repeat(128 << 10)))),
        (10159, |c| c.priority_policy = PriorityPolicy::Overflow),
        (10196, |c| c.priority_groups = vec!["g".into()]),
        (10162, |c| {
            (c.priority_policy, c.priority_groups) = (PriorityPolicy::Overflow, vec!["a b".into()]);
        }),
        (10178, |c| {
            (c.priority_policy, c.priority_groups) = (PriorityPolicy::Overflow, vec!["g".into()]);
            c.deliver_subject = "d".into();
        }),
    ];
    for (at, (code, change)) in cases.into_iter().enumerate() {
        let got = refused(change, &stream());
        assert_eq!(got.0, code, "case {at}: {}", got.1);
        assert!(!got.1.contains('{'), "case {at}: {}", got.1);
    }
}

#[test]
fn starts_must_fit_the_policy() {
    type Case = (Change, &'static str);
    let cases: [Case; 8] = [
        (|c| c.opt_start_seq = 1, "all, but optional start sequence is also set"),
        (|c| c.opt_start_time = Some(Time(1)), "all, but optional start time is also set"),
        (
            |c| (c.deliver_policy, c.opt_start_seq) = (DeliverPolicy::New, 1),
            "new, but optional start sequence is also set",
        ),
        (
            |c| (c.deliver_policy, c.opt_start_seq) = (DeliverPolicy::Last, 1),
            "last, but optional start sequence is also set",
        ),
        (
            |c| c.deliver_policy = DeliverPolicy::LastPerSubject,
            "last per subject, but optional filter subject is not set",
        ),
        (
            |c| c.deliver_policy = DeliverPolicy::ByStartSequence,
            "by start sequence, but optional start sequence is not set",
        ),
        (
            |c| c.deliver_policy = DeliverPolicy::ByStartTime,
            "by start time, but optional start time is not set",
        ),
        (
            |c| {
                c.deliver_policy = DeliverPolicy::ByStartTime;
                (c.opt_start_seq, c.opt_start_time) = (1, Some(Time(1)));
            },
            "by start time, but optional start start sequence is also set",
        ),
    ];
    for (change, text) in cases {
        let (code, description) = refused(change, &stream());
        assert_eq!(
            (code, description),
            (10094, format!("consumer delivery policy is deliver {text}"))
        );
    }
}

#[test]
fn defaults_are_filled_in() {
    let limits = ConsumerLimits { max_ack_pending: 500, max_request_batch: 64, max_consumers: 0 };
    let pull =
        validate_consumer(&request(|c| c.name = "E".into()), &stream(), &limits).expect("valid");
    assert_eq!((pull.max_deliver, pull.ack_wait), (-1, 30_000_000_000));
    assert_eq!((pull.max_waiting, pull.max_ack_pending, pull.max_batch), (512, 500, 64));
    assert_eq!(pull.inactive_threshold, 5_000_000_000);
    let push = request(|c| {
        (c.durable_name, c.deliver_subject) = ("D".into(), "d".into());
        c.backoff = vec![7, 9];
    });
    let push = validate_consumer(&push, &stream(), &ConsumerLimits::default()).expect("valid");
    assert_eq!((push.name.as_str(), push.ack_wait, push.max_waiting), ("D", 7, 0));
    assert_eq!((push.max_ack_pending, push.inactive_threshold), (1_000, 0));
    let none = request(|c| c.ack_policy = AckPolicy::None);
    let none = validate_consumer(&none, &stream(), &ConsumerLimits::default()).expect("valid");
    assert_eq!((none.ack_wait, none.max_ack_pending), (0, 0));
}

#[test]
fn limits_of_stream_and_server() {
    let limited = StreamConfig {
        consumer_limits: StreamConsumerLimits {
            inactive_threshold: 60_000_000_000,
            max_ack_pending: 10,
        },
        ..stream()
    };
    let (code, text) = refused(|c| c.max_ack_pending = 11, &limited);
    assert_eq!(
        (code, text.as_str()),
        (10121, "consumer max ack pending exceeds system limit of 10")
    );
    let (code, text) = refused(|c| c.inactive_threshold = 61_000_000_000, &limited);
    let expected = "consumer inactive threshold exceeds system limit of 1m0s";
    assert_eq!((code, text.as_str()), (10153, expected));
    let limits = ConsumerLimits { max_ack_pending: 0, max_request_batch: 5, max_consumers: 0 };
    let error = validate_consumer(&request(|c| c.max_batch = 6), &stream(), &limits);
    assert_eq!(error.map_err(|error| error.err_code), Err(10125));
}

#[test]
fn pedantic_requests_are_not_corrected() {
    let mut request = request(|c| c.max_deliver = -7);
    request.pedantic = true;
    let error = validate_consumer(&request, &stream(), &ConsumerLimits::default());
    assert_eq!(
        error.map_err(|error| error.to_string()),
        Err("pedantic mode: max_deliver must be set to -1 (10157)".to_owned())
    );
}

#[test]
fn work_queues() {
    let queue = StreamConfig { retention: RetentionPolicy::Workqueue, ..stream() };
    assert_eq!(refused(|c| c.ack_policy = AckPolicy::None, &queue).0, 10084);
    let explicit =
        || ConsumerConfig { ack_policy: AckPolicy::Explicit, ..ConsumerConfig::default() };
    let alone = |config: ConsumerConfig| {
        check_workqueue(&config, &Filter::new(&config), std::iter::empty())
            .map_err(|error| error.err_code)
    };
    assert_eq!(alone(ConsumerConfig { ack_policy: AckPolicy::All, ..explicit() }), Err(10098));
    assert_eq!(
        alone(ConsumerConfig { deliver_policy: DeliverPolicy::New, ..explicit() }),
        Err(10101)
    );
    let with = |filter: &str| ConsumerConfig { filter_subject: filter.into(), ..explicit() };
    let check = |new: &str, other: &str| {
        let new = with(new);
        check_workqueue(&new, &Filter::new(&new), [with(other)].iter())
            .map_err(|error| error.err_code)
    };
    assert_eq!(check("", "a"), Err(10099));
    assert_eq!(check("a", ""), Err(10100));
    assert_eq!(check("a.*", "*.b"), Err(10100));
    assert_eq!(check("a.*", "b.*"), Ok(()));
    let all = with("");
    assert!(check_workqueue(&all, &Filter::new(&all), std::iter::empty()).is_ok());
}

#[test]
fn what_may_not_change() {
    let base = || ConsumerConfig { max_deliver: -1, max_waiting: 512, ..ConsumerConfig::default() };
    let cases: [(&str, Change); 9] = [
        ("deliver policy can not be updated", |c| c.deliver_policy = DeliverPolicy::New),
        ("storage type can not be updated", |c| c.mem_storage = true),
        ("start sequence can not be updated", |c| c.opt_start_seq = 2),
        ("start time can not be updated", |c| c.opt_start_time = Some(Time(2))),
        ("ack policy can not be updated", |c| c.ack_policy = AckPolicy::All),
        ("replay policy can not be updated", |c| c.replay_policy = ReplayPolicy::Original),
        ("heart beats can not be updated", |c| c.idle_heartbeat = 1),
        ("can not update pull consumer to push based", |c| c.deliver_subject = "d".into()),
        ("max waiting can not be updated", |c| c.max_waiting = 1),
    ];
    for (text, change) in cases {
        let mut new = base();
        change(&mut new);
        let error =
            check_update(&base(), &new).map_err(|e| (e.err_code, e.description.into_owned()));
        assert_eq!(error, Err((10012, text.to_owned())));
    }
    let allowed = ConsumerConfig { description: "new".into(), ack_wait: 5, ..base() };
    assert_eq!(check_update(&base(), &allowed), Ok(()));
    assert_eq!(check_create(&base(), &allowed).map_err(|e| e.err_code), Err(10148));
    let mut stamped = base();
    stamped.metadata.insert("_nats.ver".into(), "2.14".into());
    assert_eq!(check_create(&base(), &stamped), Ok(()));
}

#[test]
fn the_number_of_filters_is_limited_and_each_takes_few_steps() {
    let filtered = |name: &str, count: usize| {
        let filters = (0..count).map(|n| format!("s.{name}.*.{n}")).collect();
        request(|c| (c.name, c.filter_subjects) = (name.into(), filters))
    };
    let limits = ConsumerLimits::default();
    let error = validate_consumer(&filtered("a", 60_000), &stream(), &limits).expect_err("refused");
    assert!(error.description.contains("at most 8192 filters"), "{}", error.description);
    let mut others = Vec::new();
    for n in 0..8 {
        let name = format!("c{n}");
        let request = filtered(&name, FILTERS_MAX);
        let (new, steps) = steps_of(|| validate_consumer(&request, &stream(), &limits));
        let new = new.expect("as many as there may be");
        assert!(steps > FILTERS_MAX && steps < 100 * FILTERS_MAX, "{steps} steps to check");
        let filter = Filter::new(&new);
        let (beside, steps) = steps_of(|| check_workqueue(&new, &filter, others.iter()));
        beside.expect("side by side");
        assert!(steps <= 4 * n * FILTERS_MAX, "{steps} steps beside {n} others");
        others.push(new);
    }
    let one = request(|c| c.filter_subject = "s.c7.x.8191".into()).config;
    let error = check_workqueue(&one, &Filter::new(&one), others.iter()).expect_err("too many");
    assert!(error.description.contains("at most 65536 filters"), "{}", error.description);
    let error =
        check_workqueue(&one, &Filter::new(&one), others[1..].iter()).expect_err("not alone");
    assert_eq!(error.err_code, 10100);
}
