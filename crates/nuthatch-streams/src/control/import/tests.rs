//! What is answered when, and from where an import goes on.

use super::*;
use crate::op::{OpOutcome, Replica};
use nuthatch_protocol::js::Time;
use nuthatch_protocol::jserror::JsError;

fn message(seq: u64) -> Replica {
    let subject = b"s".to_vec();
    Replica { seq, time: Time(1), subject, headers: Vec::new(), body: vec![0; 100] }
}

fn batch(number: u64) -> Event {
    let copies = vec![message(2 * number), message(2 * number + 1)];
    Event::Batch { batch: BatchId(number), copies, gap_to: 2 * number + 1 }
}

#[test]
fn what_waits_is_stored_in_one_go_and_answered_when_that_is_done() {
    let mut intake = Intake::default();
    let first = intake.step(batch(1));
    assert!(matches!(&first[..], [Effect::Store { copies, gap_to: 3 }] if copies.len() == 2));
    assert_eq!(intake.step(batch(2)), []);
    assert_eq!(intake.step(batch(3)), []);
    let effects = intake.step(Event::Stored(Ok(OpOutcome::Done)));
    assert_eq!(effects[0], Effect::Answer(BatchId(1), Ok(())));
    let Effect::Store { copies, gap_to: 7 } = &effects[1] else { panic!("{effects:?}") };
    assert_eq!(copies.len(), 4);
    let effects = intake.step(Event::Stored(Ok(OpOutcome::Done)));
    let answered = |number| Effect::Answer(BatchId(number), Ok(()));
    assert_eq!(effects, [answered(2), answered(3)]);
}

#[test]
fn behind_a_batch_that_was_refused_nothing_is_stored_until_the_importer_asks() {
    let mut intake = Intake::default();
    intake.step(batch(1));
    intake.step(batch(2));
    let effects = intake.step(Event::Stored(Err(JsError::STREAM_TOO_MANY_REQUESTS)));
    let refused = |effect: &Effect| matches!(effect, Effect::Answer(_, Err(_)));
    assert!(effects.len() == 2 && effects.iter().all(refused), "{effects:?}");
    assert!(matches!(&intake.step(batch(3))[..], [Effect::Answer(BatchId(3), Err(_))]));
    assert_eq!(intake.step(Event::Asked), []);
    assert!(matches!(&intake.step(batch(1))[..], [Effect::Store { .. }]));
}

#[test]
fn a_batch_is_not_merged_beyond_a_store() {
    let mut intake = Intake::default();
    intake.step(batch(1));
    for number in 2..5 {
        let large = Replica { body: vec![0; 3 << 20], ..message(number) };
        let copies = vec![large];
        intake.step(Event::Batch { batch: BatchId(number), copies, gap_to: number });
    }
    let effects = intake.step(Event::Stored(Ok(OpOutcome::Done)));
    let Effect::Store { copies, .. } = &effects[1] else { panic!("{effects:?}") };
    assert_eq!(copies.len(), 1);
}

#[test]
fn an_importer_goes_on_behind_what_is_stored() {
    let mut importer = Importer::default();
    assert_eq!(importer.step(Happened::Began), Action::Begin);
    let told = Happened::Told { stored: 10, verified: 4 };
    assert_eq!(importer.step(told), Action::AskLast);
    assert_eq!(importer.step(Happened::Last(12)), Action::Bring { first: 11, last: 12 });
    assert_eq!(importer.stored(), 10, "not durable yet");
    assert_eq!(importer.step(Happened::Brought), Action::Compare { first: 5, last: 12 });
    assert_eq!(importer.step(Happened::Compared), Action::Note(12));
    assert_eq!(importer.step(Happened::Noted), Action::Done);
    assert_eq!(importer.step(Happened::LookAgain), Action::AskLast);
    assert_eq!(importer.step(Happened::Last(12)), Action::Done);
}
