//! However the input is cut, the output is the same.

mod support;

use proptest::prelude::*;
use std::sync::OnceLock;
use support::{CLIENT, TestServer};

const SCRIPT: &str = "SUB a.* 1\r\nsub b q 2\r\nPUB a.x 5\r\nhello\r\nPUB b reply 0\r\n\r\n\
    HPUB a.y 14 16\r\nNATS/1.0\r\nA:\r\nxy\r\nUNSUB 1 3\r\nPUB a.z 2\r\n\r\n\r\n\
    PUB a.gone 1\r\nx\r\nPUB nobody b 4\r\nPUB \r\nPING\r\n";

/// `b` is in a queue group, so the publisher does not listen on it for no responders.
const OUTPUT: &str = "MSG a.x 1 5\r\nhello\r\nMSG b 2 reply 0\r\n\r\n\
    HMSG a.y 1 14 16\r\nNATS/1.0\r\nA:\r\nxy\r\nMSG a.z 1 2\r\n\r\n\r\nPONG\r\n";

fn run(server: &TestServer, cuts: &[usize]) {
    let mut peer = server.peer();
    peer.send(format!("CONNECT {CLIENT}\r\n"));
    let mut from = 0;
    for &cut in cuts.iter().chain(&[SCRIPT.len()]) {
        if cut > from {
            peer.send(&SCRIPT[from..cut]);
            from = cut;
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    }
    peer.expect(OUTPUT);
    peer.send("UNSUB 2\r\n");
    peer.flush("");
}

#[test]
fn one_cut_at_every_byte() {
    let server = TestServer::plain();
    for cut in 0..=SCRIPT.len() {
        run(&server, &[cut]);
    }
}

#[test]
fn byte_by_byte() {
    run(&TestServer::plain(), &(0..SCRIPT.len()).collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_cuts(mut cuts in proptest::collection::vec(0..SCRIPT.len(), 1..8)) {
        static SERVER: OnceLock<TestServer> = OnceLock::new();
        cuts.sort_unstable();
        run(SERVER.get_or_init(TestServer::plain), &cuts);
    }

    #[test]
    fn garbage_does_no_harm(
        parts in proptest::collection::vec(
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..40),
                proptest::sample::select(vec![
                    "SUB a 1\r\n", "PUB a 3\r\n", "HPUB a 12 13\r\n", "NATS/1.0\r\n\r\n", "UNSUB 1 1\r\n",
                    "PING\r\n", "CONNECT {}\r\n", "PUB $JS.ACK.x 0\r\n\r\n", "\r\n", "PUB a\r\n",
                    "SUB > q 9\r\n", "PUB $SYS.REQ.USER.INFO a 0\r\n\r\n", "PUB $JS. b 0\r\n\r\n",
                ]).prop_map(|text| text.as_bytes().to_vec()),
            ],
            0..12,
        )
    ) {
        static SERVER: OnceLock<TestServer> = OnceLock::new();
        let server = SERVER.get_or_init(TestServer::plain);
        let mut peer = server.peer();
        let _ = peer.try_send(&parts.concat());
        drop(peer);
        let mut other = server.client();
        other.send("SUB z 1\r\nPUB z 0\r\n\r\n");
        other.flush("MSG z 1 0\r\n\r\n");
    }
}
