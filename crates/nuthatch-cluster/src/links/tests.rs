//! Which connection a packet goes to, and when it goes.

use super::*;
use bytes::Bytes;
use nuthatch_quorum::message::{Envelope, Message};
use nuthatch_quorum::types::{Epoch, Incarnation};
use std::net::TcpListener;

#[test]
fn a_node_that_came_back_elsewhere_is_not_hidden_by_where_it_was() {
    let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let links = Links::new(&[at(6222), at(6223)], Lane::Log);
    let all = links.links.read().clone();
    // It was at the first address, and is at the second one now.
    let node = NodeId(2);
    all.iter().for_each(|link| link.node.store(node.0, Ordering::Release));
    assert!(links.address(node).is_some(), "where it was");
    all.iter().filter(|link| link.address == at(6223)).for_each(|link| link.begin(None));
    let envelope = Envelope {
        from: NodeId(1),
        sender: Incarnation(1),
        to: node,
        disk: None,
        message: Message::Receiving { epoch: Epoch(1) },
    };
    links.send(LogNumber::FIRST, Packet { envelope, payloads: vec![] });
    let waits = |link: &&Arc<Link>| link.queue.lock().packets.len() == 1;
    let found: Vec<SocketAddr> = all.iter().filter(waits).map(|link| link.address).collect();
    assert_eq!((found, links.address(node)), (vec![at(6223)], Some(at(6223))));
    assert_eq!(links.found(), [(node, at(6223))]);
    links.doubt(node);
    let is_doubted = |link: &&Arc<Link>| link.queue.lock().is_doubted;
    assert!(all.iter().filter(is_doubted).all(|link| link.address == at(6223)));
}

/// A connection of a link, with the cluster's key if there is one; gives its other end.
fn connected(link: &Link, key: Option<&ClusterKey>) -> Channel {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
    prepare(&stream).expect("set");
    let deadline = Instant::now() + TIMEOUT;
    let other = listener.accept().expect("accepts").0;
    let (channel, other) = std::thread::scope(|scope| {
        let other = scope.spawn(|| Channel::inward(other, key, deadline));
        (Channel::outward(stream, key, deadline), other.join().expect("no panic"))
    });
    let mut channel = channel.expect("the same key");
    channel.begun(TIMEOUT, TIMEOUT).expect("set");
    *link.channel.lock() = Some(channel);
    link.begin(None);
    let mut other = other.expect("the same key");
    other.begun(TIMEOUT, TIMEOUT).expect("set");
    other
}

fn small(epoch: u32) -> Packet {
    let envelope = Envelope {
        from: NodeId(1),
        sender: Incarnation(1),
        to: NodeId(2),
        disk: None,
        message: Message::Receiving { epoch: Epoch(epoch) },
    };
    Packet { envelope, payloads: vec![] }
}

fn read_epoch(from: &mut Channel) -> u32 {
    let mut header = [0; packet::HEADER_BYTES];
    from.read_exact(&mut header).expect("a header");
    let header = packet::Header::decode(&header).expect("a header");
    let mut message = vec![0; header.message];
    from.read_exact(&mut message).expect("a message");
    let packet = packet::decode(header, &message, Bytes::new()).expect("a packet");
    let Message::Receiving { epoch } = packet.envelope.message else { panic!("as sent") };
    epoch.0
}

#[test]
fn a_small_packet_is_written_at_once_and_one_with_others_before_it_is_not() {
    let link = Link::new(SocketAddr::from(([127, 0, 0, 1], 1)), Lane::Log);
    let mut other = connected(&link, None);
    link.push(LogNumber::FIRST, small(1));
    assert_eq!(link.queue.lock().packets.len(), 0, "no thread serves the connection");
    assert_eq!(read_epoch(&mut other), 1);
    let held = link.channel.lock();
    link.push(LogNumber::FIRST, small(2));
    drop(held);
    link.push(LogNumber::FIRST, small(3));
    let waits = |link: &Link| link.queue.lock().packets.len();
    assert_eq!(waits(&link), 2, "the third does not overtake the second");
}

#[test]
fn beats_of_all_logs_are_written_together_and_what_is_no_beat_is_written_at_once() {
    let links = Links::new(&[SocketAddr::from(([127, 0, 0, 1], 1))], Lane::Beats);
    let link = Arc::clone(&links.links.read()[0]);
    link.node.store(2, Ordering::Release);
    let mut other = connected(&link, None);
    let log_link = Link::new(SocketAddr::from(([127, 0, 0, 1], 1)), Lane::Log);
    let mut of_log = connected(&log_link, None);
    links.together(|| {
        (1..=3).for_each(|log| links.send(LogNumber(log), small(log.into())));
        assert_eq!(link.queue.lock().packets.len(), 3, "they wait");
        log_link.push(LogNumber(1), small(7));
        assert_eq!(read_epoch(&mut of_log), 7, "nobody would wake its thread later");
    });
    assert_eq!(link.queue.lock().bytes, 0, "all is written");
    assert_eq!([(); 3].map(|()| read_epoch(&mut other)), [1, 2, 3]);
    links.send(LogNumber(4), small(4));
    assert_eq!(read_epoch(&mut other), 4, "at once again");
}

#[test]
fn what_the_system_does_not_take_at_once_goes_later_and_in_order() {
    let key = ClusterKey::new(&[7; 32]).expect("long enough");
    for key in [None, Some(&key)] {
        let link = Link::new(SocketAddr::from(([127, 0, 0, 1], 1)), Lane::Log);
        let mut other = connected(&link, key);
        let mut sent = 0;
        while !link.queue.lock().owes {
            sent += 1;
            link.push(LogNumber::FIRST, small(sent));
        }
        (1..=3).for_each(|more| link.push(LogNumber::FIRST, small(sent + more)));
        let writing = Arc::clone(&link);
        let writer = std::thread::spawn(move || writing.write_all().map(|_| ()));
        assert!((1..=sent + 3).all(|epoch| read_epoch(&mut other) == epoch), "all, in their order");
        drop(other);
        link.end();
        let _ = writer.join().expect("it ends");
        assert_eq!(link.queue.lock().bytes, 0);
    }
}

#[test]
fn a_connection_that_has_ended_before_its_first_packet_loses_none() {
    let link = Link::new(SocketAddr::from(([127, 0, 0, 1], 1)), Lane::Log);
    drop(connected(&link, None));
    std::thread::sleep(2 * RETRY);
    link.push(LogNumber::FIRST, small(1));
    assert_eq!(link.queue.lock().packets.len(), 1, "it is not written where nobody reads it");
    let unsent = link.write_all().expect("that is no error");
    assert!(unsent.is_some(), "it goes with the next connection");
}

/// Its process was killed while it was looked at, and another node is at its address: nobody writes to the former one.
#[test]
fn a_connection_that_has_ended_unnoticed_is_looked_at() {
    let links = Links::new(&[SocketAddr::from(([127, 0, 0, 1], 1))], Lane::Log);
    let link = Arc::clone(&links.links.read()[0]);
    let other = connected(&link, None);
    std::thread::sleep(2 * RETRY);
    link.look_if_ended();
    assert!(!link.queue.lock().is_doubted, "it is there");
    drop(other);
    std::thread::sleep(2 * RETRY);
    link.look_if_ended();
    assert!(link.queue.lock().is_doubted);
}
