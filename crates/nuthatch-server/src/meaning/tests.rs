//! What subjects mean, and that what takes effect means itself.

use super::*;

/// The hash that nats-server gives an account `A`.
const HASH: &str = "NUmM6cRx";
const SHORT: &str = "S.C.1.22.3.1700000000000000000.4";

#[test]
fn ack_subjects() {
    let asked = |rest: &str| {
        let subject = format!("$JS.ACK.{rest}");
        let request = meaning(&NOWHERE, subject.as_bytes()).and_then(Meaning::request);
        request.map(|request| format!("{request:?}"))
    };
    let (stream, consumer) = (&b"S"[..], &b"C"[..]);
    let of = |delivered, stream_seq, consumer_seq| {
        let ack = AckSubject { stream, consumer, delivered, stream_seq, consumer_seq };
        Some(format!("{:?}", Request::Ack(ack)))
    };
    assert_eq!(asked(SHORT), of(1, 22, 3));
    assert_eq!(asked("S.C.0.18446744073709551615.007.x."), of(0, u64::MAX, 7));
    for bad in [
        "S.C.1.2.3.4",
        "S.C.1.2.3.4.5.6",
        "S.C.x.2.3.4.5",
        "S.C.1.2x.3.4.5",
        "S.C..2.3.4.5",
        "S.C.1.2..4.5",
        "S.C.1.+2.3.4.5",
        "S.C.1.99999999999999999999.3.4.5",
        "S.C.1.18446744073709551616.3.4.5",
        "",
        "......",
    ] {
        assert_eq!(asked(bad), None, "{bad}");
    }
}

#[test]
fn the_hash_of_an_account_is_that_of_nats_server() {
    assert_eq!(&name_hash("A")[..], HASH.as_bytes());
    assert_eq!(name_hash("$G"), *b"szMpdrwD");
    // Servers as peers.
    assert_eq!([name_hash("nats-0"), name_hash("nats-1")], [*b"S1Nunr6R", *b"yrzKKRBu"]);
}

const HUB: Place<'_> = Place { domain: Some("hub"), account: "A" };
const NOWHERE: Place<'_> = Place { domain: None, account: "A" };

#[test]
fn what_takes_effect_means_itself() {
    let long = format!("$JS.ACK.hub.{HASH}.{SHORT}");
    let more = format!("{long}.token.another");
    let ack = format!("$JS.ACK.{SHORT}");
    let table: &[(&str, &str)] = &[
        ("$JS.API.INFO", "$JS.API.INFO"),
        ("$JS.hub.API.STREAM.INFO.S", "$JS.API.STREAM.INFO.S"),
        ("$JS.hub.API.$KV.b.k", "$KV.b.k"),
        ("$JS.hub.API.$O.b.k", "$O.b.k"),
        ("$JS.FC.S.C.1", "$JS.FC.S.C.1"),
        (&ack, &ack),
        (&long, &ack),
        (&more, &ack),
        ("$JS.hub.API.>", "$JS.API.>"),
    ];
    for (subject, effective) in table {
        let meant = effective_subject(&HUB, subject.as_bytes());
        assert_eq!(meant, effective.as_bytes(), "{subject}");
        assert_eq!(effective_subject(&HUB, &meant), meant, "{subject}");
        let meant = meaning(&HUB, subject.as_bytes()).expect("one of JetStream's");
        assert_eq!(meant.is_written(subject.as_bytes()), subject == effective, "{subject}");
    }
}

#[test]
fn the_longer_form_of_somebody_else_is_an_ordinary_subject() {
    let of = |domain: &str, hash: &str| format!("$JS.ACK.{domain}.{hash}.{SHORT}");
    let is_ours = |place, subject: &str| meaning(place, subject.as_bytes()).is_some();
    assert!(is_ours(&HUB, &of("hub", HASH)) && is_ours(&NOWHERE, &of("_", HASH)));
    for (domain, hash) in [("leaf", HASH), ("_", HASH), ("hub", "szMpdrwD"), ("ORDERS", "NEW")] {
        let subject = of(domain, hash);
        assert!(!is_ours(&HUB, &subject), "{subject}");
        assert_eq!(effective_subject(&HUB, subject.as_bytes()), subject.as_bytes());
    }
    assert!(!is_ours(&NOWHERE, &of("hub", HASH)));
    for short in ["S.C.1.22.3.17", "", "S"] {
        assert!(!is_ours(&HUB, &format!("$JS.ACK.hub.{HASH}.{short}")), "{short}");
        assert!(!is_ours(&HUB, &format!("$JS.ACK.{short}")), "{short}");
    }
}

#[test]
fn what_a_message_asks_for_is_read_once() {
    let place = Place { domain: Some("hub"), account: "A" };
    let asked =
        |subject: &'static str| meaning(&place, subject.as_bytes()).and_then(Meaning::request);
    let pull = Some(Request::Pull { stream: b"S", consumer: b"C" });
    assert_eq!(asked("$JS.API.CONSUMER.MSG.NEXT.S.C"), pull);
    assert_eq!(asked("$JS.hub.API.CONSUMER.MSG.NEXT.S.C"), pull);
    assert_eq!(asked("$JS.API.CONSUMER.MSG.NEXT.S"), None);
    let get = |subject| Some(Request::DirectGet { stream: b"S", subject });
    assert_eq!(asked("$JS.API.DIRECT.GET.S"), get(b""));
    assert_eq!(asked("$JS.API.DIRECT.GET.S.a.b"), get(b"a.b"));
    assert_eq!(asked("$JS.FC.S.C.x"), Some(Request::Flow { stream: b"S", consumer: b"C" }));
    assert_eq!((asked("$JS.FC.S.C"), asked("$JS.ACK.S.C.1.x.3.4.5")), (None, None));
    assert!(matches!(asked("$JS.ACK.S.C.1.2.3.4.5"), Some(Request::Ack(_))));
    assert_eq!(asked("$JS.API.STREAM.INFO.S"), Some(Request::Call(b"STREAM.INFO.S")));
    assert_eq!(asked("$JS.hub.API.$KV.b.k"), Some(Request::Bucket(b"$KV.b.k")));
    assert_eq!(asked("$JS.other.API.INFO"), None);
}
