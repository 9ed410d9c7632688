//! What an engine does where the two logs of a move have come to different nodes: a copy that was refused never takes
//! over, whatever a mover that still runs asks for, also behind a restart; a stream that may live elsewhere waits.

use super::rig::{Outside, Rig, config};
use nuthatch_log::StreamId;
use nuthatch_log::env::MemDisk;
use nuthatch_protocol::js::Time;
use nuthatch_protocol::jserror::JsError;
use nuthatch_streams::migration::{OtherLogs, refusal_of, resolve};
use nuthatch_streams::op::{CopyStanding, Forgotten, OpResult, RangeRequest};
use nuthatch_streams::stream::StreamLocation;
use nuthatch_streams::{AccountId, Op, OpOutcome};

const SOURCE: StreamId = StreamId(1);
const COPY: StreamId = StreamId(2);

fn place(log: &str, stream: StreamId) -> StreamLocation {
    StreamLocation { log: log.to_owned(), stream }
}

/// Two engines: one with a stream of three messages, the other with a whole copy that has not taken over.
struct Both {
    disks: [MemDisk; 2],
    rigs: [Option<Rig>; 2],
    /// What the source told when the stream was about to leave.
    state: Vec<u8>,
}

impl Both {
    fn about_to_switch() -> Self {
        let disks = [MemDisk::default(), MemDisk::default()];
        let open = |at: usize| Rig::open(&disks[at], at as u64, &Outside::default());
        let mut rigs = [open(0).expect("opens"), open(1).expect("opens")];
        let account = AccountId::GLOBAL;
        rigs[0].op(Op::CreateStream { id: SOURCE, account, config: config() }).expect("created");
        let bodies: Vec<(u64, Vec<u8>)> = (1..=3).map(|token| (token, vec![7; 40])).collect();
        rigs[0].publish(SOURCE, &bodies);
        let (from, created) = (place("one", SOURCE), Time(1));
        let arrive = Op::Arrive { id: COPY, account, config: config(), from, created };
        rigs[1].op(arrive).expect("arrives");
        let request = RangeRequest { from: 1, ..RangeRequest::default() };
        let Ok(OpOutcome::Range(range)) = rigs[0].op(Op::ReadRange { id: SOURCE, request }) else {
            panic!("messages are read")
        };
        let (copies, gap_to) = (range.messages, range.next - 1);
        rigs[1].op(Op::Mirror { id: COPY, copies, gap_to }).expect("copied");
        let (log, to) = ("one".to_owned(), place("two", COPY));
        let leave = Op::Leave { id: SOURCE, log, to, config: config() };
        let Ok(OpOutcome::Left { state, last_seq: 3 }) = rigs[0].op(leave) else {
            panic!("it is about to leave")
        };
        Self { disks, rigs: rigs.map(Some), state }
    }

    /// The log comes to another node.
    fn reopen(&mut self, at: usize) {
        self.rigs[at] = None;
        let opened = Rig::open(&self.disks[at], 7 + at as u64, &Outside::default());
        self.rigs[at] = Some(opened.expect("opens"));
    }

    fn rig(&mut self, at: usize) -> &mut Rig {
        self.rigs[at].as_mut().expect("it is open")
    }

    fn refuse(&mut self) -> OpResult {
        let (account, name) = (AccountId::GLOBAL, config().name);
        let op = Op::RefuseCopy { id: COPY, account, name, log: "two".to_owned() };
        self.rig(1).try_op(op).expect("an answer")
    }

    fn settle(&mut self) -> OpResult {
        let op = Op::Settle { id: COPY, state: self.state.clone() };
        self.rig(1).try_op(op).expect("an answer")
    }

    /// Publishes to a stream; whether that was answered at once.
    fn takes(&mut self, at: usize, stream: StreamId, token: u64) -> bool {
        self.rig(at).publish(stream, &[(token, vec![8; 40])]);
        self.rig(at).take_answers().contains_key(&token)
    }
}

#[test]
fn a_copy_that_was_refused_never_takes_over() {
    for restarts in [false, true] {
        let mut both = Both::about_to_switch();
        assert_eq!(both.refuse(), Ok(OpOutcome::Copy(CopyStanding::Refused)));
        if restarts {
            both.reopen(1);
        }
        let Ok(OpOutcome::Unsettled(_)) = both.settle() else { panic!("it took over") };
        let probe = both.rig(1).try_op(Op::Probe { id: COPY }).expect("an answer");
        assert_eq!(probe, Err(JsError::STREAM_NOT_FOUND), "it would take the refusal back");
        // Asked once more it says the same.
        assert_eq!(both.refuse(), Ok(OpOutcome::Copy(CopyStanding::Refused)));
        // The source goes on, and remembers that.
        let refused = Some(refusal_of("one", COPY));
        both.rig(0).op(Op::Stay { id: SOURCE, refused }).expect("it stays");
        assert!(both.takes(0, SOURCE, 9));
        both.reopen(0);
        let catalog = both.rig(0).catalog();
        let found = resolve(&["one"], &[catalog], OtherLogs::AtNodes).expect("resolved");
        assert!(found.undecided.is_empty() && found.serve.len() == 1, "{found:?}");
    }
}

#[test]
fn a_copy_that_has_taken_over_says_so() {
    for restarts in [false, true] {
        let mut both = Both::about_to_switch();
        assert_eq!(both.settle(), Ok(OpOutcome::Done));
        if restarts {
            both.reopen(1);
        }
        assert_eq!(both.refuse(), Ok(OpOutcome::Copy(CopyStanding::Settled)));
        let name = "another".to_owned();
        let (account, log) = (AccountId::GLOBAL, "two".to_owned());
        let other = Op::RefuseCopy { id: COPY, account, name, log };
        let told = both.rig(1).try_op(other).expect("an answer");
        assert_eq!(told, Err(JsError::STREAM_NOT_FOUND), "it is another stream");
    }
}

#[test]
fn a_stream_that_may_live_elsewhere_waits_until_that_is_known() {
    let mut both = Both::about_to_switch();
    both.reopen(0);
    let catalog = both.rig(0).catalog();
    let found = resolve(&["one"], &[catalog], OtherLogs::AtNodes).expect("resolved");
    assert!(found.serve.is_empty() && found.undecided.len() == 1, "{found:?}");
    let told = both.rig(0).op(Op::GoesTo { id: SOURCE }).expect("told");
    assert_eq!(told, OpOutcome::GoesTo(Some(place("two", COPY))));
    both.rig(0).op(Op::Hold { id: SOURCE, refuses: false }).expect("held");
    assert!(!both.takes(0, SOURCE, 9), "it waits");
    assert_eq!(both.rig(0).read(SOURCE, 1), None, "questions, too");
    // A copy that it does not leave for says nothing about it.
    let other = Some(refusal_of("one", StreamId(77)));
    let told = both.rig(0).try_op(Op::Stay { id: SOURCE, refused: other }).expect("an answer");
    assert_eq!(told, Err(JsError::STREAM_MOVE_IN_PROGRESS));
    let refused = Some(refusal_of("one", COPY));
    both.rig(0).op(Op::Stay { id: SOURCE, refused }).expect("it stays");
    assert!(both.rig(0).take_answers().contains_key(&9), "what waited was taken");
    assert_eq!(both.rig(0).read(SOURCE, 1).map(|body| body.len()), Some(40));

    let mut both = Both::about_to_switch();
    both.reopen(0);
    both.rig(0).op(Op::Hold { id: SOURCE, refuses: false }).expect("held");
    assert!(!both.takes(0, SOURCE, 9), "it waits");
    let other = Op::Forget { id: SOURCE, what: Forgotten::LeftFor(StreamId(77)) };
    let told = both.rig(0).try_op(other).expect("an answer");
    assert_eq!(told, Err(JsError::STREAM_MOVE_IN_PROGRESS), "it waits for another copy");
    both.rig(0).op(Op::Forget { id: SOURCE, what: Forgotten::LeftFor(COPY) }).expect("forgotten");
    let answers = both.rig(0).take_answers();
    assert!(answers[&9].contains("error"), "what waited is answered: {answers:?}");
    both.reopen(0);
    assert!(both.rig(0).catalog().is_empty());
}

#[test]
fn a_stream_that_goes_on_is_not_forgotten_by_who_asked_before() {
    let mut both = Both::about_to_switch();
    both.reopen(0);
    both.rig(0).op(Op::Hold { id: SOURCE, refuses: false }).expect("held");
    let refused = Some(refusal_of("one", COPY));
    both.rig(0).op(Op::Stay { id: SOURCE, refused }).expect("it stays");
    let forget = Op::Forget { id: SOURCE, what: Forgotten::LeftFor(COPY) };
    assert_eq!(both.rig(0).try_op(forget), Some(Err(JsError::STREAM_MOVE_IN_PROGRESS)));
    assert!(both.takes(0, SOURCE, 9));
}

#[test]
fn what_waits_too_long_is_refused_and_then_what_comes() {
    let mut both = Both::about_to_switch();
    both.reopen(0);
    both.rig(0).op(Op::Hold { id: SOURCE, refuses: false }).expect("held");
    assert!(!both.takes(0, SOURCE, 9), "it waits");
    both.rig(0).op(Op::Hold { id: SOURCE, refuses: true }).expect("held");
    let answers = both.rig(0).take_answers();
    assert!(answers[&9].contains("10008"), "{answers:?}");
    assert!(both.takes(0, SOURCE, 10), "it is answered at once");
    let asked = both.rig(0).try_op(Op::StreamInfo {
        id: SOURCE,
        deleted_details: false,
        subjects_filter: String::new(),
        offset: 0,
    });
    let Some(Err(error)) = asked else { panic!("questions, too: {asked:?}") };
    assert!(error.to_string().contains("may have moved to another log"), "{error}");
    let refused = Some(refusal_of("one", COPY));
    both.rig(0).op(Op::Stay { id: SOURCE, refused }).expect("it stays");
    assert_eq!(both.rig(0).catalog()[0].last_seq, 3, "nothing of it was taken");
}

/// A mover that has heard its state is gone: nobody says whether the copy has taken over.
#[test]
fn what_was_about_to_leave_is_refused_when_that_takes_too_long() {
    let mut both = Both::about_to_switch();
    assert!(!both.takes(0, SOURCE, 9), "it waits");
    both.rig(0).op(Op::Hold { id: SOURCE, refuses: true }).expect("held");
    assert!(both.rig(0).take_answers()[&9].contains("10008"));
    let refused = Some(refusal_of("one", COPY));
    both.rig(0).op(Op::Stay { id: SOURCE, refused }).expect("it stays");
    assert!(both.takes(0, SOURCE, 10), "it goes on with its own configuration");
    assert_eq!(both.rig(0).catalog()[0].config, (*config()).into());
}
