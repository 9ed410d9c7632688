//! Header blocks: cases, lies about length, round trips.

use super::*;
use proptest::prelude::*;

const BLOCK: &[u8] = b"NATS/1.0\r\nNats-Msg-Id: 1\r\nA:x\r\nB:   y z \r\nA: 2\r\nE:\r\n\r\n";

#[test]
fn reading() {
    let headers = Headers::parse(BLOCK).unwrap();
    let all: Vec<_> = headers.iter().collect();
    let expected: [Header<'_>; 5] =
        [(b"Nats-Msg-Id", b"1"), (b"A", b"x"), (b"B", b"y z "), (b"A", b"2"), (b"E", b"")];
    assert_eq!(all, expected);
    assert_eq!(headers.get(b"A"), Some(&b"x"[..]));
    assert_eq!(headers.get(b"E"), Some(&b""[..]));
    assert_eq!(headers.get(b"a"), None, "names are exact");
    assert_eq!(find_header(BLOCK, b"Msg-Id"), None, "and whole");
    assert_eq!(headers.get_all(b"A").collect::<Vec<_>>(), [&b"x"[..], b"2"]);
    assert_eq!(headers.status(), None);
    assert!(has_nats_header(BLOCK));
    assert!(!has_nats_header(b"NATS/1.0\r\nX: Nats-\r\n\r\n"));
}

#[test]
fn statuses() {
    let status = |block| Headers::parse(block).unwrap().status();
    assert_eq!(status(b"NATS/1.0 503\r\n\r\n"), Some((503, &b""[..])));
    let block = b"NATS/1.0 100 Idle Heartbeat\r\nA: 1\r\n\r\n";
    assert_eq!(status(block), Some((100, &b"Idle Heartbeat"[..])));
    assert_eq!(find_header(block, b"A"), Some(&b"1"[..]));
    assert_eq!(status(b"NATS/1.0\r\n\r\n"), None);
    assert_eq!(Headers::new(b"").status(), None);
}

#[test]
fn lies_and_damage_are_errors() {
    let bad_end = |len| Err(HeaderError::BadEnd { len });
    assert_eq!(Headers::parse(b""), Err(HeaderError::NoVersion));
    assert_eq!(Headers::parse(b"HTTP/1.0\r\n\r\n"), Err(HeaderError::NoVersion));
    assert_eq!(Headers::parse(b"NATS/1.0"), bad_end(8));
    for cut in VERSION.len()..BLOCK.len() {
        assert_eq!(Headers::parse(&BLOCK[..cut]), bad_end(cut), "cut at {cut}");
    }
    let longer = [BLOCK, b"body\r\n\r\n"].concat();
    assert_eq!(Headers::parse(&longer), bad_end(longer.len()));
    let line = Err(HeaderError::BadLine { offset: 10 });
    assert_eq!(Headers::parse(b"NATS/1.0\r\nno colon\r\n\r\n"), line);
    assert_eq!(Headers::parse(b"NATS/1.0\r\n: no name\r\n\r\n"), line);
    assert_eq!(Headers::parse(b"NATS/1.0\r\nA: b\nC: d\r\n\r\n"), line);
    for status in ["NATS/1.0x\r\n\r\n", "NATS/1.0 abc\r\n\r\n", "NATS/1.0 1000\r\n\r\n"] {
        assert_eq!(Headers::parse(status.as_bytes()), Err(HeaderError::BadStatus), "{status:?}");
    }
}

#[test]
fn editing() {
    let mut block = Vec::new();
    append(&mut block, b"A", b"1");
    append(&mut block, b"B", b"2");
    append(&mut block, b"A", b"3");
    assert_eq!(block, b"NATS/1.0\r\nA: 1\r\nB: 2\r\nA: 3\r\n\r\n");
    set(&mut block, b"B", b"22");
    assert_eq!(block, b"NATS/1.0\r\nA: 1\r\nA: 3\r\nB: 22\r\n\r\n");
    assert!(remove(&mut block, b"A") && !remove(&mut block, b"A"));
    assert_eq!(block, b"NATS/1.0\r\nB: 22\r\n\r\n");
    assert!(remove(&mut block, b"B"));
    assert!(block.is_empty(), "a block without headers is no block");
    let mut status = b"NATS/1.0 503\r\nA: 1\r\n\r\n".to_vec();
    assert!(remove(&mut status, b"A"));
    assert_eq!(status, b"NATS/1.0 503\r\n\r\n", "a status stays");
    let mut out = b"x".to_vec();
    copy_without(&mut out, BLOCK, |name| name.starts_with(b"Nats-"));
    assert_eq!(out, b"xNATS/1.0\r\nA:x\r\nB:   y z \r\nA: 2\r\nE:\r\n\r\n");
}

proptest! {
    #[test]
    fn round_trip(list in prop::collection::vec(("[A-Za-z-]{1,12}", "[!-~][ -~]{0,20}"), 0..8)) {
        let mut block = Vec::new();
        begin(&mut block);
        for (name, value) in &list {
            push(&mut block, name.as_bytes(), value.as_bytes());
        }
        finish(&mut block);
        let headers = Headers::parse(&block).unwrap();
        let read: Vec<_> = headers.iter().collect();
        let written: Vec<_> = list.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())).collect();
        prop_assert_eq!(&read, &written);
        let mut copy = Vec::new();
        copy_without(&mut copy, &block, |_| false);
        prop_assert_eq!(&copy[..], if list.is_empty() { &b""[..] } else { &block[..] });
        if let Some((name, _)) = list.first() {
            let mut less = block.clone();
            prop_assert!(remove(&mut less, name.as_bytes()));
            let wanted: Vec<_> = written.into_iter().filter(|(n, _)| *n != name.as_bytes()).collect();
            prop_assert_eq!(Headers::new(&less).iter().collect::<Vec<_>>(), wanted);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        for block in [bytes.clone(), [VERSION, b"\r\n", &bytes, b"\r\n\r\n"].concat()] {
            let _ = (Headers::parse(&block), Headers::new(&block).status());
            let count = Headers::new(&block).iter().count();
            let mut out = Vec::new();
            copy_without(&mut out, &block, |_| true);
            prop_assert!(count <= block.len() && out.len() <= block.len());
            let mut changed = block.clone();
            set(&mut changed, b"A", b"1");
            prop_assert_eq!(changed.is_empty(), false);
        }
    }
}
