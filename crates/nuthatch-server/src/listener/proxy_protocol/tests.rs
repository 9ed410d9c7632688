use super::*;

fn header_of(bytes: &[u8]) -> (usize, Option<SocketAddr>) {
    match beginning(bytes) {
        Ok(Beginning::Header { len, client }) => (len, client),
        other => panic!("{other:?}"),
    }
}

fn client_of(bytes: &[u8]) -> Option<String> {
    header_of(bytes).1.map(|client| client.to_string())
}

fn version_2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let len = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [V2_SIGNATURE, &[command, family], &len, rest].concat()
}

const V4: [u8; 12] = [192, 0, 2, 1, 10, 0, 0, 1, 0xd4, 0x31, 0x10, 0x7e];

#[test]
fn version_1_names_the_client() {
    let line = b"PROXY TCP4 192.0.2.1 10.0.0.1 54321 4222\r\n";
    assert_eq!(header_of(&[&line[..], b"CONNECT {}\r\n"].concat()).0, line.len());
    assert_eq!(client_of(line).as_deref(), Some("192.0.2.1:54321"));
    assert_eq!(
        client_of(b"PROXY TCP6 2001:db8::1 ::1 1 2\r\n").as_deref(),
        Some("[2001:db8::1]:1")
    );
    let mapped = b"PROXY TCP6 ::ffff:192.0.2.1 ::ffff:10.0.0.1 1 2\r\n";
    assert_eq!(client_of(mapped).as_deref(), Some("192.0.2.1:1"));
    assert_eq!(client_of(b"PROXY UNKNOWN\r\n"), None);
    assert_eq!(client_of(b"PROXY UNKNOWN whatever follows\r\n"), None);
}

#[test]
fn version_2_names_the_client() {
    let header = version_2(0x21, 0x11, &V4);
    assert_eq!(header_of(&header), (28, Some("192.0.2.1:54321".parse().unwrap())));
    let with_tlvs = version_2(0x21, 0x11, &[&V4[..], &[3, 0, 4, 1, 2, 3, 4]].concat());
    assert_eq!(header_of(&with_tlvs).0, 35);
    let v6: Vec<u8> = [&[0x20, 1, 0xd, 0xb8][..], &[0; 11], &[7], &[0; 16], &[0, 9, 0, 8]].concat();
    assert_eq!(client_of(&version_2(0x21, 0x21, &v6)).as_deref(), Some("[2001:db8::7]:9"));
    assert_eq!(client_of(&version_2(0x20, 0, &[])), None, "LOCAL");
    assert_eq!(header_of(&version_2(0x20, 0x11, &V4)).0, 28, "LOCAL with addresses");
    assert_eq!(client_of(&version_2(0x21, 0x01, &[])), None, "no family");
}

#[test]
fn a_header_in_parts_is_waited_for_and_anything_else_is_no_header() {
    let long = [&V4[..], &[0; 1000]].concat();
    for header in [
        b"PROXY TCP4 192.0.2.1 10.0.0.1 54321 4222\r\n".to_vec(),
        version_2(0x21, 0x11, &V4),
        version_2(0x21, 0x11, &long),
    ] {
        for end in 1..header.len().min(28) {
            assert_eq!(beginning(&header[..end]).unwrap(), Beginning::Partial, "{end}");
        }
    }
    assert_eq!(header_of(&version_2(0x21, 0x11, &long)[..LOOK]).0, 16 + long.len());
    for other in
        [&b"CONNECT {}\r\n"[..], b"PING\r\n", b"PUB a 0\r\n\r\n", b"\x16\x03\x01", b"\r\nx", b"PX"]
    {
        assert_eq!(beginning(other).unwrap(), Beginning::NoHeader);
    }
}

#[test]
fn what_begins_as_a_header_and_is_none_is_refused() {
    let too_long = [&b"PROXY TCP4 "[..], &[b'1'; 100]].concat();
    let v1: [&[u8]; 10] = [
        b"PROXY \r\n",
        b"PROXY TCP4 192.0.2.1 10.0.0.1 54321\r\n",
        b"PROXY TCP4 192.0.2.1 10.0.0.1 1 2 3\r\n",
        b"PROXY TCP4 ::1 ::1 1 2\r\n",
        b"PROXY TCP6 192.0.2.1 10.0.0.1 1 2\r\n",
        b"PROXY UDP4 192.0.2.1 10.0.0.1 1 2\r\n",
        b"PROXY TCP4 192.0.2.1 10.0.0.1 +1 2\r\n",
        b"PROXY TCP4 192.0.2.1 10.0.0.1 1 65536\r\n",
        b"PROXY TCP4 \xff 10.0.0.1 1 2\r\n",
        &too_long,
    ];
    let v2 = [
        version_2(0x11, 0x11, &V4),
        version_2(0x22, 0x11, &V4),
        version_2(0x21, 0x12, &V4),
        version_2(0x21, 0x31, &V4),
        version_2(0x21, 0x11, &V4[..11]),
        version_2(0x21, 0x21, &V4),
        b"\r\n\r\n\0\r\nQUIX".to_vec(),
    ];
    for bytes in v1.into_iter().chain(v2.iter().map(Vec::as_slice)) {
        let said = beginning(bytes);
        assert!(said.is_err(), "{said:?} of {}", bytes.escape_ascii());
    }
}
