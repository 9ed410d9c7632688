//! One call of the API that begins, asks for, finishes or gives up an import.

use super::intake::Effect;
use super::table::{Imports, Key, Phase, Target};
use crate::op::{Op, OpOutcome, OpResult, PurgeRequest};
use crate::rules::{IMPORT_ASK_UNKNOWN, IMPORT_CANCEL_DURABLE, IMPORT_ONCE, IMPORT_SHOWN_WHOLE};
use crate::stream::{importing_config, importing_name};
use nuthatch_log::StreamId;
use nuthatch_protocol::js::{ConsumerSnapshot, StreamConfig, StreamInfo};
use nuthatch_protocol::jserror::JsError;

/// What is asked for.
#[derive(Clone, PartialEq, Debug)]
pub enum Request {
    /// Begin the import, or go on with it: batches follow.
    Begin(Box<StreamConfig>),
    /// Tell how far it is.
    Look,
    /// Both sides are the same up to here; tell how far it is.
    Verified(u64),
    /// Delete what the origin does not have (any more).
    Reconcile {
        /// Nothing below this is there.
        first_seq: u64,
        /// Neither are these.
        deleted: Vec<u64>,
    },
    /// Put the stream in service.
    Finish {
        /// What it is to be.
        config: Box<StreamConfig>,
        /// Its consumers.
        consumers: Vec<ConsumerSnapshot>,
        /// The last sequence that it is to have, as the importer has counted; 0: it does not say.
        last: u64,
    },
    /// Delete what was brought.
    Cancel,
}

/// What the driver is to do next; [`Happened`] names the answer to each.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Take the right to change the account's streams, for the one of this name, until the call ends:
    /// [`Happened::Locked`] or [`Happened::Failed`].
    Lock,
    /// Check the stream against what there is now, and these consumers of it: [`Happened::Checked`] or
    /// [`Happened::Failed`].
    Check(Box<StreamConfig>, Vec<ConsumerSnapshot>),
    /// Begin a stream with a fresh identity, which is to become `claim`: [`Happened::Created`].
    Create {
        /// In this log.
        log: u64,
        /// As this.
        config: Box<StreamConfig>,
        /// What is claimed meanwhile.
        claim: Box<StreamConfig>,
    },
    /// Run an operation: [`Happened::Outcome`].
    Run {
        /// In this log.
        log: u64,
        /// The operation.
        op: Op,
    },
    /// Let clients see the stream: [`Happened::Shown`].
    Show(Target, Box<StreamInfo>),
    /// It is over.
    End(Result<Ended, JsError>),
}

/// How a call has ended.
#[derive(Clone, PartialEq, Debug)]
pub enum Ended {
    /// The import is under way: its stream, and up to where both sides were compared.
    UnderWay(Box<StreamInfo>, u64),
    /// The stream is in service.
    Finished(Box<StreamInfo>),
    /// What was brought is deleted.
    Cancelled,
}

/// What became of an [`Action`].
#[derive(Clone, PartialEq, Debug)]
pub enum Happened {
    /// It begins.
    Began,
    /// The right is there.
    Locked,
    /// The configuration and the consumers as they are to be, and the log that they belong in.
    Checked(Box<StreamConfig>, Vec<ConsumerSnapshot>, u64),
    /// The outcome of the operation that begins a stream.
    Created(StreamId, OpResult),
    /// The outcome of another operation; an error if it was not taken or not answered.
    Outcome(OpResult),
    /// Clients see the stream.
    Shown,
    /// It was refused.
    Failed(JsError),
}

/// What was asked for last.
#[derive(Debug)]
enum State {
    Idle,
    Lock,
    Check,
    Create,
    /// How far the import is, for the importer.
    Look,
    /// What the origin does not have is being deleted; the next operation, if there is one.
    Reconcile(Option<Op>),
    Finish,
    Cancel,
    /// What became of the stream, which the log has not said: at the beginning of a call, or because
    /// of this error in its course.
    Recheck(Option<JsError>),
    Show(Box<StreamInfo>),
    /// Shown too early: what remains is to make it whole.
    ShowEarly(Target, Op),
    Over,
}

/// One call. It is told of each step together with the imports that are under way, and what follows
/// for their batches is in the effects that [`Call::step`] returns.
#[derive(Debug)]
pub struct Call {
    key: Key,
    request: Request,
    state: State,
    /// The stream that the operation under way is about.
    target: Option<Target>,
    effects: Vec<Effect>,
}

impl Call {
    /// A call about the import of this stream. Call [`Call::step`] with [`Happened::Began`].
    #[must_use]
    pub fn new(key: Key, request: Request) -> Self {
        Self { key, request, state: State::Idle, target: None, effects: Vec::new() }
    }

    /// What is to be done next, and what follows for batches.
    ///
    /// # Panics
    /// What happened is not what was asked for last.
    pub fn step(&mut self, happened: Happened, imports: &mut Imports) -> (Action, Vec<Effect>) {
        if self.is_cut_off(imports) {
            self.state = State::Over;
            return (Action::End(Err(JsError::STREAM_NOT_FOUND)), Vec::new());
        }
        let action = match std::mem::replace(&mut self.state, State::Over) {
            State::Idle => self.began(imports),
            State::Lock => self.locked(happened, imports),
            State::Check => self.checked(happened, imports),
            State::Create => self.created(happened, imports),
            State::Look => self.looked(happened, imports),
            State::Reconcile(next) => self.reconciled(next, happened, imports),
            State::Finish => self.finished(happened, imports),
            State::Cancel => self.cancelled(happened, imports),
            State::Recheck(why) => self.rechecked(why, happened, imports),
            State::Show(info) => self.shown(info, imports),
            State::ShowEarly(target, op) => self.run(State::Finish, target, op),
            State::Over => panic!("the call is over"),
        };
        (action, std::mem::take(&mut self.effects))
    }

    /// The driver does not go on with the call. A name that it took for a stream without an identity is
    /// free again; what else is in doubt the next call finds out.
    pub fn abandon(&mut self, imports: &mut Imports) {
        if matches!(self.state, State::Create) && imports.phase(&self.key) == Some(Phase::Reserved)
        {
            let _ = imports.remove(&self.key, &JsError::CLUSTER_NOT_AVAIL);
        }
        self.state = State::Over;
    }

    /// True if the log of the import was taken away in the course of the call.
    fn is_cut_off(&self, imports: &Imports) -> bool {
        match self.state {
            State::Create => imports.phase(&self.key) != Some(Phase::Reserved),
            State::Cancel => IMPORT_CANCEL_DURABLE.holds() && !self.is_there(imports),
            State::Idle | State::Lock | State::Check | State::Over => false,
            _ => !self.is_there(imports),
        }
    }

    fn is_there(&self, imports: &Imports) -> bool {
        self.target.is_some() && imports.target(&self.key) == self.target
    }

    fn began(&mut self, imports: &mut Imports) -> Action {
        match self.request {
            // These change no stream.
            Request::Look | Request::Verified(_) => self.go_on(imports),
            _ => {
                self.state = State::Lock;
                Action::Lock
            }
        }
    }

    fn locked(&mut self, happened: Happened, imports: &mut Imports) -> Action {
        match happened {
            Happened::Locked if imports.phase(&self.key) == Some(Phase::Doubtful) => {
                self.recheck(None, imports)
            }
            Happened::Locked => self.go_on(imports),
            Happened::Failed(why) => self.end(Err(why)),
            other => panic!("the right to change streams was asked for: {other:?}"),
        }
    }

    /// Does what is asked for, with an import that is under way or not.
    fn go_on(&mut self, imports: &mut Imports) -> Action {
        let target = imports.target(&self.key);
        let request = self.request.clone();
        match (request, target) {
            (Request::Begin(config), None) => self.check(config, Vec::new()),
            (Request::Begin(config), Some(_)) if !IMPORT_ONCE.holds() => {
                self.check(config, Vec::new())
            }
            (_, None) => self.end(Err(JsError::STREAM_NOT_FOUND)),
            (Request::Begin(_) | Request::Look, Some(target)) => self.look(target),
            (Request::Verified(up_to), Some(target)) => {
                imports.verify(&self.key, up_to);
                self.look(target)
            }
            (Request::Reconcile { first_seq, deleted }, Some(target)) => {
                match imports.check_confirmed(&self.key, 0) {
                    Ok(()) => self.reconcile(target, first_seq, deleted),
                    Err(why) => self.end(Err(why)),
                }
            }
            (Request::Finish { config, consumers, .. }, Some(_)) => self.check(config, consumers),
            (Request::Cancel, Some(target)) => self.cancel(target, imports),
        }
    }

    fn check(&mut self, config: Box<StreamConfig>, consumers: Vec<ConsumerSnapshot>) -> Action {
        self.state = State::Check;
        Action::Check(config, consumers)
    }

    fn checked(&mut self, happened: Happened, imports: &mut Imports) -> Action {
        let (config, consumers, log) = match happened {
            Happened::Checked(config, consumers, log) => (config, consumers, log),
            Happened::Failed(why) => return self.end(Err(why)),
            other => panic!("a check was asked for: {other:?}"),
        };
        if let Request::Finish { last, .. } = self.request {
            if let Err(why) = self.check_whole(log, last, imports) {
                return self.end(Err(why));
            }
            return self.finish(config, consumers, imports);
        }
        if let Err(why) = imports.reserve(&self.key, log) {
            return self.end(Err(why));
        }
        self.state = State::Create;
        Action::Create { log, config: Box::new(importing_config(&config)), claim: config }
    }

    fn created(&mut self, happened: Happened, imports: &mut Imports) -> Action {
        let Happened::Created(stream, outcome) = happened else {
            panic!("a stream was to be begun: {happened:?}")
        };
        imports.named(&self.key, stream);
        match outcome {
            Ok(_) => {
                imports.open(&self.key);
                let target = imports.target(&self.key).expect("it has a stream");
                self.look(target)
            }
            Err(why) if is_unknown(&why) => self.recheck(Some(why), imports),
            Err(why) => {
                self.remove(imports, &why);
                self.end(Err(why))
            }
        }
    }

    fn look(&mut self, target: Target) -> Action {
        self.run(State::Look, target, info_of(target))
    }

    fn looked(&mut self, happened: Happened, imports: &mut Imports) -> Action {
        let info = match stream(happened) {
            Ok(info) => info,
            Err(why) => return self.end(Err(why)),
        };
        if let Request::Begin(_) = self.request {
            self.effects.extend(imports.asked(&self.key, info.state.last_seq));
        }
        self.end(Ok(Ended::UnderWay(info, imports.verified(&self.key))))
    }

    fn reconcile(&mut self, target: Target, first_seq: u64, mut deleted: Vec<u64>) -> Action {
        let id = target.stream;
        deleted.sort_unstable();
        let request = PurgeRequest { seq: first_seq, ..PurgeRequest::default() };
        let purge = (first_seq > 1).then_some(Op::Purge { id, request });
        let rest = (!deleted.is_empty()).then_some(Op::RemoveRestored { id, seqs: deleted });
        let (first, next) = if purge.is_some() { (purge, rest) } else { (rest, None) };
        match first {
            Some(op) => self.run(State::Reconcile(next), target, op),
            None => self.look(target),
        }
    }

    fn reconciled(&mut self, next: Option<Op>, happened: Happened, imports: &Imports) -> Action {
        if let Err(why) = outcome(happened) {
            return self.end(Err(why));
        }
        let target = imports.target(&self.key).expect("its name is held");
        match next {
            Some(op) => self.run(State::Reconcile(None), target, op),
            None => self.look(target),
        }
    }

    /// Whether all of the import has come, and into the log where the stream belongs.
    fn check_whole(&self, log: u64, last: u64, imports: &mut Imports) -> Result<(), JsError> {
        let target = imports.target(&self.key).ok_or(JsError::STREAM_NOT_FOUND)?;
        if target.log != log {
            return Err(elsewhere());
        }
        imports.check_confirmed(&self.key, last)
    }

    /// Makes the stream what it is to be.
    fn finish(
        &mut self,
        config: Box<StreamConfig>,
        consumers: Vec<ConsumerSnapshot>,
        imports: &mut Imports,
    ) -> Action {
        let target = imports.target(&self.key).expect("it was looked for");
        self.effects.extend(imports.ends(&self.key));
        let info = StreamInfo { config: (*config).clone().into(), ..StreamInfo::default() };
        let op = Op::FinishRestore { id: target.stream, config, consumers };
        if IMPORT_SHOWN_WHOLE.holds() {
            return self.run(State::Finish, target, op);
        }
        (self.state, self.target) = (State::ShowEarly(target, op), Some(target));
        Action::Show(target, Box::new(info))
    }

    fn finished(&mut self, happened: Happened, imports: &mut Imports) -> Action {
        match stream(happened) {
            Ok(info) => self.show(info, imports),
            Err(why) => self.undone(why, imports),
        }
    }

    fn show(&mut self, info: Box<StreamInfo>, imports: &Imports) -> Action {
        let target = imports.target(&self.key).expect("its name is held");
        self.state = State::Show(info.clone());
        Action::Show(target, info)
    }

    fn shown(&mut self, info: Box<StreamInfo>, imports: &mut Imports) -> Action {
        self.remove(imports, &over());
        self.end(match self.request {
            Request::Finish { .. } => Ok(Ended::Finished(info)),
            Request::Begin(_) => Err(JsError::STREAM_NAME_EXIST),
            _ => Err(JsError::STREAM_NOT_FOUND),
        })
    }

    fn cancel(&mut self, target: Target, imports: &mut Imports) -> Action {
        self.effects.extend(imports.ends(&self.key));
        if !IMPORT_CANCEL_DURABLE.holds() {
            self.remove(imports, &over());
        }
        self.run(State::Cancel, target, Op::DeleteStream { id: target.stream })
    }

    fn cancelled(&mut self, happened: Happened, imports: &mut Imports) -> Action {
        match outcome(happened) {
            Err(why) if !is_gone(&why) && self.is_there(imports) => self.undone(why, imports),
            _ => {
                self.remove(imports, &over());
                self.end(Ok(Ended::Cancelled))
            }
        }
    }

    /// The log did not end the import, or has not said whether it has.
    fn undone(&mut self, why: JsError, imports: &mut Imports) -> Action {
        if is_unknown(&why) && IMPORT_ASK_UNKNOWN.holds() {
            return self.recheck(Some(why), imports);
        }
        self.goes_on(imports);
        self.end(Err(why))
    }

    /// The import was not ended. All batches before a finish were confirmed: those after it go on.
    fn goes_on(&mut self, imports: &mut Imports) {
        imports.open(&self.key);
        if let Request::Finish { .. } = self.request {
            self.effects.extend(imports.asked(&self.key, 0));
        }
    }

    /// Asks the log what became of the stream.
    fn recheck(&mut self, why: Option<JsError>, imports: &Imports) -> Action {
        let target = imports.target(&self.key).expect("its name is held");
        self.run(State::Recheck(why), target, info_of(target))
    }

    fn rechecked(
        &mut self,
        why: Option<JsError>,
        happened: Happened,
        imports: &mut Imports,
    ) -> Action {
        match stream(happened) {
            Ok(info) if importing_name(&info.config.name).is_none() => self.show(info, imports),
            Ok(_) => {
                self.goes_on(imports);
                match why {
                    Some(why) if !matches!(self.request, Request::Begin(_)) => self.end(Err(why)),
                    _ => self.go_on(imports),
                }
            }
            Err(gone) if is_gone(&gone) => {
                self.remove(imports, &over());
                match (why, &self.request) {
                    (_, Request::Cancel) => self.end(Ok(Ended::Cancelled)),
                    (Some(why), _) => self.end(Err(why)),
                    (None, _) => self.go_on(imports),
                }
            }
            // Still in doubt: the next call asks again.
            Err(unknown) => self.end(Err(why.unwrap_or(unknown))),
        }
    }

    fn remove(&mut self, imports: &mut Imports, why: &JsError) {
        self.effects.extend(imports.remove(&self.key, why));
    }

    fn run(&mut self, state: State, target: Target, op: Op) -> Action {
        (self.state, self.target) = (state, Some(target));
        Action::Run { log: target.log, op }
    }

    fn end(&mut self, ended: Result<Ended, JsError>) -> Action {
        self.state = State::Over;
        Action::End(ended)
    }
}

fn info_of(target: Target) -> Op {
    let (subjects_filter, id) = (String::new(), target.stream);
    Op::StreamInfo { id, deleted_details: false, subjects_filter, offset: 0 }
}

fn outcome(happened: Happened) -> OpResult {
    match happened {
        Happened::Outcome(outcome) => outcome,
        other => panic!("an operation was asked for: {other:?}"),
    }
}

fn stream(happened: Happened) -> Result<Box<StreamInfo>, JsError> {
    match outcome(happened)? {
        OpOutcome::Stream { info, .. } => Ok(info),
        other => panic!("the outcome of another operation: {other:?}"),
    }
}

/// The log may have done it.
fn is_unknown(why: &JsError) -> bool {
    why.err_code == JsError::CLUSTER_NOT_AVAIL.err_code
}

fn is_gone(why: &JsError) -> bool {
    why.err_code == JsError::STREAM_NOT_FOUND.err_code
}

fn over() -> JsError {
    JsError::STREAM_RESTORE.with_err("this import is over")
}

fn elsewhere() -> JsError {
    let text = "the import was begun in another log: cancel it, or keep the placement";
    JsError::STREAM_INVALID_CONFIG.with_err(text)
}
