//! Whole numbers of any size in decimal, as counters carry them (ADR-49): read, add, subtract, write.
//!
//! Counters are strings on the wire, so what does not fit a machine word is kept as its digits: the
//! cost is that of the text, and nothing is converted between bases.

use std::cmp::Ordering;
use std::fmt;

/// A whole number of any size. Zero has no sign.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decimal(Repr);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Repr {
    Small(i64),
    /// Does not fit an `i64`. Digits 0 to 9, the least significant first, without leading zeros.
    Large {
        negative: bool,
        digits: Box<[u8]>,
    },
}

impl Default for Decimal {
    fn default() -> Self {
        Self::ZERO
    }
}

impl From<i64> for Decimal {
    fn from(value: i64) -> Self {
        Self(Repr::Small(value))
    }
}

impl Decimal {
    /// Nothing.
    pub const ZERO: Self = Self(Repr::Small(0));

    /// Reads an optional sign and at least one digit; `None` if that is not what it is.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (negative, digits) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            all => (false, all),
        };
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
        let values = digits[zeros..].iter().rev().map(|digit| digit - b'0');
        Some(Self::from_digits(negative, values.collect()))
    }

    /// The sum.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.combine(other, false)
    }

    /// The difference.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        self.combine(other, true)
    }

    /// Bytes on the heap.
    #[must_use]
    pub const fn heap_bytes(&self) -> usize {
        match &self.0 {
            Repr::Small(_) => 0,
            Repr::Large { digits, .. } => digits.len(),
        }
    }

    fn combine(&self, other: &Self, subtract: bool) -> Self {
        if let (Repr::Small(a), Repr::Small(b)) = (&self.0, &other.0) {
            let sum = if subtract { a.checked_sub(*b) } else { a.checked_add(*b) };
            if let Some(sum) = sum {
                return Self(Repr::Small(sum));
            }
        }
        let (a_negative, a) = self.digits();
        let (b_negative, b) = other.digits();
        let b_negative = b_negative != subtract;
        if a_negative == b_negative {
            return Self::from_digits(a_negative, sum(&a, &b));
        }
        match compare(&a, &b) {
            Ordering::Less => Self::from_digits(b_negative, difference(&b, &a)),
            _ => Self::from_digits(a_negative, difference(&a, &b)),
        }
    }

    /// Sign and digits, the least significant first.
    fn digits(&self) -> (bool, Vec<u8>) {
        match &self.0 {
            Repr::Large { negative, digits } => (*negative, digits.to_vec()),
            Repr::Small(value) => {
                let (mut left, mut digits) = (value.unsigned_abs(), Vec::new());
                while left > 0 {
                    digits.push((left % 10) as u8);
                    left /= 10;
                }
                (*value < 0, digits)
            }
        }
    }

    /// From digits without leading zeros.
    fn from_digits(negative: bool, digits: Vec<u8>) -> Self {
        let small = digits.iter().rev().try_fold(0_i64, |value, &digit| {
            let digit = i64::from(digit);
            // Downwards, as the smallest number has no positive counterpart.
            value.checked_mul(10)?.checked_sub(digit)
        });
        let small = if negative { small } else { small.and_then(i64::checked_neg) };
        match small {
            Some(value) => Self(Repr::Small(value)),
            None => Self(Repr::Large { negative, digits: digits.into_boxed_slice() }),
        }
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Small(value) => write!(f, "{value}"),
            Repr::Large { negative, digits } => {
                let sign = if *negative { "-" } else { "" };
                let text: String =
                    digits.iter().rev().map(|digit| char::from(b'0' + digit)).collect();
                write!(f, "{sign}{text}")
            }
        }
    }
}

fn compare(a: &[u8], b: &[u8]) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.iter().rev().cmp(b.iter().rev()))
}

fn sum(a: &[u8], b: &[u8]) -> Vec<u8> {
    let (long, short) = if a.len() < b.len() { (b, a) } else { (a, b) };
    let mut out = Vec::with_capacity(long.len() + 1);
    let mut carry = 0;
    for (at, &digit) in long.iter().enumerate() {
        let value = digit + short.get(at).copied().unwrap_or(0) + carry;
        out.push(value % 10);
        carry = value / 10;
    }
    if carry > 0 {
        out.push(carry);
    }
    out
}

/// `a - b`, where `a` is not the smaller one.
fn difference(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(a.len());
    let mut borrow = 0;
    for (at, &digit) in a.iter().enumerate() {
        let taken = b.get(at).copied().unwrap_or(0) + borrow;
        borrow = u8::from(digit < taken);
        out.push(digit + 10 * borrow - taken);
    }
    while out.last() == Some(&0) {
        out.pop();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number(text: &str) -> Decimal {
        Decimal::parse(text.as_bytes()).unwrap_or_else(|| panic!("{text} is a number"))
    }

    #[test]
    fn only_whole_numbers_are_read() {
        for wrong in ["", "+", "-", "1.5", "1e3", " 1", "1 ", "--1", "0x10", "1_000", "one"] {
            assert_eq!(Decimal::parse(wrong.as_bytes()), None, "{wrong:?}");
        }
        for (text, written) in [("+7", "7"), ("-0", "0"), ("000", "0"), ("-007", "-7")] {
            assert_eq!(number(text).to_string(), written);
        }
    }

    #[test]
    fn the_ends_of_machine_words_are_nothing_special() {
        let cases = [
            ("9223372036854775807", "1", "9223372036854775808"),
            ("-9223372036854775808", "-1", "-9223372036854775809"),
            ("9223372036854775808", "-1", "9223372036854775807"),
            ("-9223372036854775809", "1", "-9223372036854775808"),
            ("100000000000000000000", "-99999999999999999999", "1"),
            ("-100000000000000000000", "100000000000000000000", "0"),
        ];
        for (a, b, sum) in cases {
            assert_eq!(number(a).plus(&number(b)).to_string(), sum, "{a} + {b}");
            assert_eq!(number(a).plus(&number(b)), number(sum), "one form for one number");
            assert_eq!(number(sum).minus(&number(b)), number(a), "{sum} - {b}");
        }
        let nines = "9".repeat(60_000);
        let one_more = format!("1{}", "0".repeat(60_000));
        assert_eq!(number(&nines).plus(&number("1")).to_string(), one_more);
        assert_eq!(number(&one_more).minus(&number(&nines)), Decimal::from(1));
    }

    proptest! {
        #[test]
        fn sums_are_those_of_wide_integers(a in any::<i128>(), b in any::<i128>()) {
            let (a, b) = (a / 4, b / 4);
            let (left, right) = (number(&a.to_string()), number(&b.to_string()));
            prop_assert_eq!(left.plus(&right).to_string(), (a + b).to_string());
            prop_assert_eq!(left.minus(&right).to_string(), (a - b).to_string());
        }

        #[test]
        fn small_ones_too(a in -200_i64..200, b in any::<i64>()) {
            let sum = Decimal::from(a).plus(&Decimal::from(b));
            prop_assert_eq!(sum.to_string(), (i128::from(a) + i128::from(b)).to_string());
        }
    }
}
