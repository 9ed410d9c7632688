//! When packets go, and by whose hand.

use super::*;
use crate::framed::read_answer;
use std::net::{TcpListener, TcpStream};
use std::thread;

fn connection() -> Arc<Connection> {
    Connection::to(SocketAddr::from(([127, 0, 0, 1], 1)))
}

/// Connects it; gives its other end.
fn connected(connection: &Connection) -> Channel {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
    let deadline = Instant::now() + TIMEOUT;
    let other = Channel::inward(listener.accept().expect("accepts").0, None, deadline);
    let mut channel = Channel::outward(stream, None, deadline).expect("without a key");
    channel.begun(TIMEOUT, TIMEOUT).expect("set");
    *connection.channel.lock() = Some(channel);
    *connection.queue.lock() = Queue { connected: true, ..Queue::default() };
    let mut other = other.expect("without a key");
    other.begun(TIMEOUT, TIMEOUT).expect("set");
    other
}

fn read(from: &mut Channel) -> Vec<u8> {
    read_answer(from, 1 << 20).expect("a packet")
}

#[test]
fn what_a_step_says_is_written_together_without_the_thread_of_the_connection() {
    let connection = connection();
    let mut other = connected(&connection);
    (1..=3).for_each(|packet| connection.push(vec![packet]));
    assert_eq!(connection.queue.lock().packets.len(), 3, "the step goes on");
    connection.write_gathered();
    assert_eq!(connection.queue.lock().bytes, 0, "all is written");
    assert_eq!([(); 3].map(|()| read(&mut other)), [[1], [2], [3]]);
    let held = connection.channel.lock();
    connection.push(vec![4]);
    connection.write_gathered();
    drop(held);
    assert_eq!(connection.queue.lock().packets.len(), 1, "its thread is writing");
}

#[test]
fn what_the_system_does_not_take_is_written_by_the_thread_of_the_connection_and_in_order() {
    let connection = connection();
    let mut other = connected(&connection);
    let packet = |number: u32| [&number.to_le_bytes()[..], &[0; 9_996]].concat();
    let send = |number| {
        connection.push(packet(number));
        connection.write_gathered();
    };
    let mut sent = 0;
    while !connection.queue.lock().owes {
        sent += 1;
        send(sent);
    }
    (1..=3).for_each(|more| send(sent + more));
    let writing = Arc::clone(&connection);
    let writer = thread::spawn(move || writing.write_all());
    assert!((1..=sent + 3).all(|number| read(&mut other) == packet(number)), "all, in their order");
    connection.end();
    writer.join().expect("no panic").expect_err("it has ended");
}

#[test]
fn a_connection_that_was_ended_is_noticed_although_nothing_is_said_on_it() {
    let connection = connection();
    let other = connected(&connection);
    connection.look();
    assert!(!connection.queue.lock().is_doubted);
    drop(other);
    while !connection.queue.lock().is_doubted {
        connection.look();
    }
    connection.push(vec![1]);
    connection.write_gathered();
    assert_eq!(connection.queue.lock().packets.len(), 1, "nobody would read it");
    connection.write_all().expect_err("another connection begins");
}
