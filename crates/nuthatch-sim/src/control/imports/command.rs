//! A command that imports a stream, with a connection of its own.

use super::{
    BTreeMap, Ended, Happening, MILLI, Op, Purpose, Replica, Request, SECOND, Sent, TIMEOUT, Told,
    VecDeque, Violation, World, config,
};
use nuthatch_protocol::js::Time;
use nuthatch_streams::control::import::{Action, Happened, Importer};

/// Batches that wait for their answers.
const WINDOW: usize = 4;
/// Messages of one batch, at most.
const BATCH_MAX: u64 = 4;

/// What a command is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Goal {
    /// Bring what there is, again and again.
    Follow,
    /// Bring the rest and put the stream in service.
    Finish,
    /// The same, without waiting for answers to batches: the server must notice.
    Hasty,
    /// Give the import up.
    Cancel,
}

/// What a command does.
#[derive(Debug)]
pub(super) enum Doing {
    Begins,
    Brings {
        left: VecDeque<Sent>,
        unanswered: usize,
    },
    Notes,
    Reconciles,
    /// It waits for the end.
    Ends,
    /// It waits for more at the other server.
    Rests,
}

/// A command.
#[derive(Debug)]
pub(super) struct Command {
    goal: Goal,
    importer: Importer,
    pub(super) doing: Doing,
    /// On its way to the server.
    wire: VecDeque<Sent>,
    pub(super) inbox: VecDeque<Told>,
    /// How often it has heard something.
    pub(super) at: u64,
    /// It was killed, and what it has sent arrives all the same.
    is_dead: bool,
    /// The stream is being put in service.
    is_finishing: bool,
}

impl Command {
    /// The next thing that it has sent.
    pub(super) fn arrives(&mut self) -> Option<Sent> {
        self.wire.pop_front()
    }

    /// True if it puts the stream in service, and its server has not begun with that.
    pub(super) fn finishes(&self) -> bool {
        matches!(self.goal, Goal::Finish | Goal::Hasty) && !self.is_finishing
    }

    pub(super) fn finishing_is_on_its_way(&mut self) {
        self.is_finishing = true;
    }
}

/// Whether a command goes on.
#[derive(PartialEq, Eq)]
enum Verdict {
    Goes,
    Over,
}

impl World {
    pub(super) fn begin_command(&mut self) {
        let pause = self.schedule.rng.between(20 * MILLI, 800 * MILLI);
        self.schedule.after(pause, Happening::Begin);
        self.commands.retain(|_, one| !(one.is_dead && one.wire.is_empty()));
        let most = if self.is_faulty { 2 } else { 1 };
        let living = self.commands.values().filter(|one| !one.is_dead).count();
        if living >= most || self.log.has_failed || self.clears {
            return;
        }
        if let Some(id) = self.shown {
            if self.calls.is_empty() {
                (self.is_answered, self.clears) = (false, true);
                self.send(Purpose::Clear, Op::DeleteStream { id });
            }
            return;
        }
        let goals = [Goal::Finish, Goal::Finish, Goal::Hasty, Goal::Follow, Goal::Cancel];
        let goal = if self.is_faulty { *self.schedule.rng.pick(&goals) } else { Goal::Finish };
        let id = self.number();
        let mut importer = Importer::default();
        assert_eq!(importer.step(Happened::Began), Action::Begin);
        let (wire, inbox, doing) = (VecDeque::new(), VecDeque::new(), Doing::Begins);
        let mut command = Command {
            goal,
            importer,
            doing,
            wire,
            inbox,
            at: 0,
            is_dead: false,
            is_finishing: false,
        };
        let request = match goal {
            Goal::Cancel => {
                command.doing = Doing::Ends;
                Request::Cancel
            }
            _ => Request::Begin(Box::new(config())),
        };
        self.send_from(id, &mut command, Sent::Call(request));
        self.commands.insert(id, command);
        if self.is_faulty && self.schedule.rng.chance(300) {
            let delay = self.schedule.rng.between(MILLI, 2 * SECOND);
            self.schedule.after(delay, Happening::Kill { command: id });
        }
    }

    /// It ends; what it has sent arrives, or not.
    pub(super) fn kill(&mut self, id: u64) {
        if self.schedule.rng.chance(500) {
            self.commands.remove(&id);
        } else if let Some(command) = self.commands.get_mut(&id) {
            command.is_dead = true;
        }
    }

    fn send_from(&mut self, id: u64, command: &mut Command, sent: Sent) {
        command.wire.push_back(sent);
        let delay = self.schedule.rng.between(1, 2 * MILLI);
        self.schedule.after(delay, Happening::Arrive { command: id });
        let limit = Happening::Timeout { command: id, at: command.at };
        self.schedule.after(TIMEOUT, limit);
    }

    pub(super) fn time_out(&mut self, id: u64, at: u64) {
        if self.commands.get(&id).is_some_and(|one| one.at == at && !one.is_dead) {
            self.kill(id);
        }
    }

    /// A command takes what it was told.
    pub(super) fn go(&mut self, id: u64) -> Result<(), Violation> {
        let Some(mut command) = self.commands.remove(&id) else { return Ok(()) };
        while let Some(told) = command.inbox.pop_front() {
            if command.is_dead {
                continue;
            }
            command.at += 1;
            if self.hear(id, &mut command, told)? == Verdict::Over {
                return Ok(());
            }
        }
        self.commands.insert(id, command);
        Ok(())
    }

    fn hear(&mut self, id: u64, command: &mut Command, told: Told) -> Result<Verdict, Violation> {
        let happened = match (&mut command.doing, told) {
            (_, Told::Call(Err(_)) | Told::Batch(Err(_)))
            | (Doing::Ends, Told::Call(Ok(Ended::Finished(_) | Ended::Cancelled))) => {
                return Ok(Verdict::Over);
            }
            (Doing::Ends, _) => return Ok(Verdict::Goes),
            (Doing::Begins, Told::Call(Ok(Ended::UnderWay(info, verified)))) => {
                Happened::Told { stored: info.state.last_seq, verified }
            }
            (Doing::Brings { unanswered, .. }, Told::Batch(Ok(()))) => {
                *unanswered -= 1;
                return self.bring(id, command);
            }
            (Doing::Notes, Told::Call(Ok(_))) => Happened::Noted,
            (Doing::Reconciles, Told::Call(Ok(_))) => {
                command.doing = Doing::Ends;
                self.send_from(id, command, Sent::Call(finish(self.last)));
                return Ok(Verdict::Goes);
            }
            // One that is hasty does not wait for them.
            (Doing::Reconciles, Told::Batch(Ok(()))) => return Ok(Verdict::Goes),
            (Doing::Rests, Told::Again) => Happened::LookAgain,
            (doing, told) => panic!("{doing:?} was told {told:?}"),
        };
        let action = command.importer.step(happened);
        self.follow(id, command, action)
    }

    /// Does what the importer says.
    fn follow(
        &mut self,
        id: u64,
        command: &mut Command,
        mut action: Action,
    ) -> Result<Verdict, Violation> {
        loop {
            let happened = match action {
                Action::AskLast => Happened::Last(self.last),
                // What the machines promise does not rest on the comparison.
                Action::Compare { .. } => Happened::Compared,
                Action::Bring { first, last } => {
                    let stored = command.importer.stored();
                    if first <= stored {
                        let copy = "the import";
                        return Err(Violation::ReadAgain { copy, from: first, stored });
                    }
                    let left = self.cut(first, last);
                    command.doing = Doing::Brings { left, unanswered: 0 };
                    return self.bring(id, command);
                }
                Action::Note(up_to) => {
                    command.doing = Doing::Notes;
                    self.send_from(id, command, Sent::Call(Request::Verified(up_to)));
                    return Ok(Verdict::Goes);
                }
                Action::Done if command.goal == Goal::Follow => {
                    command.doing = Doing::Rests;
                    let pause = self.schedule.rng.between(MILLI, 200 * MILLI);
                    self.schedule.after(pause, Happening::Again { command: id });
                    return Ok(Verdict::Goes);
                }
                Action::Done => {
                    command.doing = Doing::Reconciles;
                    let request = self.reconcile();
                    self.send_from(id, command, Sent::Call(request));
                    return Ok(Verdict::Goes);
                }
                Action::Begin => panic!("an import begins once"),
            };
            action = command.importer.step(happened);
        }
    }

    /// What the other server does not have any more.
    fn reconcile(&self) -> Request {
        let deleted = (1..=self.last).filter(|seq| !self.origin.contains_key(seq)).collect();
        Request::Reconcile { first_seq: 0, deleted }
    }

    /// What is to be brought, in batches.
    fn cut(&mut self, first: u64, last: u64) -> VecDeque<Sent> {
        let (mut batches, mut after) = (VecDeque::new(), first - 1);
        while after < last {
            let gap_to = last.min(after + self.schedule.rng.between(1, BATCH_MAX));
            let copies = replicas(&self.origin, after + 1, gap_to);
            batches.push_back(Sent::Batch { copies, after, gap_to });
            after = gap_to;
        }
        batches
    }

    /// Sends batches, a few ahead of their answers.
    fn bring(&mut self, id: u64, command: &mut Command) -> Result<Verdict, Violation> {
        let is_hasty = command.goal == Goal::Hasty;
        loop {
            let Doing::Brings { left, unanswered } = &mut command.doing else {
                panic!("it brings messages: {:?}", command.doing)
            };
            if left.is_empty() && is_hasty {
                command.doing = Doing::Reconciles;
                let request = self.reconcile();
                self.send_from(id, command, Sent::Call(request));
                return Ok(Verdict::Goes);
            }
            if left.is_empty() && *unanswered == 0 {
                let action = command.importer.step(Happened::Brought);
                return self.follow(id, command, action);
            }
            if *unanswered >= WINDOW {
                return Ok(Verdict::Goes);
            }
            let Some(batch) = left.pop_front() else { return Ok(Verdict::Goes) };
            *unanswered += 1;
            self.send_from(id, command, batch);
        }
    }
}

fn finish(last: u64) -> Request {
    Request::Finish { config: Box::new(config()), consumers: Vec::new(), last }
}

fn replicas(origin: &BTreeMap<u64, u64>, first: u64, last: u64) -> Vec<Replica> {
    let replica = |(seq, token): (&u64, &u64)| {
        let (subject, body) = (b"s".to_vec(), token.to_le_bytes().to_vec());
        Replica { seq: *seq, time: Time(1), subject, headers: Vec::new(), body }
    };
    origin.range(first..=last).map(replica).collect()
}
