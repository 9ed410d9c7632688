//! The server's parser: every verb, every error, every split.

use super::*;

const LIMITS: Limits = Limits { max_control_line: 64, max_payload: 100, headers: true };

fn op(input: &[u8]) -> Op<'_> {
    match parse_op(input, &LIMITS) {
        Ok(Step::Op(op, taken)) => {
            assert_eq!(taken, input.len(), "whole input consumed");
            op
        }
        other => panic!("{:?}: {other:?}", String::from_utf8_lossy(input)),
    }
}

fn err(input: &[u8]) -> ParseError {
    parse_op(input, &LIMITS).expect_err(&String::from_utf8_lossy(input))
}

fn publish<'a>(
    subject: &'a [u8],
    reply: Option<&'a [u8]>,
    header_len: usize,
    message: &'a [u8],
) -> Op<'a> {
    Op::Publish(Publish { subject, reply, header_len, message })
}

#[test]
fn publishes() {
    assert_eq!(op(b"PUB foo 2\r\nhi\r\n"), publish(b"foo", None, 0, b"hi"));
    assert_eq!(op(b"pub foo 0\r\n\r\n"), publish(b"foo", None, 0, b""));
    assert_eq!(op(b"pUb\tfoo \t bar  2 \nhi\r\n"), publish(b"foo", Some(b"bar"), 0, b"hi"));
    let block = b"HPUB foo 12 14\r\nNATS/1.0\r\n\r\nhi\r\n";
    assert_eq!(op(block), publish(b"foo", None, 12, b"NATS/1.0\r\n\r\nhi"));
    assert_eq!(op(b"hpub foo r 0 2\r\nhi\r\n"), publish(b"foo", Some(b"r"), 0, b"hi"));
    assert_eq!(op(b"hpub\tfoo 0 2\r\nhi\r\n"), publish(b"foo", None, 0, b"hi"));
    let Op::Publish(message) = op(b"HPUB foo 12 14\r\nNATS/1.0\r\n\r\nhi\r\n") else { panic!() };
    assert_eq!((message.headers(), message.payload()), (&b"NATS/1.0\r\n\r\n"[..], &b"hi"[..]));
}

#[test]
fn line_operations() {
    assert_eq!(op(b"CONNECT {\"a\":1}\r\n"), Op::Connect(b"{\"a\":1}"));
    assert_eq!(op(b"connect{}\r\n"), Op::Connect(b"{}"));
    assert_eq!(op(b"PING\r\n"), Op::Ping);
    assert_eq!(op(b"ping\n"), Op::Ping);
    assert_eq!(op(b"PONG whatever\r\n"), Op::Pong);
    assert_eq!(op(b"INFO {}\r\n"), Op::Info(b"{}"));
    assert_eq!(op(b"+OK\r\n"), Op::Ok);
    assert_eq!(op(b"-ERR 'x y'\r\n"), Op::Err(b"'x y'"));
    let plain = Op::Subscribe { subject: b"a.*", queue: None, sid: b"7" };
    assert_eq!(op(b"SUB a.* 7\r\n"), plain);
    let queue = Op::Subscribe { subject: b"a.>", queue: Some(b"q"), sid: b"x" };
    assert_eq!(op(b"sub a.>  q\tx\r\n"), queue);
    assert_eq!(op(b"UNSUB 7\r\n"), Op::Unsubscribe { sid: b"7", max: None });
    assert_eq!(op(b"UNSUB 7 3\r\n"), Op::Unsubscribe { sid: b"7", max: Some(3) });
    assert_eq!(op(b"UNSUB 7 0\r\n"), Op::Unsubscribe { sid: b"7", max: None });
    assert_eq!(op(b"UNSUB 7 x\r\n"), Op::Unsubscribe { sid: b"7", max: None });
}

#[test]
fn errors_and_their_texts() {
    let unknown = Some("Unknown Protocol Operation");
    let control = Some("maximum control line exceeded");
    let long = [b"PUB ".as_slice(), &[b'a'; 70]].concat();
    let cases: &[(&[u8], Option<&str>)] = &[
        (b"GET / HTTP", unknown),
        (b"\r\n", unknown),
        (b"PUB\r\n", unknown),
        (b"SUB\r\n", unknown),
        (b"-ERR\r\n", unknown),
        (b"MSG a 1 1\r\n", unknown),
        (b"HMSG a 1 1 1\r\n", unknown),
        (b"PUBX", unknown),
        (b"PUB foo 1\r\nxx\r\n", unknown),
        (b"PUB foo 1\nx\n ", unknown),
        (&long, control),
        (b"PUB foo 101\r\n", Some("Maximum Payload Violation")),
        (b"HPUB foo 1 101\r\n", Some("Maximum Payload Violation")),
        (b"PUB foo\r\n", None),
        (b"PUB \r\n", None),
        (b"PUB a b c 1\r\n", None),
        (b"PUB foo x\r\n", None),
        (b"PUB foo -1\r\n", None),
        (b"PUB foo 1234567890\r\n", None),
        (b"HPUB foo 5 3\r\n", None),
        (b"HPUB foo x 3\r\n", None),
        (b"HPUB foo 3\r\n", None),
        (b"SUB foo\r\n", None),
        (b"SUB a b c d\r\n", None),
        (b"UNSUB 1 2 3\r\n", None),
    ];
    for (input, text) in cases {
        let error = err(input);
        assert_eq!(error.err_text(), *text, "{:?} {error:?}", String::from_utf8_lossy(input));
        assert!(error.closes());
    }
    let no_headers = Limits { headers: false, ..LIMITS };
    let error = parse_op(b"HPUB foo 0 0\r\n\r\n", &no_headers).unwrap_err();
    assert_eq!((error, error.err_text()), (ParseError::HeadersNotSupported, None));
}

#[test]
fn control_line_limit_counts_arguments_only() {
    let line = |len: usize| [b"SUB ", vec![b'a'; len - 2].as_slice(), b" 1\r\n"].concat();
    assert!(matches!(parse_op(&line(64), &LIMITS), Ok(Step::Op(..))));
    assert_eq!(err(&line(65)), ParseError::ControlLineTooLong { max: 64 });
    assert_eq!(err(&line(650)), ParseError::ControlLineTooLong { max: 64 });
}

#[test]
fn an_incomplete_publish_says_exactly_what_it_needs() {
    let whole = b"PUB foo 5\r\nhello\r\n";
    for cut in 11..whole.len() {
        let step = parse_op(&whole[..cut], &LIMITS);
        assert_eq!(step, Ok(Step::Incomplete { need: whole.len() }), "cut at {cut}");
    }
    assert_eq!(parse_op(b"", &LIMITS), Ok(Step::Incomplete { need: 1 }));
    assert_eq!(parse_op(b"PU", &LIMITS), Ok(Step::Incomplete { need: 3 }));
    assert_eq!(parse_op(b"-ERR", &LIMITS), Ok(Step::Incomplete { need: 5 }));
}

mod properties {
    //! Splits and noise.

    use super::*;
    use proptest::prelude::*;

    /// An operation as text, valid or nearly so.
    fn operation() -> impl Strategy<Value = Vec<u8>> {
        let publish = ("[a-c.]{1,9}", prop::option::of("[a-c]{1,4}"), "[ -~\r\n]{0,40}");
        let publish = publish.prop_map(|(subject, reply, body)| {
            let reply = reply.map_or(String::new(), |reply| format!("{reply} "));
            format!("PUB {subject} {reply}{}\r\n{body}\r\n", body.len()).into_bytes()
        });
        let block =
            ("[A-Za-z]{1,5}", "[ -~]{0,9}", "[ -~]{0,20}").prop_map(|(name, value, body)| {
                let block = format!("NATS/1.0\r\n{name}: {value}\r\n\r\n");
                let (header, total) = (block.len(), block.len() + body.len());
                format!("hpub a.b {header}\t{total}\r\n{block}{body}\r\n").into_bytes()
            });
        let line = prop_oneof![
            Just("PING\r\n"),
            Just("pong\r\n"),
            Just("+OK\r\n"),
            Just("SUB a.* 7\r\n"),
            Just("SUB a.> q 8\n"),
            Just("UNSUB 7 3\r\n"),
            Just("CONNECT {}\r\n"),
            Just("INFO {}\r\n"),
            Just("-ERR 'x'\r\n"),
        ];
        let line = line.prop_map(|line| line.as_bytes().to_vec());
        prop_oneof![4 => publish, 2 => block, 3 => line]
    }

    /// Parses `input` as a connection does when its bytes arrive up to each of `cuts`.
    fn parse_in_pieces(input: &[u8], cuts: &[usize]) -> (Vec<String>, Option<ParseError>) {
        let (mut seen, mut start, mut need) = (Vec::new(), 0, 1);
        for &cut in cuts {
            let end = cut.min(input.len());
            while start + need <= end {
                match parse_op(&input[start..end], &LIMITS) {
                    Ok(Step::Op(op, taken)) => {
                        seen.push(format!("{op:?}"));
                        (start, need) = (start + taken, 1);
                    }
                    Ok(Step::Incomplete { need: more }) => {
                        assert!(more > end - start, "asks for more than there is");
                        need = more;
                    }
                    Err(error) => return (seen, Some(error)),
                }
            }
        }
        (seen, None)
    }

    fn check_splits(input: &[u8], mut cuts: Vec<usize>) {
        cuts.sort_unstable();
        cuts.push(input.len());
        let whole = parse_in_pieces(input, &[input.len()]);
        assert_eq!(parse_in_pieces(input, &cuts), whole);
        let every: Vec<_> = (0..=input.len()).collect();
        assert_eq!(parse_in_pieces(input, &every), whole);
    }

    proptest! {
        #[test]
        fn splits_do_not_matter(
            operations in prop::collection::vec(operation(), 1..8),
            cuts in prop::collection::vec(0..300usize, 0..6),
        ) {
            let input = operations.concat();
            let (seen, error) = parse_in_pieces(&input, &[input.len()]);
            prop_assert_eq!((seen.len(), error), (operations.len(), None));
            check_splits(&input, cuts);
        }

        #[test]
        fn damage_is_found_at_any_split(
            operations in prop::collection::vec(operation(), 1..4),
            place in any::<prop::sample::Index>(),
            byte in any::<u8>(),
            cuts in prop::collection::vec(0..200usize, 0..4),
        ) {
            let mut input = operations.concat();
            let place = place.index(input.len());
            input[place] = byte;
            check_splits(&input, cuts);
        }

        #[test]
        fn noise_does_not_panic(
            noise in prop::collection::vec(any::<u8>(), 0..100),
            verb in prop::sample::select(&["", "PUB ", "HPUB ", "SUB ", "UNSUB ", "CONNECT"][..]),
        ) {
            check_splits(&[verb.as_bytes(), &noise].concat(), vec![]);
        }
    }
}
