//! The order of the steps, and what becomes of each that fails, without any log.

use super::*;
use crate::op::Replica;
use nuthatch_protocol::js::{StreamInfo, StreamState, Time};

const SEC: Duration = Duration::from_secs(1);

fn pace() -> Pace {
    Pace {
        store_bytes_max: 1 << 20,
        store_messages_max: 4,
        switch_lag: 3,
        hold_step: Duration::from_millis(600),
        hold_max: 20 * SEC,
        retry_min: Duration::from_millis(250),
        retry_max: 10 * SEC,
        busy_pause: 2 * SEC,
        rate_bytes: 1_000,
    }
}

fn at(log: &str, id: u32) -> StreamLocation {
    StreamLocation { log: log.into(), stream: StreamId(id) }
}

/// What becomes of something that was asked for.
type Answer = fn() -> Happened;

/// A mover with logs that do as they are told, and what was asked for.
struct Play {
    mover: Mover,
    now: Now,
    last_seq: u64,
    copied: u64,
    asked: Vec<String>,
    /// Answers instead of the usual one, by what is asked for.
    odd: Vec<(&'static str, Answer)>,
    /// How long each step takes.
    each: Duration,
}

fn refusal() -> Happened {
    Happened::Outcome(Err(JsError::STREAM_STORE_FAILED))
}

fn gone() -> Happened {
    Happened::Outcome(Err(JsError::STREAM_NOT_FOUND))
}

impl Play {
    fn new(last_seq: u64) -> Self {
        let mover = Mover::new(Plan { source: at("old", 1), copy: at("new", 2) }, pace());
        let each = Duration::from_millis(1);
        Self { mover, now: SEC, last_seq, copied: 0, asked: Vec::new(), odd: Vec::new(), each }
    }

    fn odd(mut self, what: &'static str, answer: Answer) -> Self {
        self.odd.push((what, answer));
        self
    }

    /// Plays it to its end.
    fn run(&mut self) -> Ended {
        let mut happened = Happened::Began;
        for _ in 0..1_000 {
            self.now += self.each;
            let action = self.mover.step(happened, self.now);
            if let Action::End(ended) = action {
                return ended;
            }
            happened = self.answer(action);
        }
        panic!("no end: {:?}", self.asked);
    }

    fn answer(&mut self, action: Action) -> Happened {
        let what = name(&action);
        let behind = ["AwaitForgotten", "Retry", "Stay for good", "Forget"];
        let needs_turn = !behind.iter().any(|behind| what == *behind);
        assert_eq!(self.mover.needs_turn(), needs_turn, "{what}: others wait for the turn");
        self.asked.push(what.clone());
        if let Some(found) = self.odd.iter().position(|(odd, _)| what.starts_with(odd)) {
            return (self.odd.remove(found).1)();
        }
        match action {
            Action::TakeTurn => Happened::Turn(true),
            Action::Run { op, .. } => Happened::Outcome(Ok(self.outcome(op))),
            Action::Rest { until } | Action::Retry { until, .. } => {
                self.now = self.now.max(until);
                Happened::Rested
            }
            Action::Lock => Happened::Locked(Box::default()),
            Action::Switch => Happened::Switched,
            Action::AwaitForgotten => Happened::Outcome(Ok(OpOutcome::Done)),
            Action::End(_) => panic!("over"),
        }
    }

    fn outcome(&mut self, op: Op) -> OpOutcome {
        match op {
            Op::StreamInfo { .. } => {
                let state = StreamState { last_seq: self.copied, ..StreamState::default() };
                let info = StreamInfo { state, ..StreamInfo::default() };
                OpOutcome::Stream { info: Box::new(info), subjects_total: 0 }
            }
            Op::ReadRange { request, .. } => {
                let until = (request.from + 2).min(self.last_seq + 1);
                let message = |seq| Replica {
                    seq,
                    time: Time(1),
                    subject: b"s".to_vec(),
                    headers: Vec::new(),
                    body: vec![0; 100],
                };
                let messages = (request.from..until).map(message).collect();
                OpOutcome::Range(Range { messages, next: until, last_seq: self.last_seq })
            }
            Op::Mirror { gap_to, .. } => {
                assert!(gap_to > self.copied, "nothing is copied twice");
                self.copied = gap_to;
                OpOutcome::Done
            }
            Op::Leave { .. } => OpOutcome::Left { state: vec![7], last_seq: self.last_seq },
            Op::Settle { state, .. } => {
                assert_eq!((state, self.copied), (vec![7], self.last_seq), "all of it is there");
                OpOutcome::Done
            }
            _ => OpOutcome::Done,
        }
    }
}

fn name(action: &Action) -> String {
    let text = match action {
        Action::Run { side, op, .. } => format!("{op:?}@{side:?}"),
        other => format!("{other:?}"),
    };
    let end = text.find([' ', '{', '(']).unwrap_or(text.len());
    let refused = if text.contains("refused: Some") { " for good" } else { "" };
    text[..end].to_owned() + refused
}

#[test]
fn a_move_takes_its_steps_in_order() {
    let mut play = Play::new(6);
    assert_eq!(play.run(), Ended::Moved);
    let copied = ["TakeTurn", "StreamInfo", "ReadRange", "ReadRange", "Mirror"];
    let held = ["Probe", "Lock", "Leave", "ReadRange", "Mirror", "Settle"];
    let switched = ["Switch", "StreamInfo", "AwaitForgotten"];
    assert_eq!(play.asked, [&copied[..], &held, &switched].concat());
    let progress = play.mover.progress();
    assert_eq!((progress.copied_seq, progress.last_seq, progress.switched), (6, 6, true));
    assert_eq!(progress.held, Duration::from_millis(6), "from the lock to the answer");
}

/// A thousand bytes a second: four messages of somewhat more than a hundred take half a second.
#[test]
fn copies_keep_to_their_rate() {
    let mut play = Play::new(40);
    let began = play.now;
    assert_eq!(play.run(), Ended::Moved);
    assert!(play.asked.iter().filter(|what| *what == "Rest").count() >= 8, "{:?}", play.asked);
    assert!(play.now > began + 4 * SEC, "{:?}", play.now);
}

/// Whatever fails once, the stream gets there in the end, and is never left held.
#[test]
fn every_step_that_fails_once_is_taken_again() {
    let steps = ["StreamInfo", "ReadRange", "Mirror", "Probe", "Leave", "Stay"];
    for step in steps {
        for answer in [refusal as Answer, || Happened::NoAnswer(JsError::CLUSTER_NOT_AVAIL)] {
            let mut play = Play::new(9).odd(step, answer);
            assert_eq!(play.run(), Ended::Moved, "{step}");
            let retried = play.asked.iter().any(|what| what.starts_with("Retry"));
            assert!(retried || step == "Stay", "{step}: {:?}", play.asked);
            check_held(&play.asked, step);
        }
    }
}

/// A stream that was asked to leave is told to stay before anything else is tried, unless the new log
/// takes over.
fn check_held(asked: &[String], step: &str) {
    for (place, _) in asked.iter().enumerate().filter(|(_, what)| *what == "Leave") {
        let after = asked[place + 1..].iter().map(String::as_str);
        let end = after.clone().find(|what| !matches!(*what, "ReadRange" | "Mirror"));
        assert!(matches!(end, Some("Stay" | "Settle")), "{step}: {asked:?}");
    }
}

#[test]
fn a_stream_is_not_held_longer_than_is_allowed() {
    for step in ["Leave", "ReadRange", "Mirror"] {
        let mut play = Play::new(3);
        // Late at this step while it is held: everything else is taken from the first answers.
        play.last_seq = 3;
        let mut happened = Happened::Began;
        let mut late = 0;
        let ended = loop {
            play.now += play.each;
            let action = play.mover.step(happened, play.now);
            if let Action::End(ended) = action {
                break ended;
            }
            let held = matches!(&action, Action::Run { until: Some(_), .. });
            if held && late == 0 && name(&action) == step {
                late += 1;
                play.asked.push(name(&action));
                happened = Happened::Late;
                continue;
            }
            if name(&action) == "Leave" {
                // Something to copy while it is held.
                play.last_seq += 2;
            }
            happened = play.answer(action);
        };
        assert_eq!((ended, late), (Ended::Moved, 1), "{step}");
        check_held(&play.asked, step);
        assert!(play.asked.iter().any(|what| what == "Stay"), "{step}: it went on");
        assert!(!play.asked.iter().any(|what| what.starts_with("Retry")), "that is no problem");
    }
}

/// The probe says how long a frame takes: the last one of a switch cannot be taken back.
#[test]
fn a_slow_log_gets_no_stream_until_the_patience_has_grown() {
    let mut play = Play::new(2);
    play.each = Duration::from_millis(700);
    assert_eq!(play.run(), Ended::Moved);
    let probes = play.asked.iter().filter(|what| *what == "Probe").count();
    // 2 x 700 ms are allowed with the third one: 3 x 600 ms.
    assert_eq!(probes, 3, "{:?}", play.asked);
    assert_eq!(play.asked.iter().filter(|what| *what == "Leave").count(), 1);
}

#[test]
fn an_answer_that_is_missing_while_the_new_log_takes_over_decides_nothing() {
    for answer in [refusal as Answer, || Happened::NoAnswer(JsError::CLUSTER_NOT_AVAIL)] {
        let mut play = Play::new(2).odd("Settle", answer);
        assert!(matches!(play.run(), Ended::Undecided(_)));
        assert_eq!(
            play.asked.last().map(String::as_str),
            Some("Settle"),
            "nothing is told to stay"
        );
    }
    let unsettled = || Happened::Outcome(Ok(OpOutcome::Unsettled(JsError::STREAM_STORE_FAILED)));
    for answer in [unsettled as Answer, || Happened::NotSent(JsError::CLUSTER_NOT_AVAIL)] {
        let mut play = Play::new(2).odd("Settle", answer);
        assert_eq!(play.run(), Ended::Moved, "nothing was written: it is tried again");
        check_held(&play.asked[..play.asked.len() - 1], "Settle");
        assert!(play.asked.iter().any(|what| what == "Stay"));
    }
}

#[test]
fn what_is_gone_is_cleared_up_and_the_old_log_first() {
    for step in ["StreamInfo", "ReadRange", "Mirror", "Probe", "Leave"] {
        let mut play = Play::new(2).odd(step, gone);
        let GivenUp::Gone = given_up(play.run()) else { panic!("{step}") };
        let end: Vec<&str> = play.asked.iter().rev().take(2).map(String::as_str).collect();
        assert_eq!(end, ["Forget", "Stay for good"], "{step}");
    }
    let mut play = Play::new(2).odd("Lock", || Happened::Elsewhere);
    assert_eq!(given_up(play.run()), GivenUp::Gone);
}

fn given_up(ended: Ended) -> GivenUp {
    match ended {
        Ended::GivenUp { why, not_refused: None, not_dropped: None } => why,
        other => panic!("not given up: {other:?}"),
    }
}

#[test]
fn a_copy_is_not_dropped_before_the_old_log_has_refused_it() {
    let mut play = Play::new(2).odd("Stay for good", refusal);
    play.mover.cancel();
    let Ended::GivenUp { not_refused: Some(_), .. } = play.run() else { panic!("refused") };
    assert!(!play.asked.iter().any(|what| what == "Forget"), "a restart goes on with it");
    let mut play = Play::new(2).odd("Forget", refusal);
    play.mover.cancel();
    let Ended::GivenUp { not_dropped: Some(_), .. } = play.run() else { panic!("not dropped") };
}

#[test]
fn a_cancelled_move_ends_where_it_can_and_not_once_the_new_log_takes_over() {
    let mut play = Play::new(50);
    let mut happened = Happened::Began;
    for _ in 0..12 {
        play.now += play.each;
        let action = play.mover.step(happened, play.now);
        happened = play.answer(action);
    }
    play.mover.cancel();
    let mut left = 0;
    let ended = loop {
        let action = play.mover.step(happened, play.now);
        if let Action::End(ended) = action {
            break ended;
        }
        happened = play.answer(action);
        left += 1;
    };
    assert_eq!(given_up(ended), GivenUp::Cancelled);
    assert!(left < 8, "{left} steps after it was cancelled");
    let mut play = Play::new(2);
    let mut happened = Happened::Began;
    let ended = loop {
        let action = play.mover.step(happened, play.now);
        if let Action::End(ended) = action {
            break ended;
        }
        if name(&action) == "Settle" {
            play.mover.cancel();
        }
        happened = play.answer(action);
    };
    assert_eq!(ended, Ended::Moved);
}

#[test]
fn pauses_after_problems_grow_and_are_bounded() {
    let mut play = Play::new(2);
    play.odd = vec![("StreamInfo", refusal as Answer); 9];
    let mut happened = Happened::Began;
    let mut waits = Vec::new();
    loop {
        let action = play.mover.step(happened, play.now);
        match &action {
            Action::Retry { wait, .. } => waits.push(wait.as_millis()),
            Action::End(_) => break,
            _ => {}
        }
        happened = play.answer(action);
    }
    assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000]);
}

#[test]
fn another_change_of_the_stream_is_waited_for() {
    let mut play = Play::new(2).odd("Lock", || Happened::LockBusy);
    let before = play.now;
    assert_eq!(play.run(), Ended::Moved);
    assert!(play.now > before + 2 * SEC);
    assert_eq!(play.asked.iter().filter(|what| *what == "Lock").count(), 2);
}
