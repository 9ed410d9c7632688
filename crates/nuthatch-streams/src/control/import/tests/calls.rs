//! Calls that begin, finish and give up imports.

use super::*;
use crate::op::{Op, OpResult};
use crate::sink::AccountId;
use crate::stream::importing_config;
use nuthatch_log::StreamId;
use nuthatch_protocol::js::{StreamConfig, StreamInfo, StreamState};

const LOG: u64 = 7;
const TARGET: Target = Target { log: LOG, stream: StreamId(5) };

fn key() -> Key {
    Key { account: AccountId::GLOBAL, name: "S".into() }
}

fn config() -> Box<StreamConfig> {
    Box::new(StreamConfig { name: "S".into(), ..StreamConfig::default() })
}

fn info(config: StreamConfig, last_seq: u64) -> CallHappened {
    let state = StreamState { last_seq, ..StreamState::default() };
    let info = Box::new(StreamInfo { config: config.into(), state, ..StreamInfo::default() });
    CallHappened::Outcome(Ok(OpOutcome::Stream { info, subjects_total: 0 }))
}

fn importing(last_seq: u64) -> CallHappened {
    info(importing_config(&config()), last_seq)
}

fn failed(error: JsError) -> CallHappened {
    CallHappened::Outcome(Err(error))
}

/// The way of a call, and the action that it asks for then.
fn after(call: &mut Call, imports: &mut Imports, way: &[CallHappened]) -> CallAction {
    let mut action = None;
    for happened in way {
        action = Some(call.step(happened.clone(), imports).0);
    }
    action.expect("something happened")
}

fn call(request: Request) -> Call {
    Call::new(key(), request)
}

fn checked() -> CallHappened {
    CallHappened::Checked(config(), Vec::new(), LOG)
}

fn begun(outcome: OpResult) -> [CallHappened; 4] {
    let created = CallHappened::Created(TARGET.stream, outcome);
    [CallHappened::Began, CallHappened::Locked, checked(), created]
}

/// One import that is under way.
fn under_way() -> Imports {
    let mut imports = Imports::default();
    let mut begin = call(Request::Begin(config()));
    after(&mut begin, &mut imports, &begun(Ok(OpOutcome::Done)));
    let ended = after(&mut begin, &mut imports, &[importing(0)]);
    assert!(matches!(ended, CallAction::End(Ok(Ended::UnderWay(..)))), "{ended:?}");
    assert_eq!(imports.target(&key()), Some(TARGET));
    imports
}

fn finish() -> Call {
    call(Request::Finish { config: config(), consumers: Vec::new(), last: 0 })
}

const HELD: [CallHappened; 2] = [CallHappened::Began, CallHappened::Locked];

#[test]
fn an_import_that_is_begun_again_goes_on() {
    let mut imports = under_way();
    let mut again = call(Request::Begin(config()));
    let action = after(&mut again, &mut imports, &HELD);
    assert!(matches!(action, CallAction::Run { op: Op::StreamInfo { .. }, .. }), "{action:?}");
    assert_eq!(imports.len(), 1);
}

#[test]
fn an_import_is_finished_once_its_batches_were_confirmed() {
    let mut imports = under_way();
    let (target, effects) = imports.batch(&key(), numbered(1)).expect("it is under way");
    assert!(matches!(effects[..], [Effect::Store { .. }]) && target == TARGET);
    let mut early = finish();
    after(&mut early, &mut imports, &HELD);
    let refused = after(&mut early, &mut imports, &[checked()]);
    assert!(matches!(refused, CallAction::End(Err(_))), "{refused:?}");
    imports.stored(&key(), TARGET, Ok(OpOutcome::Done));

    let mut finish = finish();
    after(&mut finish, &mut imports, &HELD);
    let action = after(&mut finish, &mut imports, &[checked()]);
    assert!(matches!(action, CallAction::Run { op: Op::FinishRestore { .. }, .. }), "{action:?}");
    let (_, effects) = imports.batch(&key(), numbered(2)).expect("it is known still");
    assert!(matches!(effects[..], [Effect::Answer(_, Err(_))]), "{effects:?}");
    let action = after(&mut finish, &mut imports, &[info(*config(), 2)]);
    assert!(matches!(action, CallAction::Show(TARGET, _)), "{action:?}");
    assert_eq!(imports.len(), 1, "others may not begin it before it is shown");
    let ended = after(&mut finish, &mut imports, &[CallHappened::Shown]);
    assert!(matches!(ended, CallAction::End(Ok(Ended::Finished(_)))), "{ended:?}");
    assert!(imports.is_empty());
}

/// Its importer does not know that a batch was refused, and another one has asked since.
#[test]
fn an_import_is_finished_when_it_goes_up_to_where_its_importer_says() {
    let mut imports = under_way();
    imports.batch(&key(), numbered(1)).expect("it is under way");
    imports.stored(&key(), TARGET, Err(JsError::STREAM_TOO_MANY_REQUESTS));
    let mut again = call(Request::Begin(config()));
    after(&mut again, &mut imports, &HELD);
    after(&mut again, &mut imports, &[importing(0)]);
    for (last, may) in [(2, false), (0, true)] {
        let (config, consumers) = (config(), Vec::new());
        let mut finish = call(Request::Finish { config, consumers, last });
        after(&mut finish, &mut imports, &HELD);
        let action = after(&mut finish, &mut imports, &[checked()]);
        assert_eq!(matches!(action, CallAction::Run { .. }), may, "{action:?}");
    }
}

#[test]
fn a_finish_that_the_log_refused_can_be_tried_again() {
    let mut imports = under_way();
    for _ in 0..2 {
        let mut finish = finish();
        after(&mut finish, &mut imports, &HELD);
        let action = after(&mut finish, &mut imports, &[checked()]);
        assert!(matches!(action, CallAction::Run { op: Op::FinishRestore { .. }, .. }));
        let busy = failed(JsError::STREAM_TOO_MANY_REQUESTS);
        let ended = after(&mut finish, &mut imports, &[busy]);
        assert!(matches!(ended, CallAction::End(Err(_))), "{ended:?}");
    }
    let (_, effects) = imports.batch(&key(), numbered(1)).expect("it is under way");
    assert!(matches!(effects[..], [Effect::Store { .. }]), "{effects:?}");
}

/// The log was asked to do something, has not answered, and nobody knows what became of it.
#[test]
fn what_became_of_a_stream_is_asked_before_anything_else_is_done() {
    let mut imports = under_way();
    let mut finish = finish();
    after(&mut finish, &mut imports, &HELD);
    after(&mut finish, &mut imports, &[checked()]);
    let unknown = || failed(JsError::CLUSTER_NOT_AVAIL);
    let action = after(&mut finish, &mut imports, &[unknown()]);
    assert!(matches!(action, CallAction::Run { op: Op::StreamInfo { .. }, .. }), "{action:?}");
    let ended = after(&mut finish, &mut imports, &[unknown()]);
    assert!(matches!(ended, CallAction::End(Err(_))), "{ended:?}");

    let mut cancel = call(Request::Cancel);
    let action = after(&mut cancel, &mut imports, &HELD);
    assert!(matches!(action, CallAction::Run { op: Op::StreamInfo { .. }, .. }), "{action:?}");
    let action = after(&mut cancel, &mut imports, &[info(*config(), 2)]);
    assert!(matches!(action, CallAction::Show(TARGET, _)), "it was finished: {action:?}");
    let ended = after(&mut cancel, &mut imports, &[CallHappened::Shown]);
    assert_eq!(ended, CallAction::End(Err(JsError::STREAM_NOT_FOUND)));
}

#[test]
fn a_stream_that_may_have_begun_keeps_its_name() {
    let mut imports = Imports::default();
    let unknown = || JsError::CLUSTER_NOT_AVAIL;
    let mut begin = call(Request::Begin(config()));
    after(&mut begin, &mut imports, &begun(Err(unknown())));
    after(&mut begin, &mut imports, &[failed(unknown())]);
    assert_eq!(imports.target(&key()), Some(TARGET));
    let mut again = call(Request::Begin(config()));
    after(&mut again, &mut imports, &HELD);
    let action = after(&mut again, &mut imports, &[failed(JsError::STREAM_NOT_FOUND)]);
    assert!(matches!(action, CallAction::Check(..)), "it was not: {action:?}");
    assert!(imports.is_empty());
}

#[test]
fn an_import_is_forgotten_once_its_stream_is_gone() {
    let mut imports = under_way();
    imports.batch(&key(), numbered(1)).expect("it is under way");
    let mut cancel = call(Request::Cancel);
    after(&mut cancel, &mut imports, &HELD);
    let ended = after(&mut cancel, &mut imports, &[failed(JsError::STREAM_TOO_MANY_REQUESTS)]);
    assert!(matches!(ended, CallAction::End(Err(_))) && imports.len() == 1, "{ended:?}");

    let mut cancel = call(Request::Cancel);
    after(&mut cancel, &mut imports, &HELD);
    let done = CallHappened::Outcome(Ok(OpOutcome::Done));
    let (ended, effects) = cancel.step(done, &mut imports);
    assert_eq!(ended, CallAction::End(Ok(Ended::Cancelled)));
    assert!(matches!(effects[..], [Effect::Answer(BatchId(1), Err(_))]), "{effects:?}");
    assert!(imports.is_empty());
    assert_eq!(imports.stored(&key(), TARGET, Ok(OpOutcome::Done)), [], "nobody waits for it");
}

#[test]
fn a_log_that_is_taken_away_ends_the_calls_about_its_imports() {
    let mut imports = under_way();
    let mut cancel = call(Request::Cancel);
    after(&mut cancel, &mut imports, &HELD);
    imports.forget_log(LOG);
    let ended = after(&mut cancel, &mut imports, &[failed(JsError::CLUSTER_NOT_AVAIL)]);
    assert_eq!(ended, CallAction::End(Err(JsError::STREAM_NOT_FOUND)));
    let mut begin = call(Request::Begin(config()));
    after(&mut begin, &mut imports, &begun(Ok(OpOutcome::Done))[..3]);
    imports.forget_log(LOG);
    let created = CallHappened::Created(TARGET.stream, Ok(OpOutcome::Done));
    let ended = after(&mut begin, &mut imports, &[created]);
    assert_eq!(ended, CallAction::End(Err(JsError::STREAM_NOT_FOUND)));
}

#[test]
fn imports_of_one_account_leave_room_for_others() {
    let mut imports = Imports::default();
    let found = |at: usize| Key { account: AccountId::GLOBAL, name: format!("S{at}") };
    for at in 0..IMPORTS_OF_ACCOUNT_MAX {
        assert_eq!(imports.found(found(at), TARGET), Ok(()));
    }
    let refused = |imports: &mut Imports, key: Key| {
        let mut begin = Call::new(key, Request::Begin(config()));
        let way = [CallHappened::Began, CallHappened::Locked, checked()];
        matches!(after(&mut begin, imports, &way), CallAction::End(Err(_)))
    };
    assert!(refused(&mut imports, key()));
    assert!(!refused(&mut imports, Key { account: AccountId(3), ..key() }));
}

#[test]
fn one_import_has_one_stream() {
    let mut imports = under_way();
    let other = Target { log: 9, stream: StreamId(1) };
    assert_eq!(imports.found(key(), other), Err(TARGET));
    assert_eq!(imports.target(&key()), Some(TARGET));
}

#[test]
fn what_the_origin_lacks_is_deleted() {
    let mut imports = under_way();
    let mut reconcile = call(Request::Reconcile { first_seq: 3, deleted: vec![9, 7] });
    let action = after(&mut reconcile, &mut imports, &HELD);
    assert!(matches!(action, CallAction::Run { op: Op::Purge { .. }, .. }), "{action:?}");
    let done = || CallHappened::Outcome(Ok(OpOutcome::Purged(2)));
    let action = after(&mut reconcile, &mut imports, &[done()]);
    let CallAction::Run { op: Op::RemoveRestored { seqs, .. }, .. } = action else {
        panic!("{action:?}")
    };
    assert_eq!(seqs, [7, 9]);
    let action = after(&mut reconcile, &mut imports, &[done()]);
    assert!(matches!(action, CallAction::Run { op: Op::StreamInfo { .. }, .. }), "{action:?}");
}
