//! Networks such as `10.0.0.0/8`.

use std::net::IpAddr;

/// Whether `address` is in the network; `None` if the text names no network.
#[must_use]
pub fn contains(network: &str, address: IpAddr) -> Option<bool> {
    let (base, length) = network.split_once('/')?;
    if length.is_empty() || !length.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let length: u32 = length.parse().ok()?;
    let base: IpAddr = base.parse().ok()?;
    Some(match (base, address.to_canonical()) {
        (IpAddr::V4(base), IpAddr::V4(address)) if length <= 32 => {
            same_prefix(u128::from(base.to_bits()), u128::from(address.to_bits()), 32, length)
        }
        (IpAddr::V6(base), IpAddr::V6(address)) if length <= 128 => {
            same_prefix(base.to_bits(), address.to_bits(), 128, length)
        }
        (IpAddr::V4(_), IpAddr::V6(_)) if length <= 32 => false,
        (IpAddr::V6(_), IpAddr::V4(_)) if length <= 128 => false,
        _ => return None,
    })
}

fn same_prefix(one: u128, other: u128, bits: u32, length: u32) -> bool {
    let differing = (one ^ other).checked_shr(bits - length).unwrap_or(0);
    differing == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_and_out_of_networks() {
        let is_in = |network, address: &str| contains(network, address.parse().unwrap());
        assert_eq!(is_in("10.1.0.0/16", "10.1.255.3"), Some(true));
        assert_eq!(is_in("10.1.0.0/16", "10.2.0.0"), Some(false));
        assert_eq!(is_in("10.1.0.0/16", "::ffff:10.1.0.1"), Some(true));
        assert_eq!(is_in("0.0.0.0/0", "127.0.0.1"), Some(true));
        assert_eq!(is_in("::/0", "fe80::1"), Some(true));
        assert_eq!(is_in("fe80::/10", "fe80::1"), Some(true));
        assert_eq!(is_in("fe80::1/128", "fe80::2"), Some(false));
        assert_eq!(is_in("127.0.0.1/32", "::1"), Some(false));
        for bad in ["", "10.0.0.0", "10.0.0.0/33", "::/129", "x/8", "10.0.0.0/-1", "10.0.0.0/+8"] {
            assert_eq!(is_in(bad, "127.0.0.1"), None, "{bad}");
        }
    }
}
