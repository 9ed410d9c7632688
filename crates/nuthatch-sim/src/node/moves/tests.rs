//! Moves step by step.

use super::*;
use crate::node::host::{Outgoing, Style};
use crate::node::server::{Parts, Server};
use crate::node::streams::body;
use nuthatch_log::env::{Fault, MemDisk};
use nuthatch_streams::OpOutcome;
use nuthatch_streams::migration::refusal_of;
use nuthatch_streams::op::{GetMessage, RangeRequest};

const STYLE: Style = Style { is_cold: false, by_hand: false, reserve_bytes: 0 };

/// Publishes a message; true if it was acknowledged.
fn publish(server: &mut Server, token: u64) -> bool {
    let message = Outgoing { number: 100 + token, token, has_id: false, body: body(token) };
    assert!(server.publish(Kind::Plain, &[message]), "there is room");
    server.settle();
    let is_ack =
        |output: &Output| matches!(output, Output::Answer { text, .. } if text.contains("seq"));
    server.outside.take().iter().any(is_ack)
}

fn ask(server: &mut Server, log: usize, op: Op) -> OpOutcome {
    server.hosts[log].ask(u64::MAX - 1, op).expect("an outcome").expect("it is done")
}

fn arrive(from: LogStream, to: LogStream) -> Op {
    let (account, config, created) = (AccountId::GLOBAL, Kind::Plain.config(), Time(1));
    Op::Arrive { id: to.stream, account, config, from: location(from), created }
}

/// Moves a stream up to the state with which the new log is to take over.
fn leave(server: &mut Server, from: LogStream, to: LogStream) -> Vec<u8> {
    ask(server, to.log, arrive(from, to));
    let request = RangeRequest { from: 1, ..RangeRequest::default() };
    let OpOutcome::Range(range) = ask(server, from.log, Op::ReadRange { id: from.stream, request })
    else {
        panic!("no range");
    };
    let (copies, gap_to) = (range.messages, range.next - 1);
    ask(server, to.log, Op::Mirror { id: to.stream, copies, gap_to });
    let (id, log, config) = (from.stream, LOGS[from.log].to_owned(), Kind::Plain.config());
    match ask(server, from.log, Op::Leave { id, log, to: location(to), config }) {
        OpOutcome::Left { state, .. } => state,
        other => panic!("it does not leave: {other:?}"),
    }
}

/// The new log fails while it takes over, and its frame is durable nevertheless. Somebody asks for the move
/// again: the new copy is refused, and given up.
#[test]
fn a_stream_whose_move_is_undecided_takes_nothing_until_a_restart() {
    let mut parts = Parts::new(1, None);
    let mut server = Server::start(&parts, STYLE, 1).expect("starts");
    server.create(Kind::Plain, 1);
    server.settle();
    assert!(publish(&mut server, 1));
    let from = server.homes[0].expect("a stream");
    let to = LogStream { log: 1, stream: server.fresh_id() };
    let state = leave(&mut server, from, to);
    parts.disks[1].inject(Fault::PowerCut(parts.disks[1].operations() + 1));
    let settled = server.hosts[1].ask(2, Op::Settle { id: to.stream, state });
    assert!(matches!(settled, Some(Err(_))), "undecided: {settled:?}");
    let again = LogStream { log: 1, stream: server.fresh_id() };
    assert!(matches!(server.hosts[1].ask(3, arrive(from, again)), Some(Err(_))), "refused");
    let refused = Some(refusal_of(LOGS[0], again.stream));
    let stays = server.hosts[0].ask(4, Op::Stay { id: from.stream, refused });
    assert!(matches!(stays, Some(Err(_))), "it leaves for the first copy: {stays:?}");
    let is_acked = publish(&mut server, 2);
    drop(server);
    parts.disks = parts.disks.each_ref().map(MemDisk::survive);
    let mut server = Server::start(&parts, STYLE, 2).expect("starts");
    let request = GetMessage { seq: 2, ..GetMessage::default() };
    let found = server.ask(Kind::Plain, |id| Op::GetMessage { id, request });
    assert!(
        !is_acked || matches!(found, Some(Ok(_))),
        "an acknowledged message is lost: {found:?}"
    );
}
