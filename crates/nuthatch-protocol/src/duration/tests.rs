//! Durations against what Go prints.

use super::*;
use proptest::prelude::*;

#[test]
fn as_go_prints_them() {
    let cases = [
        (0, "0s"),
        (1, "1ns"),
        (1_100, "1.1µs"),
        (2_200_000, "2.2ms"),
        (3_300_000_000, "3.3s"),
        (1_000_000_000, "1s"),
        (245_000_000_000, "4m5s"),
        (245_001_000_000, "4m5.001s"),
        (18_367_001_000_000, "5h6m7.001s"),
        (480_000_000_001, "8m0.000000001s"),
        (3_600_000_000_000, "1h0m0s"),
        (-1_500_000_000, "-1.5s"),
        (i64::MAX, "2562047h47m16.854775807s"),
        (i64::MIN, "-2562047h47m16.854775808s"),
    ];
    for (ns, text) in cases {
        assert_eq!(format_go(ns), text);
    }
    assert_eq!(parse_go_bytes(b"1h15m30.918s"), Some(4_530_918_000_000));
    assert_eq!(parse_go_bytes(b"x"), None);
    assert_eq!(parse_go_bytes(b"\xff"), None);
}

proptest! {
    #[test]
    fn what_is_printed_can_be_read(ns in -i64::MAX..i64::MAX) {
        prop_assert_eq!(parse_go(&format_go(ns)), Ok(ns));
    }
}
