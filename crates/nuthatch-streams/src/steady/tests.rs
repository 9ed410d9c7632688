use super::*;
use std::sync::Arc;

const START: i64 = 1_700_000_000_000_000_000;
const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3600 * SECOND;

/// A machine whose wall clock can be set.
#[derive(Clone)]
struct Machine(Arc<Mutex<(i64, i64)>>);

impl TimeSource for Machine {
    fn wall_nanos(&self) -> i64 {
        self.0.lock().expect("lock").0
    }
    fn monotonic(&self) -> Duration {
        nanos_to_duration(self.0.lock().expect("lock").1)
    }
}

struct Rig {
    machine: Machine,
    clock: SteadyClock<Machine>,
    events: Arc<Mutex<Vec<StepEvent>>>,
}

impl Rig {
    fn new() -> Self {
        let machine = Machine(Arc::new(Mutex::new((START, 0))));
        let events = Arc::new(Mutex::new(Vec::new()));
        let told = events.clone();
        let tell = Box::new(move |event| told.lock().expect("lock").push(event));
        Self { clock: SteadyClock::new(machine.clone(), tell), machine, events }
    }

    /// Time passes on both clocks, looked at every second; returns the time in seconds since the start.
    fn pass(&self, seconds: i64) -> i64 {
        for _ in 0..seconds {
            let mut clocks = self.machine.0.lock().expect("lock");
            (clocks.0, clocks.1) = (clocks.0 + SECOND, clocks.1 + SECOND);
            drop(clocks);
            self.clock.now();
        }
        (self.clock.now().0 - START) / SECOND
    }

    fn step(&self, by: i64) {
        self.machine.0.lock().expect("lock").0 += by;
    }

    fn events(&self) -> Vec<StepEvent> {
        std::mem::take(&mut *self.events.lock().expect("lock"))
    }
}

#[test]
fn an_hour_ahead_for_two_seconds_changes_nothing() {
    let rig = Rig::new();
    assert_eq!(rig.pass(100), 100);
    rig.step(HOUR);
    assert_eq!(rig.pass(2), 102);
    let ahead = Duration::from_hours(1);
    assert_eq!(
        (rig.events(), rig.clock.doubted()),
        (vec![StepEvent::Doubted { ahead }], Some(ahead))
    );
    rig.step(-HOUR);
    assert_eq!(rig.pass(1000), 1102);
    assert_eq!((rig.events(), rig.clock.doubted()), (vec![StepEvent::TakenBack], None));
}

#[test]
fn a_step_that_lasts_is_followed() {
    let rig = Rig::new();
    rig.pass(10);
    rig.step(HOUR);
    let lasts = STEP_LASTS.as_secs() as i64;
    assert_eq!(rig.pass(lasts), 10 + lasts, "not before it has lasted");
    assert_eq!(rig.pass(2), 12 + lasts + 3600);
    let events = rig.events();
    assert!(
        matches!(events[..], [StepEvent::Doubted { .. }, StepEvent::Followed { .. }]),
        "{events:?}"
    );
    assert_eq!(rig.clock.doubted(), None);
}

#[test]
fn an_operator_can_say_that_the_step_is_right() {
    let rig = Rig::new();
    assert_eq!(rig.clock.trust_wall(), None, "nothing is doubted");
    rig.step(HOUR);
    assert_eq!(rig.pass(2), 2);
    assert_eq!(rig.clock.trust_wall(), Some(Duration::from_hours(1)));
    assert_eq!(rig.pass(1), 3603);
}

#[test]
fn another_step_has_to_last_as_well() {
    let rig = Rig::new();
    rig.step(HOUR);
    rig.pass(500);
    rig.step(HOUR);
    assert_eq!(rig.pass(300), 800);
    assert_eq!(rig.pass(400), 1200 + 7200);
}

#[test]
fn small_steps_are_followed_and_time_never_goes_backwards() {
    let rig = Rig::new();
    rig.step(5 * SECOND);
    assert_eq!(rig.pass(1), 6);
    rig.step(-HOUR);
    let mut last = rig.clock.now();
    for _ in 0..1000 {
        rig.pass(1);
        assert!(rig.clock.now() > last);
        last = rig.clock.now();
    }
    assert!((875..=890).contains(&((last.0 - START) / SECOND)), "slower, not still");
    assert_eq!(rig.events(), []);
}

/// A rig whose clock goes by what others say; they are asked through the flag.
fn judged(agreed: bool, last: i64) -> (Rig, Arc<std::sync::atomic::AtomicBool>) {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (rig, others) = (Rig::new(), Arc::new(AtomicBool::new(agreed)));
    let asked = others.clone();
    let judge = Box::new(move || asked.load(Ordering::Relaxed));
    rig.clock.judged_by(judge, Timestamp(START + last));
    (rig, others)
}

#[test]
fn a_clock_that_nobody_agrees_with_is_not_believed_at_the_start() {
    let (rig, others) = judged(false, -2 * HOUR);
    assert_eq!(rig.pass(100), 100 - 7200, "from the last stamp on");
    assert_eq!(rig.events(), [StepEvent::NotAgreed]);
    others.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(rig.pass(1), 101 - 7200, "a step is looked at twice");
    assert_eq!(rig.pass(1), 102);
    assert_eq!(rig.events(), [StepEvent::Agreed]);
}

#[test]
fn a_clock_that_is_set_right_before_it_is_judged_begins_with_what_it_shows_then() {
    let (rig, events) = (Rig::new(), Arc::new(Mutex::new(Vec::new())));
    rig.step(2 * HOUR);
    let told = events.clone();
    let tell = Box::new(move |event| told.lock().expect("lock").push(event));
    let clock = SteadyClock::new(rig.machine.clone(), tell);
    // Others are waited for, and meanwhile somebody sets it right.
    rig.pass(1);
    rig.step(-2 * HOUR);
    clock.judged_by(Box::new(|| true), Timestamp(START));
    assert_eq!(clock.now().0, START + SECOND, "not two hours later");
    assert_eq!(*events.lock().expect("lock"), []);
}

#[test]
fn a_clock_that_is_set_while_it_is_judged_is_not_believed() {
    let rig = Rig::new();
    let machine = rig.machine.clone();
    // What it showed before was right.
    let judge = Box::new(move || {
        machine.0.lock().expect("lock").0 += 2 * HOUR;
        true
    });
    rig.clock.judged_by(judge, Timestamp(START));
    assert_eq!(rig.clock.now().0, START, "from the last stamp on");
    assert_eq!(rig.events(), [StepEvent::NotAgreed]);
}

#[test]
fn a_step_is_followed_as_long_as_others_agree_and_only_then() {
    let (rig, others) = judged(true, -HOUR);
    assert_eq!(rig.pass(10), 10);
    // The step is seen before the others have disagreed.
    rig.step(HOUR);
    assert_eq!(rig.pass(1), 11);
    others.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(rig.pass(1000), 1011, "however long it lasts");
    rig.step(-HOUR);
    others.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(rig.pass(10), 1021);
    assert_eq!(rig.events(), [StepEvent::NotAgreed, StepEvent::Agreed]);
    // All machines were wrong: what they agree on is followed without a wait.
    rig.step(HOUR);
    assert_eq!(rig.pass(3), 1024 + 3600);
    assert_eq!(rig.events(), []);
    // A last stamp that is later than the wall clock does not put the clock forward.
    let (rig, _) = judged(false, HOUR);
    assert_eq!(rig.pass(5), 5);
}
