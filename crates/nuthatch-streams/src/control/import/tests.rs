//! What is answered when, from where an import goes on, and how it ends.

mod calls;

use super::*;
use crate::op::{OpOutcome, Replica};
use nuthatch_protocol::js::Time;
use nuthatch_protocol::jserror::JsError;

fn message(seq: u64) -> Replica {
    let subject = b"s".to_vec();
    Replica { seq, time: Time(1), subject, headers: Vec::new(), body: vec![0; 100] }
}

/// Two messages behind those of the batch before it.
fn numbered(number: u64) -> Batch {
    let copies = vec![message(2 * number - 1), message(2 * number)];
    let after = Some(2 * (number - 1));
    Batch { id: BatchId(number), copies, after, gap_to: 2 * number }
}

fn batch(number: u64) -> Event {
    Event::Batch(numbered(number))
}

/// As an importer sends it that does not say where it goes on.
fn plain(number: u64) -> Event {
    Event::Batch(Batch { after: None, ..numbered(number) })
}

fn refused(effect: &Effect) -> bool {
    matches!(effect, Effect::Answer(_, Err(_)))
}

const DONE: Event = Event::Stored(Ok(OpOutcome::Done));

#[test]
fn what_waits_is_stored_in_one_go_and_answered_when_that_is_done() {
    let mut intake = Intake::new();
    let first = intake.step(batch(1));
    assert!(matches!(&first[..], [Effect::Store { copies, gap_to: 2 }] if copies.len() == 2));
    assert_eq!(intake.step(batch(2)), []);
    assert_eq!(intake.step(batch(3)), []);
    assert!(intake.check_confirmed(0).is_err());
    let effects = intake.step(DONE);
    assert_eq!(effects[0], Effect::Answer(BatchId(1), Ok(())));
    let Effect::Store { copies, gap_to: 6 } = &effects[1] else { panic!("{effects:?}") };
    assert_eq!(copies.len(), 4);
    let effects = intake.step(DONE);
    let answered = |number| Effect::Answer(BatchId(number), Ok(()));
    assert_eq!(effects, [answered(2), answered(3)]);
    assert_eq!(intake.check_confirmed(0), Ok(()));
}

#[test]
fn behind_a_batch_that_was_refused_nothing_is_stored_until_the_importer_asks() {
    let mut intake = Intake::new();
    intake.step(batch(1));
    intake.step(batch(2));
    let effects = intake.step(Event::Stored(Err(JsError::STREAM_TOO_MANY_REQUESTS)));
    assert!(effects.len() == 2 && effects.iter().all(refused), "{effects:?}");
    assert!(matches!(&intake.step(plain(3))[..], [Effect::Answer(BatchId(3), Err(_))]));
    assert!(intake.check_confirmed(0).is_err());
    assert_eq!(intake.step(Event::Asked(0)), []);
    assert!(matches!(&intake.step(batch(1))[..], [Effect::Store { .. }]));
}

/// Two importers at one stream, or one whose batches come late: the second asks, and what the first
/// has sent behind a batch that was refused comes after that.
#[test]
fn a_batch_that_does_not_follow_what_is_there_is_refused_whoever_has_asked() {
    let mut intake = Intake::new();
    intake.step(batch(1));
    intake.step(Event::Stored(Err(JsError::STREAM_TOO_MANY_REQUESTS)));
    intake.step(Event::Asked(0));
    assert!(refused(&intake.step(batch(2))[0]), "1 and 2 are not there");
    assert!(matches!(&intake.step(batch(1))[..], [Effect::Store { .. }]));
    assert_eq!(intake.step(batch(2)), []);
    // What was brought twice is passed over by the stream.
    assert_eq!(intake.step(batch(2)), []);
}

#[test]
fn an_import_that_a_start_has_found_takes_batches_once_its_importer_has_asked() {
    let mut intake = Intake::found();
    assert!(refused(&intake.step(batch(3))[0]));
    intake.step(Event::Asked(4));
    assert!(refused(&intake.step(batch(4))[0]), "5 and 6 are not there");
    assert!(matches!(&intake.step(batch(3))[..], [Effect::Store { .. }]));
}

#[test]
fn an_import_that_is_over_answers_every_batch() {
    let mut intake = Intake::new();
    intake.step(batch(1));
    intake.step(batch(2));
    let effects = intake.end(&JsError::STREAM_NOT_FOUND);
    assert!(effects.len() == 2 && effects.iter().all(refused), "{effects:?}");
}

#[test]
fn a_batch_is_not_merged_beyond_a_store() {
    let mut intake = Intake::new();
    intake.step(batch(1));
    for number in 3..6 {
        let large = Replica { body: vec![0; 3 << 20], ..message(number) };
        let (id, copies, after) = (BatchId(number), vec![large], Some(number - 1));
        intake.step(Event::Batch(Batch { id, copies, after, gap_to: number }));
    }
    let effects = intake.step(DONE);
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
