//! Requests of a bucket in virtual time.

use super::baton::{self, Baton};
use crate::node::time::MachineTime;
use futures_util::future::BoxFuture;
use nuthatch_object::Executor;
use nuthatch_streams::steady::TimeSource;
use std::cell::Cell;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

thread_local! {
    /// The first deadline that the request of this thread waits for.
    static NEXT: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Runs the requests of a process where they are made: a step of a tier lets virtual time pass
/// meanwhile. A log's own reads cannot: of them only the bucket's clock tells what they took.
#[derive(Clone, Debug)]
pub struct VirtualExecutor {
    time: MachineTime,
    /// Microseconds that requests on the world's thread took.
    ahead: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    /// The step under way.
    step: Arc<Mutex<Option<Arc<Baton>>>>,
}

impl VirtualExecutor {
    /// Requests in the time of a machine.
    pub fn new(time: MachineTime) -> Self {
        Self { time, ahead: Arc::default(), is_over: Arc::default(), step: Arc::default() }
    }

    /// The process has ended: nothing is answered any more.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// The step that may hold what requests on the world's thread wait for.
    pub fn set_step(&self, step: Option<Arc<Baton>>) {
        *self.step.lock().expect("nobody panics with it") = step;
    }

    /// A request on the world's thread waits for the step, as for its share of the requests under way: that
    /// goes on meanwhile.
    fn let_step_go_on(&self) {
        let step = self.step.lock().expect("nobody panics with it").clone();
        let step = step.filter(|_| !baton::is_step());
        let step = step.expect("a request waits for something that does not come");
        let time = step.nudge().unwrap_or_default();
        self.ahead.fetch_add(micros(time), Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn pass(&self, time: Duration) {
        if !self.is_over() && !baton::rest(time) {
            self.ahead.fetch_add(micros(time), Ordering::Relaxed);
        }
    }

    fn run(&self, mut request: BoxFuture<'static, ()>) {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        while !self.is_over() {
            NEXT.set(None);
            if request.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                return;
            }
            let was_woken = woken.0.swap(false, Ordering::Relaxed);
            match NEXT.take() {
                Some(deadline) => self.pass(deadline.saturating_sub(self.monotonic())),
                None if was_woken => {}
                None => self.let_step_go_on(),
            }
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1000)).expect("a short time")
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Ends at a moment of an executor's clock.
struct Pause {
    deadline: Duration,
    executor: VirtualExecutor,
}

impl Future for Pause {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.executor.monotonic() >= self.deadline {
            return Poll::Ready(());
        }
        let next = NEXT.get().map_or(self.deadline, |next| next.min(self.deadline));
        NEXT.set(Some(next));
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Executor for VirtualExecutor {
    fn monotonic(&self) -> Duration {
        self.time.monotonic() + Duration::from_micros(self.ahead.load(Ordering::Relaxed))
    }

    fn spawn(&self, request: BoxFuture<'static, ()>) {
        self.run(request);
    }

    fn spawn_blocking(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }

    fn sleep(&self, pause: Duration) -> BoxFuture<'static, ()> {
        let deadline = self.monotonic() + pause;
        Box::pin(Pause { deadline, executor: self.clone() })
    }

    fn pause(&self, pause: Duration) {
        self.pass(pause);
    }

    fn close(&self) {
        self.end();
    }
}
