//! Every subset and order of three answers to a seal, over every state that three keepers can be in
//! after one or two epochs (M4).

use super::*;
use crate::entry::Body;
use crate::timing::BATCH_MAX;
use crate::types::{Incarnation, NodeId, WallTime};

const KEEPERS: usize = 3;

fn member(at: usize) -> Member {
    Member { node: NodeId(at as u8), incarnation: Incarnation(at as u128 + 1) }
}

fn extend(chain: &mut Chain, epoch: u32, entries: u64) {
    for n in 0..entries {
        let last = chain.last();
        let prev = chain.sum_at(last).expect("undamaged");
        let owner = Incarnation(u128::from(epoch));
        let body = if n == 0 { Body::Start { owner } } else { Body::Frame { payload: n, len: 10 } };
        chain.push(Entry::new(last.next(), Epoch(epoch), prev, last, WallTime(0), body));
    }
}

/// Logs of three keepers: prefixes `first` of epoch 1; where `second` is not 0, the first `start`
/// entries of that and a prefix of epoch 2.
fn logs(first: [u64; KEEPERS], start: u64, second: [u64; KEEPERS]) -> [Chain; KEEPERS] {
    std::array::from_fn(|at| {
        let mut chain = Chain::default();
        extend(&mut chain, 1, if second[at] == 0 { first[at] } else { start });
        extend(&mut chain, 2, second[at]);
        chain
    })
}

fn second_largest(mut values: [u64; KEEPERS]) -> u64 {
    values.sort_unstable();
    values[1]
}

/// Every state, with the last committed entry and its sum.
fn states() -> Vec<([Chain; KEEPERS], Lsn, Sum)> {
    let three =
        |base: u64, n: u64| -> [u64; KEEPERS] { [n % base, n / base % base, n / base / base] };
    let mut all = vec![];
    for first in (0..64).map(|n| three(4, n)) {
        let committed = second_largest(first);
        let longest = first.into_iter().max().expect("three");
        for start in committed..=longest {
            for second in (0..27).map(|n| three(3, n)) {
                let later = second_largest(second);
                let commit = if later > 0 { start + later } else { committed };
                // Whoever has it: the complete log of the epoch in which it was committed.
                let whole =
                    if later > 0 { logs([3; 3], start, [2; 3]) } else { logs([3; 3], 0, [0; 3]) };
                let sum = whole[0].sum_at(Lsn(commit)).expect("undamaged");
                all.push((logs(first, start, second), Lsn(commit), sum));
            }
        }
    }
    all
}

fn orders() -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = (0..KEEPERS).map(|at| vec![at]).collect();
    let mut begun = 0;
    while begun < all.len() {
        let order = all[begun].clone();
        let more = (0..KEEPERS).filter(|at| !order.contains(at));
        all.extend(more.map(|at| [order.clone(), vec![at]].concat()).collect::<Vec<_>>());
        begun += 1;
    }
    all
}

fn sealed(chain: &Chain) -> Message {
    Message::Sealed(Sealed {
        epoch: Epoch(9),
        wholeness: Wholeness::Whole,
        position: chain.position(),
        last_sum: chain.sum_at(chain.last()).expect("undamaged"),
        base: chain.base().lsn,
        starts: chain.starts().to_vec(),
    })
}

fn candidate() -> Candidate {
    let row = LogRow {
        epoch: Epoch(9),
        owner: Some(member(0)),
        phase: Phase::Recovering,
        set: (0..KEEPERS).map(member).collect(),
        start: Lsn(0),
        cuts: vec![],
        origin: Epoch(0),
    };
    let target = row.set.clone();
    Candidate::new(member(0), row, Revision(7), target, Time(0))
}

#[test]
fn whatever_is_committed_is_in_the_donor_for_every_subset_and_order_of_answers() {
    let orders = orders();
    assert_eq!(orders.len(), 3 + 6 + 6);
    let mut decided = 0;
    for (logs, commit, sum) in states() {
        for order in &orders {
            let mut candidate = candidate();
            let mut out = Out::new(NodeId(0), Incarnation(1));
            for (nth, at) in order.iter().enumerate() {
                candidate.answered(member(*at), &sealed(&logs[*at]), &logs[0], Time(1), &mut out);
                let enough = nth + 1 >= 2 && order[..=nth].contains(&0);
                assert_eq!(!matches!(candidate.stage, Stage::Sealing), enough, "{order:?}");
            }
            let (Stage::Gathering { goal, .. } | Stage::Bringing { goal, .. }) = candidate.stage
            else {
                continue;
            };
            decided += 1;
            let donor = logs.iter().find(|log| log.sum_at(goal.end) == Some(goal.sum));
            let donor = donor.expect("the goal is the end of a log");
            assert_eq!(donor.sum_at(commit), Some(sum), "{order:?} of {logs:?}");
        }
    }
    assert!(decided > 10_000, "{decided} decisions");
}

fn answer(chain: &Chain, wholeness: Wholeness) -> Message {
    let Message::Sealed(sealed) = sealed(chain) else { unreachable!("as made") };
    Message::Sealed(Sealed { wholeness, ..sealed })
}

/// What the donor was chosen without stays recorded, whoever answers afterwards (R2).
#[test]
fn a_late_answer_does_not_take_back_that_the_takeover_went_on_without_it() {
    let logs = logs([4, 3, 3], 0, [0; 3]);
    let mut candidate = candidate();
    let mut out = Out::new(NodeId(0), Incarnation(1));
    let cut = answer(&logs[0], Wholeness::Cut);
    candidate.answered(member(0), &cut, &logs[0], Time(1), &mut out);
    candidate.answered(member(1), &sealed(&logs[1]), &logs[0], Time(2), &mut out);
    assert!(matches!(candidate.stage, Stage::Sealing), "the third is waited for");
    let late = Time(RECOVERY_GRACE + 1);
    candidate.tick(&logs[0], late, &mut out);
    assert!(is_open(&candidate.stage) && !matches!(candidate.stage, Stage::Sealing));
    candidate.answered(member(2), &sealed(&logs[2]), &logs[0], late, &mut out);
    let row = candidate.serving_row(vec![], Lsn(4));
    let disks: Vec<Incarnation> = row.cuts.iter().map(|cut| cut.disk).collect();
    assert_eq!(disks, [member(0).incarnation]);
}

/// As long as nothing is decided, more is chosen instead of less.
#[test]
fn a_late_answer_that_has_more_is_chosen_instead() {
    let logs = logs([2, 2, 4], 0, [0; 3]);
    let mut candidate = candidate();
    let mut out = Out::new(NodeId(0), Incarnation(1));
    for at in [0, 1, 2] {
        candidate.answered(member(at), &sealed(&logs[at]), &logs[0], Time(1), &mut out);
    }
    let Stage::Gathering { goal, .. } = candidate.stage else { panic!("{:?}", candidate.stage) };
    assert_eq!(goal.end, Lsn(4));
}

/// A candidate that lacks more than a window asks for one window after the other.
#[test]
fn what_is_fetched_comes_window_by_window() {
    let mut chain = Chain::default();
    extend(&mut chain, 1, 100);
    let first = chain.window(Lsn(1), chain.last());
    assert_eq!(first.len(), BATCH_MAX);
    let fetched = Fetched::behind(Lsn(1)).and(Lsn(0), Lsn(1), &first, chain.last());
    assert_eq!(fetched.next, Some(Lsn(BATCH_MAX as u64 + 1)));
    let second = chain.window(fetched.next.expect("more"), chain.last());
    let again = fetched.clone().and(Lsn(0), Lsn(1), &first, chain.last());
    assert_eq!(again.entries.len(), BATCH_MAX, "a repeated answer counts once");
    let all = fetched.and(Lsn(0), Lsn(BATCH_MAX as u64 + 1), &second, chain.last());
    assert_eq!((all.entries.len(), all.next), (100, None));
    assert_eq!(all.get(Lsn(77)), chain.get(Lsn(77)));
}

fn sent(out: &Out) -> Vec<Message> {
    let sent = out.effects.iter().filter_map(|effect| match effect {
        Effect::Send(envelope) => Some(envelope.message.clone()),
        _ => None,
    });
    sent.collect()
}

/// With the set that it was claimed with an epoch starts before the row says that it serves. Another set is one only
/// by the row.
#[test]
fn an_epoch_with_another_set_starts_after_the_row_says_so() {
    let logs = logs([3; 3], 0, [0; 3]);
    let starts = |message: &Message| matches!(message, Message::Start { .. });
    for changed in [false, true] {
        let mut candidate = candidate();
        if changed {
            candidate.target[2] = member(3);
        }
        let mut out = Out::new(NodeId(0), Incarnation(1));
        for at in [0, 1] {
            candidate.answered(member(at), &sealed(&logs[at]), &logs[0], Time(1), &mut out);
        }
        let brought = Message::Brought { epoch: Epoch(9), equal_to: Lsn(3) };
        let mut next = Next::Wait;
        for at in [0, 1] {
            next = candidate.answered(member(at), &brought, &logs[0], Time(2), &mut out);
        }
        assert!(matches!(next, Next::Propose(_)), "{next:?}");
        assert_eq!(sent(&out).iter().any(starts), !changed);
        candidate.committed(&logs[0], &mut out);
        assert!(sent(&out).iter().any(starts));
    }
}

/// The owner still serves: nothing is asked for that would end it, before it has ended or takes too long.
#[test]
fn a_candidate_that_was_told_to_make_ready_waits_until_the_owner_has_ended() {
    let log = Chain::default();
    let seals = |out: &Out| sent(out).iter().any(|message| matches!(message, Message::Seal { .. }));
    for told in [false, true] {
        let mut candidate = candidate();
        let mut out = Out::new(NodeId(0), Incarnation(1));
        candidate.hold(Time(10));
        candidate.tick(&log, Time(20), &mut out);
        candidate.tick(&log, Time(PREPARED), &mut out);
        assert!(!seals(&out));
        if told {
            assert!(!candidate.succeed(Epoch(9), Time(PREPARED)), "that is its own epoch");
            assert!(candidate.succeed(Epoch(8), Time(PREPARED)));
            candidate.tick(&log, Time(PREPARED), &mut out);
        } else {
            candidate.tick(&log, Time(10 + PREPARED), &mut out);
        }
        assert!(seals(&out));
    }
}
