//! Results of a table of mappings.

use super::*;
use nuthatch_protocol::transform::Destination;

fn mapping(source: &str, destinations: &[(&str, u8)]) -> Configured {
    let destination = |&(subject, weight): &(&str, u8)| Destination {
        subject: subject.to_owned(),
        weight,
        cluster: String::new(),
    };
    let destinations: Vec<_> = destinations.iter().map(destination).collect();
    Configured::new(source, &destinations, "").unwrap()
}

fn table(mappings: &[Configured]) -> Mappings {
    let table = Mappings::default();
    table.set(mappings);
    table
}

#[test]
fn the_first_in_the_file_applies() {
    let maps = table(&[
        mapping("a.*", &[("first.$1", 100)]),
        mapping("a.b", &[("second", 100)]),
        mapping("c.>", &[("d.{{random(3)}}.>", 100)]),
    ]);
    assert!(maps.any());
    assert_eq!(maps.table().fixed(b"a.b"), Fixed::To(b"first.b"[..].into()));
    assert_eq!(maps.table().fixed(b"x"), Fixed::Unchanged);
    assert_eq!(maps.table().fixed(b"c.x"), Fixed::Choice(2));
    let (mut rng, mut out) = (MemberRng::default(), Vec::new());
    assert_eq!(maps.apply(b"c.x", &mut rng, &mut out), Mapping::Changed);
    assert!(out.starts_with(b"d.") && out.ends_with(b".x"));
    maps.set(&[]);
    assert!(!maps.any());
    assert_eq!(maps.apply(b"c.x", &mut rng, &mut out), Mapping::Unchanged);
}

#[test]
fn weights_and_what_is_left_over() {
    let count = |destinations: &[(&str, u8)]| {
        let maps = table(&[mapping("s", destinations)]);
        let (mut rng, mut out) = (MemberRng::default(), Vec::new());
        let mut counts = [0_u32; 3];
        for _ in 0..10_000 {
            match maps.apply(b"s", &mut rng, &mut out) {
                Mapping::Changed if out == b"t" => counts[0] += 1,
                Mapping::Changed => counts[1] += 1,
                Mapping::Dropped => counts[2] += 1,
                Mapping::Unchanged => unreachable!("a mapping that covers it"),
            }
        }
        counts
    };
    let near = |count: u32, share: u32| count.abs_diff(share) < 400;
    let [mapped, original, dropped] = count(&[("t", 30)]);
    assert!(near(mapped, 3_000) && near(original, 7_000) && dropped == 0);
    let [mapped, original, dropped] = count(&[("t", 30), ("s", 20)]);
    assert!(near(mapped, 3_000) && near(original, 2_000) && near(dropped, 5_000));
}
