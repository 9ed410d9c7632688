//! Pauses, and what a copy waits for, without any log.

use super::*;
use nuthatch_protocol::js::StreamInfo;

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
