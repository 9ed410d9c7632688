//! The client's parser on what servers send.

use super::*;

fn op(input: &[u8]) -> ServerOp<'_> {
    match parse_server_op(input) {
        Ok(ServerStep::Op(op, taken)) => {
            assert_eq!(taken, input.len());
            op
        }
        other => panic!("{:?}: {other:?}", String::from_utf8_lossy(input)),
    }
}

#[test]
fn every_operation() {
    assert_eq!(op(b"INFO {\"x\":1} \r\n"), ServerOp::Info(b"{\"x\":1} "));
    assert_eq!(op(b"PING\r\n"), ServerOp::Ping);
    assert_eq!(op(b"PONG\r\n"), ServerOp::Pong);
    assert_eq!(op(b"+OK\r\n"), ServerOp::Ok);
    assert_eq!(op(b"-ERR 'Stale Connection'\r\n"), ServerOp::Err(b"Stale Connection"));
    let message = Publish { subject: b"a.b", reply: None, header_len: 0, message: b"hi" };
    assert_eq!(op(b"MSG a.b 9 2\r\nhi\r\n"), ServerOp::Message { sid: b"9", message });
    let reply = Publish { reply: Some(b"r"), ..message };
    assert_eq!(op(b"MSG a.b 9 r 2\r\nhi\r\n"), ServerOp::Message { sid: b"9", message: reply });
    let headers = Publish { header_len: 12, message: b"NATS/1.0\r\n\r\nhi", ..reply };
    let expected = ServerOp::Message { sid: b"9", message: headers };
    assert_eq!(op(b"HMSG a.b 9 r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"), expected);
}

#[test]
fn errors() {
    let bad = Err(ServerParseError::BadArguments);
    for input in ["MSG a 1\r\n", "MSG a 1 r x 2\r\n", "MSG a 1 x\r\n", "HMSG a 1 3 2\r\n"] {
        assert_eq!(parse_server_op(input.as_bytes()), bad, "{input}");
    }
    let unknown = Err(ServerParseError::UnknownOperation);
    for input in ["x", "PUB a 1\r\n", "MSG a 1 1\r\nxyz"] {
        assert_eq!(parse_server_op(input.as_bytes()), unknown, "{input}");
    }
    let long = [b"INFO ".as_slice(), &vec![b'x'; MAX_SERVER_LINE + 10]].concat();
    assert_eq!(parse_server_op(&long), Err(ServerParseError::LineTooLong));
}

#[test]
fn any_split_asks_for_more() {
    let whole = b"HMSG a.b 9 r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n";
    for cut in 0..whole.len() {
        match parse_server_op(&whole[..cut]) {
            Ok(ServerStep::Incomplete { need }) => assert!(need > cut && need <= whole.len()),
            other => panic!("cut at {cut}: {other:?}"),
        }
    }
}

mod properties {
    //! The parser reads what the encoders write; noise does no harm.

    use super::*;
    use crate::wire::write;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_round_trip(
            subject in "[a-z.]{1,20}",
            sid in "[0-9]{1,5}",
            reply in prop::option::of("[a-z.]{1,20}"),
            headers in "[ -~\r\n]{0,20}",
            payload in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let reply = reply.as_deref().map(str::as_bytes);
            let mut out = Vec::new();
            let (subject, sid) = (subject.as_bytes(), sid.as_bytes());
            write::push_message(&mut out, subject, sid, reply, headers.as_bytes(), &payload);
            let whole = [headers.as_bytes(), &payload].concat();
            let header_len = headers.len();
            let message = Publish { subject, reply, header_len, message: &whole };
            let op = ServerOp::Message { sid, message };
            prop_assert_eq!(parse_server_op(&out), Ok(ServerStep::Op(op, out.len())));
        }

        #[test]
        fn noise_does_not_panic(
            noise in prop::collection::vec(any::<u8>(), 0..100),
            verb in prop::sample::select(&["", "MSG ", "HMSG ", "INFO ", "-ERR "][..]),
        ) {
            let input = [verb.as_bytes(), &noise].concat();
            for end in 0..=input.len() {
                if let Ok(ServerStep::Incomplete { need }) = parse_server_op(&input[..end]) {
                    prop_assert!(need > end);
                }
            }
        }
    }
}
