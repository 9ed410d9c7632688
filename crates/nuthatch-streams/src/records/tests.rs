//! Every layout comes back as it was, and damage is an error, never a panic.

use super::*;
use nuthatch_protocol::js::StreamConfig;
use proptest::prelude::*;

fn encodings() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut add = |encode: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        encode(&mut out);
        all.push(out);
    };
    let config = StreamConfig { name: "S".into(), ..StreamConfig::default() };
    add(&|out| StreamRecord::encode(AccountId(3), &config, out));
    add(&|out| Advance { rollup: AdvanceRollup::All, msg_id: b"id" }.encode(out));
    add(&|out| Delete { ranges: vec![(1, 2), (9, 9)] }.encode(out));
    let purge = PurgeRequest { filter: "a.>".into(), seq: 4, keep: 0 };
    add(&|out| Purge::encode(&purge, out));
    add(&|out| LogState { next_id: StreamId(9), live: vec![StreamId(1)] }.encode(out));
    all
}

/// Whether any of the decoders takes the bytes. What matters is that none of them panics.
fn decode_all(body: &[u8]) -> [bool; 5] {
    [
        StreamRecord::decode(body).is_ok(),
        Advance::decode(body).is_ok(),
        Delete::decode(body).is_ok(),
        Purge::decode(body).is_ok(),
        LogState::decode(body).is_ok(),
    ]
}

#[test]
fn layouts_come_back() {
    let all = encodings();
    let record = StreamRecord::decode(&all[0]).expect("decodes");
    assert_eq!((record.account, record.config.name.as_str()), (AccountId(3), "S"));
    let advance = Advance::decode(&all[1]).expect("decodes");
    assert_eq!(advance, Advance { rollup: AdvanceRollup::All, msg_id: b"id" });
    assert_eq!(Delete::decode(&all[2]).expect("decodes").ranges, [(1, 2), (9, 9)]);
    let purge = Purge::decode(&all[3]).expect("decodes");
    assert_eq!(purge, PurgeRequest { filter: "a.>".into(), seq: 4, keep: 0 });
    let state = LogState::decode(&all[4]).expect("decodes");
    assert_eq!(state, LogState { next_id: StreamId(9), live: vec![StreamId(1)] });
}

#[test]
fn the_layouts_of_version_1_stay_readable() {
    let purge = [1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, b'>'];
    let request = PurgeRequest { filter: ">".into(), seq: 4, keep: 0 };
    assert_eq!(Purge::decode(&purge), Ok(request));
    let delete = [1, 1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(Delete::decode(&delete).expect("decodes").ranges, [(7, 8)]);
    assert_eq!(Advance::decode(&[1, 0]).expect("decodes").msg_id, b"");
    let state = LogState { next_id: StreamId(2), live: vec![StreamId(1)] };
    assert_eq!(LogState::decode(&[1, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]), Ok(state));
}

#[test]
fn a_newer_version_is_named() {
    let error = DecodeError::Version { version: 2, known: 1 };
    assert_eq!(Purge::decode(&[2, 0]), Err(error));
}

#[test]
fn every_cut_is_an_error_or_a_shorter_record() {
    for encoding in encodings() {
        for cut in 0..encoding.len() {
            decode_all(&encoding[..cut]);
        }
    }
}

proptest! {
    #[test]
    fn noise_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        decode_all(&bytes);
        let _ = crate::stream::Stream::decode_state(StreamId(1), &bytes, 0);
    }
}
