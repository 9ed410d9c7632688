//! Distinguished names (RFC 4514), which users may be named by.

use x509_parser::x509::X509Name;

/// Attribute types and their object identifiers: those that nats-server knows.
const TYPES: &[(&str, &str)] = &[
    ("2.5.4.3", "CN"),
    ("2.5.4.5", "SERIALNUMBER"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.17", "POSTALCODE"),
    ("0.9.2342.19200300.100.1.25", "DC"),
];
/// The order in which Go writes the attributes that it knows, one group for each.
const GO_ORDER: &[&str] =
    &["SERIALNUMBER", "CN", "POSTALCODE", "STREET", "ST", "L", "OU", "O", "C"];

type Attribute = (String, String);

/// A distinguished name: groups of attributes, the most significant last.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dn(Vec<Vec<Attribute>>);

impl Dn {
    /// Reads the subject of a certificate; `None` if it holds types we do not know.
    #[must_use]
    pub fn of_subject(subject: &X509Name<'_>) -> Option<Self> {
        let mut groups = Vec::new();
        for group in subject.iter().collect::<Vec<_>>().into_iter().rev() {
            let attributes = group.iter().map(|attribute| {
                let kind = type_name(&attribute.attr_type().to_id_string())?;
                Some((kind.to_owned(), attribute.as_str().ok()?.to_owned()))
            });
            groups.push(attributes.collect::<Option<Vec<_>>>()?);
        }
        Some(Self(groups))
    }

    /// Reads `CN=me,OU=one+OU=two,O=org`; `None` if it is nothing of the kind.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (mut groups, mut group) = (Vec::new(), Vec::new());
        let mut rest = text;
        while !rest.is_empty() {
            let (kind, after) = rest.split_once('=')?;
            let kind = kind.trim();
            if kind.is_empty() || after.starts_with('#') {
                return None;
            }
            let (value, end, after) = read_value(after)?;
            group.push((kind.to_owned(), value));
            if end != Some('+') {
                groups.push(std::mem::take(&mut group));
            }
            rest = after;
        }
        (group.is_empty() && !groups.is_empty()).then_some(Self(groups))
    }

    /// True if the groups are the same in the same order.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(|(a, b)| same_group(a, b))
    }

    /// True if the groups are the same in any order.
    #[must_use]
    pub fn has_same_groups(&self, other: &Self) -> bool {
        let mut left: Vec<_> = other.0.iter().collect();
        self.0.len() == left.len()
            && self.0.iter().all(|group| {
                let at = left.iter().position(|candidate| same_group(group, candidate));
                at.map(|at| left.swap_remove(at)).is_some()
            })
    }
}

/// The types of attributes in any case and order, the values as they are.
fn same_group(one: &[Attribute], other: &[Attribute]) -> bool {
    let same = |a: &Attribute, b: &Attribute| a.0.eq_ignore_ascii_case(&b.0) && a.1 == b.1;
    let covers = |a: &[Attribute], b: &[Attribute]| b.iter().all(|x| a.iter().any(|y| same(x, y)));
    one.len() == other.len() && covers(one, other) && covers(other, one)
}

/// A value up to its unescaped end: it, the end, and what follows.
fn read_value(text: &str) -> Option<(String, Option<char>, &str)> {
    let mut value = Vec::new();
    // Spaces at the end count only if they are escaped.
    let mut kept = 0;
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b',' | b'+' => {
                value.truncate(kept);
                return Some((String::from_utf8(value).ok()?, Some(byte.into()), &text[at..]));
            }
            b'\\' => {
                let escaped = *bytes.get(at)?;
                if b" \"#+,;<=>\\".contains(&escaped) {
                    value.push(escaped);
                    at += 1;
                } else {
                    value.push(u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?);
                    at += 2;
                }
                kept = value.len();
            }
            b' ' if value.is_empty() => {}
            b' ' => value.push(byte),
            _ => {
                value.push(byte);
                kept = value.len();
            }
        }
    }
    value.truncate(kept);
    Some((String::from_utf8(value).ok()?, None, ""))
}

fn type_name(oid: &str) -> Option<&'static str> {
    TYPES.iter().find(|(known, _)| *known == oid).map(|(_, name)| *name)
}

/// The subject as Go writes it: known attributes only, in Go's own order; and the domain
/// components, which Go leaves out, as they come.
#[must_use]
pub fn go_subject(subject: &X509Name<'_>) -> (String, Vec<String>) {
    let found: Vec<(&str, &str)> = subject
        .iter_attributes()
        .filter_map(|attribute| {
            Some((type_name(&attribute.attr_type().to_id_string())?, attribute.as_str().ok()?))
        })
        .collect();
    let group = |kind: &&str| {
        let values = found.iter().filter(|(known, _)| known == kind);
        let parts: Vec<_> =
            values.map(|(kind, value)| format!("{kind}={}", escape(value))).collect();
        (!parts.is_empty()).then(|| parts.join("+"))
    };
    let text = GO_ORDER.iter().filter_map(group).collect::<Vec<_>>().join(",");
    let components = found.iter().filter(|(kind, _)| *kind == "DC");
    (text, components.map(|(_, value)| format!("DC={value}")).collect())
}

fn escape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let last = value.chars().count().saturating_sub(1);
    for (at, c) in value.chars().enumerate() {
        let special = match c {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => true,
            ' ' => at == 0 || at == last,
            '#' => at == 0,
            _ => false,
        };
        if special {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_by_their_groups() {
        let dn = |text| Dn::parse(text).unwrap();
        let one = dn("CN=me,OU=a+OU=b,O=Org\\, Inc.");
        assert!(one.is_same(&dn("cn=me, ou=b+ou=a , o=Org\\2C Inc.")));
        assert!(!one.is_same(&dn("O=Org\\, Inc.,OU=a+OU=b,CN=me")));
        assert!(one.has_same_groups(&dn("O=Org\\, Inc.,OU=a+OU=b,CN=me")));
        assert!(!one.has_same_groups(&dn("CN=me,OU=a+OU=b")));
        assert!(!one.has_same_groups(&dn("CN=Me,OU=a+OU=b,O=Org\\, Inc.")));
        assert_eq!(dn("CN=a\\ ").0[0][0].1, "a ");
        for text in ["", "me", "=x", "CN=#04", "CN=x\\", "CN=x\\zz", "CN=a+"] {
            assert_eq!(Dn::parse(text), None, "{text}");
        }
    }

    #[test]
    fn escapes() {
        assert_eq!(escape(" a,b "), "\\ a\\,b\\ ");
        assert_eq!(escape("#x#"), "\\#x#");
    }
}
