//! A step of a tier on a thread of its own, of which one at a time runs: the world's, or this one while
//! it has the baton. It gives it back whenever virtual time has to pass.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

thread_local! {
    /// The baton of the step that this thread is; the world's thread has none.
    static MINE: RefCell<Option<Arc<Baton>>> = const { RefCell::new(None) };
}

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// The step runs.
    Step,
    /// The world runs; the step goes on after so long.
    World(Duration),
    /// The world runs; the step has come to its end.
    Ended,
}

/// Passes the turn between the world and a step.
#[derive(Debug)]
pub struct Baton {
    turn: Mutex<Turn>,
    passed: Condvar,
}

impl Baton {
    fn lock(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().expect("nobody panics with it")
    }

    fn pass(&self, to: Turn) {
        *self.lock() = to;
        self.passed.notify_all();
    }

    fn await_step(&self) {
        let turn = self.passed.wait_while(self.lock(), |turn| *turn != Turn::Step);
        drop(turn.expect("nobody panics with it"));
    }

    /// Lets a step that rests go on at once, until it rests again for so long; none once it has ended. For the
    /// world when it waits for the step itself.
    pub fn nudge(&self) -> Option<Duration> {
        if !matches!(*self.lock(), Turn::World(_)) {
            return None;
        }
        self.pass(Turn::Step);
        match self.await_world() {
            Turn::World(time) => Some(time),
            Turn::Step | Turn::Ended => None,
        }
    }

    fn await_world(&self) -> Turn {
        let turn = self.passed.wait_while(self.lock(), |turn| *turn == Turn::Step);
        *turn.expect("nobody panics with it")
    }
}

/// Lets so much virtual time pass, if this thread is a step; false on the world's, which cannot wait.
pub fn rest(time: Duration) -> bool {
    let Some(baton) = MINE.with_borrow(Clone::clone) else { return false };
    baton.pass(Turn::World(time));
    baton.await_step();
    true
}

/// True on the thread of a step.
pub fn is_step() -> bool {
    MINE.with_borrow(Option::is_some)
}

/// What a step came to when it gave the baton back.
#[derive(Debug)]
pub enum Progress<T> {
    /// It goes on after so long.
    Rests(Duration),
    /// Its end.
    Ended(T),
}

/// A step under way.
#[derive(Debug)]
pub struct Stepping<T> {
    baton: Arc<Baton>,
    thread: Option<JoinHandle<std::thread::Result<T>>>,
}

impl<T> Drop for Stepping<T> {
    /// It runs to its end: whoever drops it has seen to it that nothing takes time any more.
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        loop {
            self.baton.pass(Turn::Step);
            if self.baton.await_world() == Turn::Ended {
                // What it came to is nobody's business any more.
                return drop(thread.join());
            }
        }
    }
}

impl<T: Send + 'static> Stepping<T> {
    /// A step that has not begun.
    pub fn new(step: impl FnOnce() -> T + Send + 'static) -> Self {
        let baton = Arc::new(Baton {
            turn: Mutex::new(Turn::World(Duration::ZERO)),
            passed: Condvar::new(),
        });
        let mine = Arc::clone(&baton);
        let thread = std::thread::spawn(move || {
            mine.await_step();
            MINE.set(Some(Arc::clone(&mine)));
            let result = catch_unwind(AssertUnwindSafe(step));
            mine.pass(Turn::Ended);
            result
        });
        Self { baton, thread: Some(thread) }
    }

    /// The baton that it waits for.
    pub fn baton(&self) -> &Arc<Baton> {
        &self.baton
    }

    /// Gives it the baton until it gives it back. Not called again after its end.
    pub fn go_on(&mut self) -> Progress<T> {
        // It may have come to its end while the world waited for it.
        if *self.baton.lock() != Turn::Ended {
            self.baton.pass(Turn::Step);
        }
        match self.baton.await_world() {
            Turn::World(time) => Progress::Rests(time),
            Turn::Step | Turn::Ended => {
                let thread = self.thread.take().expect("it has not ended before");
                let result = thread.join().expect("panics are caught");
                Progress::Ended(result.unwrap_or_else(|panic| resume_unwind(panic)))
            }
        }
    }
}
