use super::*;
use crate::tls::ocsp::request;
use crate::tls::ocsp::responder::{Answer, Authority};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

fn link(authority: &Authority, name: &str) -> Link {
    let read = |name: &str| CertificateDer::from_pem_file(authority.path(name)).unwrap();
    let issuer = Issuer::of(&read("ca.pem")).unwrap();
    Link::new(&read(&format!("{name}.pem")), issuer).unwrap()
}

#[test]
fn what_responders_say() {
    let authority = Authority::new("says");
    authority.issue("one", 1);
    let link = link(&authority, "one");
    assert_eq!(link.responders, [authority.url()]);
    let request = request(&link);
    let said = |answer| {
        let response = read(&authority.response(&request, answer), &link, SystemTime::now());
        response.map(|response| (response.status, response.next_update.is_some()))
    };
    for (answer, expected) in [
        (Answer::Good, Ok((Status::Good, true))),
        (Answer::Revoked, Ok((Status::Revoked, true))),
        (Answer::Unknown, Ok((Status::Unknown, true))),
        (Answer::GoodWithoutEnd, Ok((Status::Good, false))),
        (Answer::Delegated, Ok((Status::Good, true))),
        (Answer::Usurped, Err(ResponseError::Signature)),
        (Answer::Forged, Err(ResponseError::Signature)),
        (Answer::Other, Err(ResponseError::OtherCertificate)),
        (Answer::CriticalExtension, Err(ResponseError::Extension)),
        (Answer::TryLater, Err(ResponseError::Refused("try later"))),
        (Answer::Nonsense, Err(ResponseError::Malformed)),
        (Answer::Large, Err(ResponseError::Malformed)),
    ] {
        assert_eq!(said(answer), expected, "{answer:?}");
    }
}

/// The signature of a delegate counts while its certificate does.
#[test]
fn a_delegate_whose_certificate_has_ended() {
    let authority = Authority::new("ended");
    authority.issue("one", 1);
    let link = link(&authority, "one");
    let response = authority.response(&request(&link), Answer::Delegated);
    let later = SystemTime::now() + Duration::from_secs(3600 * 24 * 365 * 3000);
    assert_eq!(read(&response, &link, later), Err(ResponseError::Signature));
    assert_eq!(read_past(&response, &link), read(&response, &link, SystemTime::now()));
    // A certificate that had ended before has signed nothing.
    let response = authority.response(&request(&link), Answer::RevokedByDelegate(-7200));
    assert_eq!(read_past(&response, &link), Err(ResponseError::Signature));
}

/// No change of a byte, and no part, says anything else of the certificate than what was signed.
#[test]
fn nothing_but_what_was_signed_is_believed() {
    let authority = Authority::new("damaged");
    authority.issue("one", 1);
    let link = link(&authority, "one");
    let now = SystemTime::now();
    for answer in [Answer::Revoked, Answer::Delegated] {
        let whole = authority.response(&request(&link), answer);
        let expected = read(&whole, &link, now).unwrap();
        for at in 0..whole.len() {
            let _ = read(&whole[..at], &link, now).unwrap_err();
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                if let Ok(response) = read(&damaged, &link, now) {
                    assert_eq!(response, expected, "bit {bit} of byte {at}");
                }
            }
        }
    }
}

#[test]
fn times_have_one_form() {
    let at = |text: &str| time(text.as_bytes()).map(|at| at.duration_since(UNIX_EPOCH).unwrap());
    assert_eq!(at("20261127080000Z"), Ok(Duration::from_secs(1_795_766_400)));
    for bad in ["20261127080000", "20261327080000Z", "202611270800Z", "19260101000000Z", "Z", ""] {
        assert_eq!(at(bad), Err(Malformed), "{bad}");
    }
}
