//! The secret that the nodes of a cluster share, and what it makes of a connection between them.
//!
//! Every node derives the same Ed25519 key from the secret. Connections are TLS 1.3 in which both sides show
//! that raw public key (RFC 7250) and prove that they hold its private half: who does not know the secret is no
//! node, and reads and changes nothing. There are no certificates, names or dates.

use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring as provider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};
use std::sync::Arc;

/// Fewest bytes of a secret.
pub const SECRET_MIN: usize = 32;

/// Salt and purpose of the derivation; another one would be another key.
const SALT: &[u8] = b"nuthatch cluster key 1";
const PURPOSE: &[u8] = b"node port: ed25519 seed";

/// What stands before the 32 bytes of an Ed25519 seed in PKCS #8 (RFC 8410, section 7).
const PKCS8: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// What stands before the 32 bytes of an Ed25519 public key in a `SubjectPublicKeyInfo` (RFC 8410, section 4).
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The key of a cluster.
#[derive(Clone)]
pub struct ClusterKey {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
}

/// Why a secret is none.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyError {
    /// It can be guessed.
    #[error(
        "a cluster's key has at least {SECRET_MIN} bytes, this one {found}: \
         `head -c 32 /dev/urandom | base64` makes one"
    )]
    Short {
        /// Its bytes.
        found: usize,
    },
}

impl ClusterKey {
    /// The key that follows from a secret. White space around it does not count.
    ///
    /// # Errors
    /// It is too short.
    pub fn new(secret: &[u8]) -> Result<Self, KeyError> {
        let secret = secret.trim_ascii();
        if secret.len() < SECRET_MIN {
            return Err(KeyError::Short { found: secret.len() });
        }
        let (provider, own) = (Arc::new(provider::default_provider()), certified(secret));
        let only =
            Arc::new(OnlyThisKey { public: own.cert[0].clone(), provider: provider.clone() });
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider has TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(only.clone())
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
                own.clone(),
            )));
        client.resumption = rustls::client::Resumption::disabled();
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider has TLS 1.3")
            .with_client_cert_verifier(only)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)));
        // Who connects only writes: tickets would wait for a reader.
        server.send_tls13_tickets = 0;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }
}

impl ClusterKey {
    /// TLS of a connection to another node, whatever name is asked for.
    #[must_use]
    pub fn outward(&self) -> Arc<ClientConfig> {
        self.client.clone()
    }

    /// TLS of a connection of another node.
    #[must_use]
    pub fn inward(&self) -> Arc<ServerConfig> {
        self.server.clone()
    }
}

impl std::fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterKey")
    }
}

struct SeedLen;

impl KeyType for SeedLen {
    fn len(&self) -> usize {
        32
    }
}

/// The key pair that follows from a secret.
fn certified(secret: &[u8]) -> Arc<CertifiedKey> {
    let mut seed = [0; 32];
    let derived = Salt::new(HKDF_SHA256, SALT).extract(secret);
    let filled = derived.expand(&[PURPOSE], SeedLen).and_then(|okm| okm.fill(&mut seed));
    filled.expect("32 bytes are no more than HKDF gives");
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("every seed makes a key");
    let public = [&SPKI[..], pair.public_key().as_ref()].concat();
    let private = PrivatePkcs8KeyDer::from([&PKCS8[..], &seed].concat());
    let signing = provider::sign::any_eddsa_type(&private).expect("it is an Ed25519 key");
    Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], signing))
}

/// Takes whoever proves to hold the private half of this key, and nobody else.
#[derive(Debug)]
struct OnlyThisKey {
    public: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl OnlyThisKey {
    fn look_at(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        match *shown == self.public {
            true => Ok(()),
            false => {
                Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
            }
        }
    }

    fn verify(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let public = SubjectPublicKeyInfoDer::from(shown.as_ref());
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &public, signed, algorithms)
    }
}

impl ServerCertVerifier for OnlyThisKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.look_at(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("nodes speak TLS 1.3".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for OnlyThisKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.look_at(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("nodes speak TLS 1.3".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_secret_makes_the_same_key_and_another_one_another() {
        let public = |secret: &[u8]| certified(secret).cert[0].clone();
        assert_eq!(public(&[1; 32]), public(&[1; 32]));
        assert_ne!(public(&[1; 32]), public(&[2; 32]));
    }

    #[test]
    fn what_can_be_guessed_is_no_secret() {
        assert!(ClusterKey::new(b"  secret\n").is_err_and(|e| e == KeyError::Short { found: 6 }));
        assert!(ClusterKey::new(&[b'x'; SECRET_MIN]).is_ok());
    }
}
