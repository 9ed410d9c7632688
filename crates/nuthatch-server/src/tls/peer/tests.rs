//! Certificates made on the spot, and the users they name.

use super::*;
use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair, SanType};

struct Names(&'static [&'static str]);

impl UserNames<'static> for Names {
    fn get(&self, name: &str) -> Option<&'static str> {
        self.0.iter().find(|known| **known == name).copied()
    }

    fn all(&self) -> Vec<&'static str> {
        self.0.to_vec()
    }
}

fn certificate(alternatives: Vec<SanType>, subject: &[(DnType, &str)]) -> PeerCertificate {
    let mut params = CertificateParams::default();
    params.subject_alt_names = alternatives;
    params.distinguished_name = DistinguishedName::new();
    for (kind, value) in subject {
        params.distinguished_name.push(kind.clone(), DnValue::Utf8String((*value).to_owned()));
    }
    let key = KeyPair::generate().unwrap();
    PeerCertificate::parse(params.self_signed(&key).unwrap().der()).unwrap()
}

fn subject() -> Vec<(DnType, &'static str)> {
    vec![
        (DnType::CountryName, "AT"),
        (DnType::OrganizationName, "Birds, Inc."),
        (DnType::OrganizationalUnitName, "trees"),
        (DnType::CommonName, "me"),
    ]
}

#[test]
fn alternative_names_come_before_the_subject() {
    let alternatives = vec![
        SanType::URI("spiffe://birds/me".try_into().unwrap()),
        SanType::DnsName("me.example".try_into().unwrap()),
        SanType::Rfc822Name("me@example.org".try_into().unwrap()),
    ];
    let it = certificate(alternatives, &subject());
    assert_eq!(it.names, ["me@example.org", "me.example", "spiffe://birds/me"]);
    let all = Names(&["spiffe://birds/me", "me.example", "me@example.org"]);
    assert_eq!(it.find_user(&all), Some("me@example.org"));
    assert_eq!(it.find_user(&Names(&["spiffe://birds/me"])), Some("spiffe://birds/me"));
    assert_eq!(it.find_user(&Names(&["somebody"])), None);
    assert_eq!(it.key_sha256.len(), 64);
    assert_ne!(it.key_sha256, it.sha256);
}

#[test]
fn a_subject_in_several_orders() {
    let it = certificate(Vec::new(), &subject());
    assert_eq!(it.subject, "CN=me,OU=trees,O=Birds\\, Inc.,C=AT");
    for user in [
        "CN=me,OU=trees,O=Birds\\, Inc.,C=AT",
        "C=AT, O=Birds\\, Inc., OU=trees, CN=me",
        "cn=me,c=AT,ou=trees,o=Birds\\, Inc.",
    ] {
        let users = Names(Box::leak(vec![user].into_boxed_slice()));
        assert_eq!(it.find_user(&users), Some(user));
    }
    assert_eq!(it.find_user(&Names(&["CN=me,OU=trees,C=AT", "CN=me"])), None);
    let exact =
        Names(&["C=AT,O=Birds\\, Inc.,OU=trees,CN=me", "CN=me,OU=trees,O=Birds\\, Inc.,C=AT"]);
    assert_eq!(it.find_user(&exact), Some("CN=me,OU=trees,O=Birds\\, Inc.,C=AT"));
}

#[test]
fn domain_components_as_the_incumbent_writes_them() {
    let dc = || DnType::CustomDnType(vec![0, 9, 2342, 19_200_300, 100, 1, 25]);
    let it = certificate(Vec::new(), &[(dc(), "org"), (DnType::CommonName, "me")]);
    assert_eq!(it.find_user(&Names(&["CN=me,DC=org"])), Some("CN=me,DC=org"));
    assert_eq!(it.find_user(&Names(&["DC=org,CN=me"])), Some("DC=org,CN=me"));
    assert_eq!(it.find_user(&Names(&["CN=me"])), Some("CN=me"));
}

#[test]
fn a_certificate_that_names_nobody() {
    let it = certificate(Vec::new(), &[]);
    assert_eq!(it.find_user(&Names(&["", "CN=me"])), None);
}
