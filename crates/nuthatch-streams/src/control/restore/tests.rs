//! The order of the steps, and what becomes of each that fails, without any log.

use super::*;
use nuthatch_protocol::js::Time;

fn message(seq: u64) -> Replica {
    let subject = b"s".to_vec();
    Replica { seq, time: Time(1), subject, headers: Vec::new(), body: vec![7; 10] }
}

fn removed(first: u64, last: u64) -> Item {
    Item::Removed { first, last }
}

/// A restore with a log that does as it is told, and what was asked for.
struct Play {
    machine: Restore,
    items: std::vec::IntoIter<Item>,
    asked: Vec<String>,
    /// This is refused, so many times.
    refuses: (&'static str, u32, JsError),
}

impl Play {
    fn new(items: Vec<Item>) -> Self {
        let config = StreamConfig { name: "R".into(), ..StreamConfig::default() };
        let parts = Parts { messages_max: 4, bytes_max: 1 << 20 };
        let machine = Restore::new(config, parts);
        let refuses = ("", 0, JsError::BAD_REQUEST);
        Self { machine, items: items.into_iter(), asked: Vec::new(), refuses }
    }

    fn run(&mut self) -> Result<Box<StreamInfo>, JsError> {
        let (mut happened, mut now) = (Happened::Began, Now::ZERO);
        loop {
            let action = self.machine.step(happened, now);
            if let Action::Rest { until } = &action {
                now = *until;
            }
            happened = match action {
                Action::End(ended) => return ended,
                action => self.answer(action),
            };
        }
    }

    fn answer(&mut self, action: Action) -> Happened {
        let what = name(&action);
        if what != "Feed" {
            self.asked.push(what.clone());
        }
        let is_refused = self.refuses.0 == what && self.refuses.1 > 0;
        if is_refused {
            self.refuses.1 -= 1;
        }
        let outcome = |outcome| if is_refused { Err(self.refuses.2.clone()) } else { Ok(outcome) };
        let stream = || OpOutcome::Stream { info: Box::default(), subjects_total: 0 };
        match action {
            Action::Create(_) => Happened::Created(StreamId(3), outcome(stream())),
            Action::Run(Op::FinishRestore { .. }) => Happened::Outcome(outcome(stream())),
            Action::Run(_) => Happened::Outcome(outcome(OpOutcome::Done)),
            Action::Rest { .. } => Happened::Rested,
            _ if is_refused => Happened::Failed(self.refuses.2.clone()),
            Action::Lock => Happened::Locked,
            Action::Feed => self.items.next().map_or(Happened::Complete, Happened::Item),
            Action::Check(consumers) => Happened::Checked(Box::default(), consumers),
            Action::Show(_) => Happened::Shown,
            Action::End(_) => panic!("over"),
        }
    }
}

fn name(action: &Action) -> String {
    match action {
        Action::Run(Op::Mirror { copies, gap_to, .. }) => {
            format!("Mirror {} to {gap_to}", copies.len())
        }
        Action::Run(Op::RemoveRestored { seqs, .. }) => format!("Remove {}", seqs.len()),
        Action::Run(Op::FinishRestore { .. }) => "Finish".into(),
        Action::Run(Op::DeleteStream { .. }) => "Delete".into(),
        other => {
            let text = format!("{other:?}");
            text.split(['(', ' ']).next().unwrap_or_default().to_owned()
        }
    }
}

#[test]
fn a_stream_is_shown_last() {
    let items = (1..=6).map(|seq| Item::Message(message(seq)));
    let mut play = Play::new(items.chain([removed(2, 3), removed(7, 9)]).collect());
    assert!(play.run().is_ok());
    let asked: Vec<&str> = play.asked.iter().map(String::as_str).collect();
    let steps = ["Lock", "Create", "Mirror 4 to 4", "Mirror 2 to 9", "Remove 2"];
    assert_eq!(asked[..5], steps);
    assert_eq!(asked[5..], ["Lock", "Check", "Finish", "Show"]);
}

#[test]
fn very_many_sequences_are_removed_in_parts() {
    let items = vec![Item::Message(message(1)), removed(2, 40), removed(1, 10)];
    let mut play = Play::new(items);
    assert!(play.run().is_ok());
    let removed: Vec<_> = play.asked.iter().filter(|what| what.starts_with("Remove")).collect();
    assert_eq!(removed, ["Remove 4", "Remove 4", "Remove 2"]);
}

#[test]
fn whatever_fails_nothing_is_left() {
    for step in ["Mirror 1 to 1", "Lock", "Check", "Finish"] {
        let mut play = Play::new(vec![Item::Message(message(1))]);
        play.refuses = (step, 1, JsError::BAD_REQUEST);
        if step == "Lock" {
            // The second one: with the first nothing was begun.
            assert!(play.run().is_err());
            assert_eq!(play.asked, ["Lock"]);
            continue;
        }
        assert_eq!(play.run(), Err(JsError::BAD_REQUEST));
        assert_eq!(play.asked.last().map(String::as_str), Some("Delete"), "{step}");
        assert!(!play.asked.contains(&"Show".to_owned()));
    }
}

#[test]
fn a_busy_log_is_asked_again_to_delete_and_not_for_ever() {
    let mut play = Play::new(vec![removed(1, 1 << 35)]);
    play.refuses = ("Delete", 3, JsError::STREAM_TOO_MANY_REQUESTS);
    let far = vec![Item::Message(message(1)), Item::Message(message(1 << 35))];
    play.items = far.into_iter();
    assert_eq!(play.run().map(drop).unwrap_err().err_code, JsError::STREAM_RESTORE.err_code);
    assert_eq!(play.asked.iter().filter(|what| *what == "Delete").count(), 4);
    let mut play = Play::new(vec![Item::Message(message(1))]);
    play.refuses = ("Delete", 99, JsError::STREAM_TOO_MANY_REQUESTS);
    play.items = vec![Item::Message(message(1)), Item::Message(message(1 << 35))].into_iter();
    assert!(play.run().is_err());
    let tries = play.asked.iter().filter(|what| *what == "Delete").count();
    assert_eq!(tries, CLEAR_TRIES as usize);
}
