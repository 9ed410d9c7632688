use super::*;
use std::io::Read as _;
use std::net::TcpListener;
use std::sync::mpsc::channel;

struct Lock(std::sync::mpsc::Sender<()>);

impl Tenure for Lock {}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = listener.local_addr().expect("bound");
    let one = TcpStream::connect(address).expect("connects");
    (one, listener.accept().expect("accepts").0)
}

#[test]
fn the_end_wakes_who_waits_and_who_reads_and_gives_the_directory_free() {
    let (unlocked, freed) = channel();
    let life = Life::with_lock(Box::new(Lock(unlocked)));
    let waiting = life.clone();
    let (woken, wakes) = channel();
    let (begun, begins) = channel();
    life.spawn("waits", move || {
        begun.send(()).expect("heard");
        woken.send(waiting.pause(Duration::from_secs(3600))).expect("heard");
    })
    .expect("starts");
    begins.recv().expect("it waits");
    let (one, _other) = pair();
    let stream = life.track(one).expect("lives");
    life.spawn("reads", move || drop((&*stream).read(&mut [0]))).expect("starts");
    let (told, hears) = channel();
    life.at_end(move || told.send(()).expect("heard"));
    assert!(freed.try_recv().is_err() && hears.try_recv().is_err());
    assert_eq!(life.end(), Ok(()));
    assert_eq!(wakes.try_recv(), Ok(true));
    assert!(freed.try_recv().is_ok() && hears.try_recv().is_ok());
    assert!(life.spawn("late", || {}).is_err(), "nothing begins any more");
    assert!(life.track(pair().0).is_err());
    let (told, hears) = channel();
    life.at_end(move || told.send(()).expect("heard"));
    assert!(hears.try_recv().is_ok(), "what comes late is done at once");
    assert_eq!(life.end(), Ok(()));
}

#[test]
fn a_thread_that_hangs_is_named_and_keeps_the_directory() {
    let (unlocked, freed) = channel();
    let life = Life::with_lock(Box::new(Lock(unlocked)));
    let (lets_go, hangs) = channel::<()>();
    life.spawn("hangs", move || {
        let _ = hangs.recv();
    })
    .expect("starts");
    life.spawn("ends", || {}).expect("starts");
    let began = Instant::now();
    let left = life.end().expect_err("one hangs");
    assert_eq!(left.threads, ["hangs"]);
    assert!(began.elapsed() >= END_MAX);
    assert!(left.to_string().contains("1 threads") && left.to_string().contains("hangs"));
    assert!(freed.try_recv().is_err(), "somebody may still write");
    drop(lets_go);
    freed.recv_timeout(END_MAX).expect("it is free when the last thread has ended");
    assert_eq!(life.end(), Ok(()));
}

#[test]
fn a_panic_is_told_of_a_thread_that_is_needed_and_of_no_other() {
    let life = Life::default();
    let (told, hears) = channel();
    life.on_panic(move |name| told.send(name.to_owned()).expect("heard"));
    life.spawn_for_one("connection", || panic!("of a connection")).expect("starts");
    life.spawn("needed", || panic!("of the node")).expect("starts");
    assert_eq!(hears.recv().expect("told"), "needed");
    assert_eq!(life.end(), Ok(()));
    assert!(hears.try_recv().is_err());
}

#[test]
fn who_connects_where_nobody_answers_gives_up_at_the_end() {
    // A listener with no room takes no connection, and refuses none.
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = listener.local_addr().expect("bound");
    // SAFETY: a listening socket's backlog is changed.
    assert_eq!(unsafe { libc::listen(std::os::fd::AsRawFd::as_raw_fd(&listener), 0) }, 0);
    let life = Life::default();
    let mut held = vec![];
    let soon = || Instant::now() + Duration::from_millis(100);
    while let Ok(stream) = life.dial(address, soon()) {
        held.push(stream);
        assert!(held.len() < 16, "it takes all of them");
    }
    let dialling = life.clone();
    let began = Instant::now();
    let far = began + Duration::from_secs(3600);
    let (begun, begins) = channel();
    let (told, hears) = channel();
    life.spawn("dials", move || {
        begun.send(()).expect("heard");
        told.send(dialling.dial(address, far).is_err()).expect("heard");
    })
    .expect("starts");
    begins.recv().expect("it dials");
    assert_eq!(life.end(), Ok(()));
    assert_eq!(hears.try_recv(), Ok(true));
    assert!(began.elapsed() < END_MAX);
}
