//! A client's certificate: whom it names, and its fingerprints.

use super::dn::{Dn, go_subject};
use ring::digest;
use std::fmt::Write as _;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// The used fields of a client's certificate.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PeerCertificate {
    /// E-mail addresses, DNS names and URIs among its alternative names, in this order.
    pub names: Vec<String>,
    /// Its subject as Go writes it.
    pub subject: String,
    /// SHA-256 of its public key (SubjectPublicKeyInfo), in hexadecimal.
    pub key_sha256: String,
    /// SHA-256 of all of it.
    pub sha256: String,
    dn: Option<Dn>,
    domain_components: Vec<String>,
}

impl PeerCertificate {
    /// Reads a certificate in DER.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn parse(der: &[u8]) -> Result<Self, String> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
        let (subject, domain_components) = go_subject(certificate.subject());
        Ok(Self {
            names: alternative_names(&certificate),
            subject,
            key_sha256: sha256(certificate.public_key().raw),
            sha256: sha256(der),
            dn: Dn::of_subject(certificate.subject()),
            domain_components,
        })
    }

    /// The user that it names (`verify_and_map`): by an e-mail address, a DNS name or a URI, by its
    /// subject as a distinguished name, in order and then in any order, or by the text of that.
    pub fn find_user<'u>(&self, users: &dyn UserNames<'u>) -> Option<&'u str> {
        let by_name = self.names.iter().find_map(|name| users.get(name));
        by_name.or_else(|| self.find_by_dn(users)).or_else(|| {
            let with_components = (!self.domain_components.is_empty())
                .then(|| format!("{},{}", self.subject, self.domain_components.join(",")));
            with_components
                .and_then(|text| users.get(&text))
                .or_else(|| users.get(&self.subject).filter(|_| !self.subject.is_empty()))
        })
    }

    fn find_by_dn<'u>(&self, users: &dyn UserNames<'u>) -> Option<&'u str> {
        let dn = self.dn.as_ref().filter(|_| !self.subject.is_empty())?;
        let named: Vec<(&str, Dn)> = users
            .all()
            .into_iter()
            .filter(|name| name.contains('='))
            .filter_map(|name| Some((name, Dn::parse(name)?)))
            .collect();
        let same = named.iter().find(|(_, other)| other.is_same(dn));
        same.or_else(|| named.iter().find(|(_, other)| other.has_same_groups(dn)))
            .map(|(name, _)| *name)
    }
}

/// The names of users that may log in with a certificate.
pub trait UserNames<'u> {
    /// The name, if there is such a user.
    fn get(&self, name: &str) -> Option<&'u str>;
    /// All of them, always in the same order.
    fn all(&self) -> Vec<&'u str>;
}

fn alternative_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else { return Vec::new() };
    let found = &extension.value.general_names;
    let (mut emails, mut hosts, mut uris) = (Vec::new(), Vec::new(), Vec::new());
    for name in found {
        match name {
            GeneralName::RFC822Name(email) => emails.push((*email).to_owned()),
            GeneralName::DNSName(host) => hosts.push((*host).to_owned()),
            GeneralName::URI(uri) => uris.push((*uri).to_owned()),
            _ => {}
        }
    }
    [emails, hosts, uris].concat()
}

fn sha256(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in digest::digest(&digest::SHA256, bytes).as_ref() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests;
