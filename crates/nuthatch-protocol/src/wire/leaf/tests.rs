//! Operations between leaf nodes, byte by byte.

use super::*;
use proptest::prelude::*;

const MAX: usize = 1024;

fn op(text: &str) -> LeafOp<'_> {
    match parse_leaf_op(text.as_bytes(), MAX) {
        Ok(LeafStep::Op(op, used)) => {
            assert_eq!(used, text.len(), "{text:?}");
            op
        }
        other => panic!("{text:?}: {other:?}"),
    }
}

fn message(text: &str) -> (String, Option<String>, Vec<String>, usize, String) {
    let LeafOp::Message(LeafMessage { publish, queues }) = op(text) else { panic!("{text:?}") };
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let names = queue_names(queues).map(text).collect();
    (
        text(publish.subject),
        publish.reply.map(text),
        names,
        publish.header_len,
        text(publish.message),
    )
}

#[test]
fn interest_comes_and_goes() {
    let subject = &b"a.>"[..];
    assert_eq!(op("LS+ a.>\r\n"), LeafOp::Subscribe { subject, queue: None });
    let queue = Some((&b"q"[..], 3));
    assert_eq!(op("ls+ a.> q 3\r\n"), LeafOp::Subscribe { subject, queue });
    let queue = Some((&b"q"[..], 1));
    assert_eq!(op("LS+ a.> q 0\r\n"), LeafOp::Subscribe { subject, queue });
    assert_eq!(op("LS- a.>\n"), LeafOp::Unsubscribe { subject, queue: None });
    assert_eq!(op("LS- a.> q\r\n"), LeafOp::Unsubscribe { subject, queue: Some(b"q") });
    for bad in ["LS+ a q\r\n", "LS+ a q 1 2\r\n", "LS+ \r\n", "LS- a b c\r\n"] {
        let error = parse_leaf_op(bad.as_bytes(), MAX).unwrap_err();
        assert!(matches!(error, LeafParseError::BadArguments { .. }), "{bad:?}");
    }
}

#[test]
fn messages_in_every_form() {
    let none = Vec::<String>::new;
    let some = |text: &str| Some(text.to_owned());
    let two = vec!["q1".to_owned(), "q2".to_owned()];
    let body = || "hi".to_owned();
    assert_eq!(message("LMSG a 2\r\nhi\r\n"), ("a".into(), None, none(), 0, body()));
    assert_eq!(message("LMSG a r 2\r\nhi\r\n"), ("a".into(), some("r"), none(), 0, body()));
    assert_eq!(
        message("LMSG a + r q1 q2 2\r\nhi\r\n"),
        ("a".into(), some("r"), two.clone(), 0, body())
    );
    assert_eq!(message("LMSG a | q1 q2 2\r\nhi\r\n"), ("a".into(), None, two.clone(), 0, body()));
    assert_eq!(message("HMSG a 1 2\r\nhi\r\n"), ("a".into(), None, none(), 1, body()));
    assert_eq!(message("HMSG a r 1 2\r\nhi\r\n"), ("a".into(), some("r"), none(), 1, body()));
    assert_eq!(message("HMSG a + r q1 q2 1 2\r\nhi\r\n"), ("a".into(), some("r"), two, 1, body()));
    for bad in
        ["LMSG a\r\n", "LMSG a ? r q 2\r\n", "HMSG a 2\r\n", "HMSG a 3 2\r\n", "LMSG a r x\r\n"]
    {
        let error = parse_leaf_op(bad.as_bytes(), MAX).unwrap_err();
        assert!(matches!(error, LeafParseError::BadArguments { .. }), "{bad:?}");
    }
    let error = parse_leaf_op(b"LMSG a 1025\r\n", MAX).unwrap_err();
    assert_eq!(error, LeafParseError::MaxPayload { size: 1025, max: MAX });
    let error = parse_leaf_op(b"LMSG a 2\r\nhi!!", MAX).unwrap_err();
    assert_eq!(error, LeafParseError::UnknownOperation);
}

#[test]
fn an_incomplete_operation_says_what_it_needs() {
    let text = b"HMSG a + r q 1 4\r\nhihi\r\n";
    let line = text.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    for end in 0..text.len() {
        match parse_leaf_op(&text[..end], MAX) {
            Ok(LeafStep::Incomplete { need }) if end >= line => assert_eq!(need, text.len()),
            Ok(LeafStep::Incomplete { need }) => assert_eq!(need, end + 1),
            other => panic!("{end}: {other:?}"),
        }
    }
    assert_eq!(parse_leaf_op(b"X", MAX), Err(LeafParseError::UnknownOperation));
    let long = [b"LS+ ", &[b'a'; MAX_LEAF_LINE + 8][..]].concat();
    assert_eq!(parse_leaf_op(&long, MAX), Err(LeafParseError::LineTooLong));
}

#[test]
fn a_delivery_shows_its_subject() {
    let ack = b"$JS.ACK.S.C.1.2.3.4.5";
    let whole = [&ack[..], b"@orders.1"].concat();
    assert_eq!(split_delivery(&whole), Some((&ack[..], &b"orders.1"[..])));
    assert_eq!(split_delivery(ack), None);
    assert_eq!(split_delivery(b"$JS.ACK.S@x.C.1.2.3.4.5"), None);
    assert_eq!(split_delivery(b"_INBOX.1.2.3.4.5.6.7.8@a"), None);
}

proptest! {
    #[test]
    fn what_is_written_can_be_read(
        subject in "[a-z.]{1,20}",
        reply in "([a-z.]{1,20})?",
        queues in proptest::collection::vec("[a-z]{1,8}", 0..4),
        headers in 0_usize..3,
        body in 0_usize..20,
    ) {
        let names: String = queues.iter().map(|name| format!("{name} ")).collect();
        let line = LeafLine {
            subject: subject.as_bytes(),
            reply: reply.as_bytes(),
            queues: names.as_bytes(),
            header_len: headers,
            total_len: headers + body,
            ..LeafLine::default()
        };
        let mut text = Vec::new();
        push_leaf_message_line(&mut text, &line);
        text.extend(std::iter::repeat_n(b'x', headers + body));
        text.extend_from_slice(b"\r\n");
        let text = String::from_utf8(text).unwrap();
        let (found, to, found_queues, header_len, message) = message(&text);
        prop_assert_eq!(found, subject);
        prop_assert_eq!(to.unwrap_or_default(), reply);
        prop_assert_eq!(found_queues, queues);
        prop_assert_eq!((header_len, message.len()), (headers, headers + body));
    }

    #[test]
    fn nothing_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for verb in ["", "LMSG ", "HMSG ", "LS+ ", "LS- "] {
            let _ = parse_leaf_op(&[verb.as_bytes(), &bytes].concat(), MAX);
        }
    }
}
