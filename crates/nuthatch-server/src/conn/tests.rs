//! The end of connections.

use super::subscriptions::SHRINK_FROM;
use super::*;
use crate::logging::Logger;
use crate::server::Server;

fn with_subscriptions(server: &Arc<Server>, id: u64, count: usize) -> Arc<Connection> {
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
    let conn = server.connect(id, nowhere, Transport::Tcp);
    for sid in 0..count {
        let (subject, sid) = (format!("many.{id}.{sid}"), sid.to_string());
        let (outlet, sid) = (conn.outlet().clone(), sid.as_bytes());
        let make = || Some(Subscription::new(outlet, subject.as_bytes(), None, sid));
        let Added::New(sub) = conn.add_subscription(sid, usize::MAX, make) else {
            panic!("{sid:?}")
        };
        conn.session().account.interest.insert(sub);
    }
    conn
}

fn server() -> Arc<Server> {
    Server::new(Options::default(), Logger::silent())
}

#[tokio::test]
async fn who_has_many_subscriptions_ends_them_when_no_other_does() {
    let server = server();
    let account = server.accounts.global().clone();
    let conns = [3, 2 * MANY_SUBSCRIPTIONS].map(|count| with_subscriptions(&server, 1, count));
    let turn = account.endings.acquire().await.unwrap();
    conns[0].drop_subscriptions_in_turns().await;
    assert_eq!(account.interest.count(), 2 * MANY_SUBSCRIPTIONS);
    let waits =
        tokio::time::timeout(Duration::from_millis(20), conns[1].drop_subscriptions_in_turns());
    assert!(waits.await.is_err(), "another one ends them");
    assert_eq!(account.interest.count(), 2 * MANY_SUBSCRIPTIONS);
    drop(turn);
    conns[1].drop_subscriptions_in_turns().await;
    assert_eq!((account.interest.count(), conns[1].subscription_count()), (0, 0));
}

#[test]
fn room_of_subscriptions_that_are_gone_is_given_back() {
    let server = server();
    let conn = with_subscriptions(&server, 1, 2 * SHRINK_FROM);
    for sub in conn.subscriptions().into_iter().skip(3) {
        conn.end_subscription(&sub);
    }
    assert_eq!(conn.subscription_count(), 3);
    assert!(conn.subs.capacity() < SHRINK_FROM);
}

#[test]
fn subscriptions_of_closed_connections_are_remembered_within_bounds() {
    use crate::connections::{CLOSED_SUBSCRIPTIONS_MAX, CLOSED_SUBSCRIPTIONS_OF_ONE_MAX, Listened};
    let server = server();
    let many = CLOSED_SUBSCRIPTIONS_OF_ONE_MAX + 1;
    let count = CLOSED_SUBSCRIPTIONS_MAX / CLOSED_SUBSCRIPTIONS_OF_ONE_MAX + 1;
    for id in 0..count as u64 {
        let conn = with_subscriptions(&server, id, many);
        let listened = Listened::of(&conn);
        conn.drop_subscriptions();
        server.connections.remove(&conn, listened);
    }
    let closed = server.connections.closed();
    assert!(closed.iter().all(|closed| closed.subscriptions == many));
    let listed: Vec<usize> = closed.iter().map(|closed| closed.listed.len()).collect();
    assert_eq!(listed[0], 0, "the first is forgotten");
    assert!(listed[1..].iter().all(|len| *len == CLOSED_SUBSCRIPTIONS_OF_ONE_MAX), "{listed:?}");
}
