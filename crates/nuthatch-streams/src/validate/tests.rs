//! Rules and defaults, by what is given and what is said.

use super::*;
use crate::subject_set::tests::steps_of;
use nuthatch_protocol::js::{RePublish, StreamSource, SubjectTransformConfig};

const MS: i64 = 1_000_000;

fn named() -> StreamConfig {
    StreamConfig { name: "S".into(), ..StreamConfig::default() }
}

/// What creating a stream so adapted is answered with: the description, or "" if it is fine.
fn create(adapt: impl FnOnce(&mut StreamConfig)) -> String {
    let mut config = named();
    adapt(&mut config);
    match stream_config(config, &Limits::default()) {
        Ok(_) => String::new(),
        Err(error) => error.description.into_owned(),
    }
}

#[test]
fn defaults_are_filled_in() {
    let config = stream_config(named(), &Limits::default()).expect("valid");
    assert_eq!(config.subjects, ["S"]);
    assert_eq!((config.max_msgs, config.max_bytes, config.max_msg_size), (-1, -1, -1));
    assert_eq!((config.max_consumers, config.max_msgs_per_subject), (-1, -1));
    assert_eq!(config.num_replicas, 1);
    assert_eq!(config.duplicate_window, 120 * SECOND_NS);
    let short = StreamConfig { max_age: SECOND_NS, ..named() };
    let short = stream_config(short, &Limits::default()).expect("valid");
    assert_eq!(short.duplicate_window, SECOND_NS, "no longer than the age limit");
}

#[test]
fn names_and_texts_are_limited() {
    let name = r"stream name is required and can not contain '.', '*', '>', '\', '/'";
    for bad in ["", "a.b", "a b", "a*", "a>", "a/b", r"a\b", "a\tb"] {
        assert_eq!(create(|config| config.name = bad.into()), name, "{bad:?}");
    }
    let long = create(|config| config.name = "x".repeat(256));
    assert_eq!(long, "stream name is too long, maximum allowed is 255");
    let long = create(|config| config.description = "x".repeat(4097));
    assert_eq!(long, "stream description is too long, maximum allowed is 4096");
}

#[test]
fn times_and_switches_are_checked() {
    assert_eq!(create(|config| config.max_age = -1), "max age can not be negative");
    assert_eq!(create(|config| config.max_age = 99 * MS), "max age needs to be >= 100ms");
    let window = create(|config| config.duplicate_window = 99 * MS);
    assert_eq!(window, "duplicates window needs to be >= 100ms");
    let window = create(|config| {
        config.max_age = SECOND_NS;
        config.duplicate_window = 2 * SECOND_NS;
    });
    assert_eq!(window, "duplicates window can not be larger then max age");
    let rollup = create(|config| {
        config.deny_purge = true;
        config.allow_rollup_hdrs = true;
    });
    assert_eq!(rollup, "roll-ups require the purge permission");
    let per = create(|config| config.discard_new_per_subject = true);
    assert_eq!(per, "discard new per subject requires discard new policy to be set");
    let sealed = create(|config| config.sealed = true);
    assert_eq!(sealed, "stream configuration for create can not be sealed");
    let replicas = create(|config| config.num_replicas = 3);
    assert_eq!(replicas, "replicas > 1 not supported in non-clustered mode");
    assert_eq!(create(|config| config.num_replicas = 9), "maximum replicas is 5");
    let memory = create(|config| {
        config.persist_mode = PersistMode::Async;
        config.storage = StorageType::Memory;
    });
    assert_eq!(memory, "async persist mode is only supported on file storage");
}

fn subjects(list: &[&str]) -> String {
    create(|config| config.subjects = list.iter().map(|&s| s.to_owned()).collect())
}

#[test]
fn subjects_are_checked() {
    assert_eq!(subjects(&["a.*", "b.>", "$JS.EVENT.>", "$KV.b.>"]), "");
    for bad in ["a..b", ".a", "a.", "a b", "a.>.b"] {
        assert_eq!(subjects(&[bad]), "invalid subject", "{bad:?}");
    }
    assert_eq!(subjects(&["a.*", "a.b"]), r#"subject "a.*" overlaps with "a.b""#);
    assert_eq!(subjects(&[">"]), "capturing all subjects requires no-ack to be true");
    let api = "subjects that overlap with jetstream api require no-ack to be true";
    assert_eq!(subjects(&["$JS.API.>"]), api);
    assert_eq!(subjects(&["*.API.x"]), api);
    let system = "subjects that overlap with system api require no-ack to be true";
    assert_eq!(subjects(&["$SYS.REQ.>"]), system);
    assert_eq!(subjects(&["$SYS.ACCOUNT.>"]), "");
}

#[test]
fn counters_and_schedules_go_with_some_settings_only() {
    assert_eq!(create(|c| (c.allow_atomic, c.allow_batched) = (true, true)), "");
    let counter = |adapt: fn(&mut StreamConfig)| {
        create(|c| {
            c.allow_msg_counter = true;
            adapt(c);
        })
    };
    assert_eq!(counter(|c| c.allow_atomic = true), "");
    let refused = |fault: fn(&mut StreamConfig), text: &str| {
        assert_eq!(counter(fault), format!("counter stream {text}"));
    };
    refused(|c| c.discard = DiscardPolicy::New, "cannot use discard new");
    refused(|c| c.allow_msg_ttl = true, "cannot use message TTLs");
    refused(|c| c.allow_msg_schedules = true, "cannot use message schedules");
    refused(|c| c.retention = RetentionPolicy::Interest, "can only use limits retention");
    let schedules = StreamConfig { allow_msg_schedules: true, deny_purge: true, ..named() };
    let accepted = stream_config(schedules.clone(), &Limits::default()).expect("accepted");
    assert_eq!((accepted.allow_rollup_hdrs, accepted.deny_purge), (true, false));
    let pedantic = Limits { pedantic: true, ..Limits::default() };
    let error = stream_config(schedules.clone(), &pedantic).expect_err("pedantic");
    assert_eq!(error.description, "message scheduling cannot be set if roll-ups are disabled");
    let new = StreamConfig { discard: DiscardPolicy::New, ..schedules.clone() };
    let error = stream_config(new, &Limits::default()).expect_err("discard new");
    assert_eq!(error.description, "message scheduling cannot use discard new");
    let sources = vec![StreamSource { name: "T".into(), ..StreamSource::default() }];
    let copies = StreamConfig { sources, ..schedules };
    assert_eq!(
        stream_config(copies, &Limits::default()).map_err(|e| e.err_code).err(),
        Some(10187)
    );
    let plain = stream_config(named(), &Limits::default()).expect("plain");
    let error = stream_update(&accepted, plain.clone(), &Limits::default()).expect_err("fixed");
    assert_eq!(error.description, "message schedules can not be disabled");
    assert!(stream_update(&plain, accepted, &Limits::default()).is_ok(), "they may be enabled");
    let counts = StreamConfig { allow_msg_counter: true, ..named() };
    let error = stream_update(&plain, counts, &Limits::default()).expect_err("fixed");
    let text = "stream configuration update can not change message counter setting";
    assert_eq!(error.description, text);
}

#[test]
fn mirrors_and_sources_are_checked() {
    let source = || StreamSource { name: "T".into(), ..StreamSource::default() };
    let mirror = |adapt: fn(&mut StreamConfig)| {
        let config = StreamConfig { mirror: Some(source()), ..named() };
        let mut config = StreamConfig { subjects: Vec::new(), ..config };
        adapt(&mut config);
        stream_config(config, &Limits::default()).map_or_else(
            |e| e.err_code,
            |c| {
                assert!(c.subjects.is_empty());
                0
            },
        )
    };
    assert_eq!(mirror(|_| {}), 0);
    assert_eq!(mirror(|c| c.subjects = vec!["a".into()]), 10034);
    assert_eq!(mirror(|c| c.first_seq = 5), 10143);
    assert_eq!(mirror(|c| c.allow_atomic = true), 10198);
    assert_eq!(mirror(|c| c.sources = vec![StreamSource::default()]), 10031);
    assert_eq!(mirror(|c| c.mirror = Some(StreamSource::default())), 10142);
    let sources = |list: Vec<StreamSource>| create(|c| c.sources = list);
    assert_eq!(sources(vec![source()]), "");
    assert_eq!(sources(vec![source(), source()]), "duplicate source configuration detected");
    let transform = |src: &str| SubjectTransformConfig { src: src.into(), dest: "b.>".into() };
    let overlapping =
        StreamSource { subject_transforms: vec![transform("a.>"), transform("a.b.>")], ..source() };
    assert_eq!(sources(vec![overlapping]), "source filters can not overlap");
}

#[test]
fn transforms_and_republish_are_checked() {
    let transform = |src: &str, dest: &str| {
        let transform = SubjectTransformConfig { src: src.into(), dest: dest.into() };
        create(|config| config.subject_transform = Some(transform))
    };
    assert_eq!(transform("a.*", "b.{{wildcard(1)}}"), "");
    assert_eq!(transform("", "b.>"), "");
    assert!(transform("a..b", "b").starts_with("stream transform source"));
    assert!(transform("a", "b.{{wildcard(1)}}").starts_with("stream transform"));
    let republish = |src: &str, dest: &str| {
        let (src, dest) = (src.into(), dest.into());
        create(|c| c.republish = Some(RePublish { src, dest, headers_only: false }))
    };
    assert_eq!(republish("", "again.>"), "");
    assert!(republish(">", ">").ends_with("forms a cycle"));
    assert!(republish("a.*", "again.*.*").contains("not valid"));
}

#[test]
fn delete_markers_bring_what_they_need() {
    let markers = |adapt: fn(&mut StreamConfig)| {
        create(|config| {
            config.subject_delete_marker_ttl = 1_000_000_000;
            adapt(config);
        })
    };
    assert_eq!(markers(|_| {}), "");
    assert!(markers(|c| c.subject_delete_marker_ttl = 5).ends_with("at least 1 second"));
    assert!(markers(|c| c.subject_delete_marker_ttl = -1).ends_with("must not be negative"));
    let config = StreamConfig { subject_delete_marker_ttl: 1_000_000_000, ..named() };
    let config = stream_config(config, &Limits::default()).expect("valid");
    assert!(config.allow_msg_ttl && config.allow_rollup_hdrs && !config.deny_purge);
}

/// What changing a default stream so is answered with.
fn update(old: impl FnOnce(&mut StreamConfig), new: impl FnOnce(&mut StreamConfig)) -> String {
    let mut before = stream_config(named(), &Limits::default()).expect("valid");
    old(&mut before);
    let mut after = before.clone();
    new(&mut after);
    match stream_update(&before, after, &Limits::default()) {
        Ok(_) => String::new(),
        Err(error) => error.description.into_owned(),
    }
}

#[test]
fn some_things_never_change() {
    let prefix = "stream configuration update can not ";
    let refused = |text: String| text.strip_prefix(prefix).unwrap_or(&text).to_owned();
    let text = update(|_| {}, |config| config.name = "T".into());
    assert_eq!(text, "stream configuration name must match original");
    let text = update(|_| {}, |config| config.storage = StorageType::Memory);
    assert_eq!(refused(text), "change storage type");
    let text = update(|_| {}, |config| config.retention = RetentionPolicy::Workqueue);
    assert_eq!(refused(text), "change retention policy to/from workqueue");
    let text = update(|config| config.sealed = true, |config| config.sealed = false);
    assert_eq!(refused(text), "unseal a sealed stream");
    let text = update(|config| config.deny_delete = true, |config| config.deny_delete = false);
    assert_eq!(refused(text), "cancel deny message deletes");
    let text = update(|config| config.deny_purge = true, |config| config.deny_purge = false);
    assert_eq!(refused(text), "cancel deny purge");
    let text = update(|_| {}, |config| config.persist_mode = PersistMode::Async);
    assert_eq!(refused(text), "change persist mode");
    assert_eq!(update(|_| {}, |config| config.retention = RetentionPolicy::Interest), "");
}

#[test]
fn sealing_closes_everything_else() {
    let old = stream_config(named(), &Limits::default()).expect("valid");
    let new = StreamConfig { sealed: true, allow_rollup_hdrs: true, ..old.clone() };
    let sealed = stream_update(&old, new, &Limits::default()).expect("valid");
    assert!(sealed.deny_delete && sealed.deny_purge && !sealed.allow_rollup_hdrs);
    assert_eq!((sealed.discard, sealed.max_age), (DiscardPolicy::New, 0));
}

#[test]
fn account_limits_on_bytes() {
    let limits = Limits { max_bytes_required: true, max_stream_bytes: 100, ..Limits::default() };
    let code = |max_bytes| {
        let config = StreamConfig { max_bytes, ..named() };
        stream_config(config, &limits).map_or_else(|error| error.err_code, |_| 0)
    };
    assert_eq!([code(0), code(101), code(100)], [10113, 10122, 0]);
}

#[test]
fn pedantic_requests_are_not_adjusted() {
    let limits = Limits { pedantic: true, ..Limits::default() };
    let refused = |config: StreamConfig| {
        stream_config(config, &limits).expect_err("refused").description.into_owned()
    };
    let text = refused(StreamConfig { max_msg_size: -2, ..named() });
    assert_eq!(text, "pedantic mode: max_msg_size must be set to -1");
    let text = refused(StreamConfig { max_age: SECOND_NS, ..named() });
    assert_eq!(text, "pedantic mode: duplicate window cannot be bigger than max age");
    assert!(stream_config(named(), &limits).is_ok());
}

#[test]
fn the_number_of_subjects_is_limited_and_each_takes_few_steps() {
    let many = |count: usize| {
        create(|config| config.subjects = (0..count).map(|n| format!("orders.{n}.*")).collect())
    };
    let (text, steps) = steps_of(|| many(SUBJECTS_MAX));
    assert_eq!(text, "");
    assert!(steps > SUBJECTS_MAX && steps < 100 * SUBJECTS_MAX, "{steps} steps");
    assert_eq!(
        many(SUBJECTS_MAX + 1),
        format!("a stream can have at most {SUBJECTS_MAX} subjects")
    );
}

#[test]
fn the_first_fault_of_a_list_of_subjects_is_told() {
    assert_eq!(subjects(&["a.*", "b c", "a.b"]), r#"subject "a.*" overlaps with "a.b""#);
    assert_eq!(subjects(&["x", "b c", "a.*", "a.b"]), "invalid subject");
    assert_eq!(subjects(&["c", "a", "b.>", "b.*", "a"]), r#"subject "a" overlaps with "a""#);
}

#[test]
fn the_number_of_transforms_of_a_source_is_limited() {
    let transforms = (0..=SOURCE_TRANSFORMS_MAX)
        .map(|n| SubjectTransformConfig { src: format!("a.{n}"), dest: format!("b.{n}") })
        .collect();
    let source = StreamSource {
        name: "O".into(),
        subject_transforms: transforms,
        ..StreamSource::default()
    };
    let text = create(|config| config.sources = vec![source]);
    assert!(text.ends_with("at most 1024 transforms"), "{text}");
}
