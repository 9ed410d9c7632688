//! Reads `mappings`: from a source subject to one destination or several with weights.

use nuthatch_protocol::config::{Node, Value};
use nuthatch_protocol::transform::{Destination, Mapping};

use super::read::ConfigReader;
use super::tables::MAPPING;

/// Most mappings of one account; each is compiled and kept.
const MAPPINGS_MAX: usize = 100_000;
/// All of it, in percent.
const WHOLE: u8 = 100;

/// A map from sources to destinations, in the order of the file. A source given twice counts once,
/// the later one in the earlier one's place, as in nats-server.
pub(super) fn mappings(r: &mut ConfigReader, key: &str, value: &Value) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = Vec::new();
    let Some(map) = r.map(key, value) else { return mappings };
    if map.entries().len() > MAPPINGS_MAX {
        r.invalid(&value.pos, key, format!("has more than {MAPPINGS_MAX} entries"));
        return mappings;
    }
    let mut places = std::collections::HashMap::new();
    for entry in map.entries().iter().filter(|entry| !entry.used_as_variable) {
        let source = entry.key.as_str();
        let Some(destinations) = destinations(r, source, &entry.value) else { continue };
        // This server is in no cluster, so destinations of one never apply.
        match Mapping::new(source, &destinations, "") {
            Ok(mapping) => match places.get(source) {
                Some(&at) => mappings[at] = mapping,
                None => {
                    places.insert(source, mappings.len());
                    mappings.push(mapping);
                }
            },
            Err(error) => r.invalid(&entry.value.pos, source, format!("cannot be mapped: {error}")),
        }
    }
    mappings
}

fn destinations(r: &mut ConfigReader, source: &str, value: &Value) -> Option<Vec<Destination>> {
    match &value.node {
        Node::Str(subject) => {
            let (subject, cluster) = (subject.clone(), String::new());
            Some(vec![Destination { subject, weight: WHOLE, cluster }])
        }
        Node::Array(items) => items.iter().map(|item| destination(r, source, item)).collect(),
        _ => destination(r, source, value).map(|destination| vec![destination]),
    }
}

fn destination(r: &mut ConfigReader, source: &str, value: &Value) -> Option<Destination> {
    let map = r.map(source, value)?;
    let (mut subject, mut weight, mut cluster) = (None, None, String::new());
    let problems_before = r.problems.len();
    r.walk(&MAPPING, map, |r, key, entry| match key {
        "destination" => subject = r.word(key, &entry.value).map(str::to_owned),
        "weight" => weight = percent(r, key, &entry.value),
        _ => cluster = r.text(key, &entry.value).unwrap_or_default().to_owned(),
    });
    if r.problems.len() > problems_before {
        return None;
    }
    let (Some(subject), Some(weight)) = (subject, weight) else {
        r.invalid(&value.pos, source, "needs 'destination' and 'weight' in every entry");
        return None;
    };
    Some(Destination { subject, weight, cluster })
}

/// A number from 0 to 100, or such as `"25%"`.
fn percent(r: &mut ConfigReader, key: &str, value: &Value) -> Option<u8> {
    let number = match &value.node {
        Node::Str(text) => match text.strip_suffix('%').unwrap_or(text).parse() {
            Ok(number) => number,
            Err(_) => {
                r.invalid(&value.pos, key, "must be a percentage such as 25 or \"25%\"");
                return None;
            }
        },
        _ => r.int(key, value, 0, i64::from(WHOLE))?,
    };
    let fits = u8::try_from(number).ok().filter(|&n| n <= WHOLE);
    if fits.is_none() {
        r.invalid(&value.pos, key, "must be from 0 to 100 percent");
    }
    fits
}
