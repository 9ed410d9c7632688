//! Authentication against configured users.

use super::*;
use crate::options::User;

fn user(name: &str, password: &str) -> User {
    User {
        name: name.to_owned(),
        password: Some(Secret::new(password)),
        permissions: None,
        allowed_connection_types: BTreeSet::new(),
        proxy_required: false,
    }
}

fn login(user: &str, password: &str) -> Credentials {
    let (user, password) = (user.to_owned(), password.to_owned());
    Credentials { user, password, ..Credentials::default() }
}

#[test]
fn nothing_configured_admits_everyone() {
    let auth = Authenticator::new(&Options::default());
    assert!(!auth.asks());
    assert!(auth.check(&login("a", "b"), "").is_some());
}

#[test]
fn users_and_no_auth_user() {
    let mut options = Options::default();
    options.auth.users = vec![user("a", "secret"), user("guest", "g")];
    let auth = Authenticator::new(&options);
    assert!(auth.asks());
    assert_eq!(auth.check(&login("a", "secret"), "").unwrap().user, "a");
    assert!(auth.check(&login("a", "Secret"), "").is_none());
    assert!(auth.check(&login("a", "secret2"), "").is_none());
    assert!(auth.check(&login("b", "secret"), "").is_none());
    assert!(auth.check(&Credentials::default(), "").is_none());
    options.auth.no_auth_user = Some("guest".to_owned());
    let auth = Authenticator::new(&options);
    assert!(!auth.asks());
    assert_eq!(auth.check(&Credentials::default(), "").unwrap().user, "guest");
}

#[test]
fn token_and_bcrypt() {
    let mut options = Options::default();
    options.auth.token = Some(Secret::new(bcrypt::hash("s3cr3t", 4).unwrap()));
    let auth = Authenticator::new(&options);
    let token = |text: &str| Credentials { token: text.to_owned(), ..Credentials::default() };
    assert!(auth.is_slow(&token("x")));
    assert!(auth.check(&token("s3cr3t"), "").is_some());
    assert!(auth.check(&token("s3cr3"), "").is_none());
}

#[test]
fn nkeys_sign_the_nonce() {
    use base64::Engine;
    use ring::signature::{Ed25519KeyPair, KeyPair};
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let mut options = Options::default();
    options.auth.nkeys = vec![options::NkeyUser {
        public: "UKEY".to_owned(),
        key: pair.public_key().as_ref().try_into().unwrap(),
        permissions: None,
        allowed_connection_types: BTreeSet::new(),
        proxy_required: false,
    }];
    let auth = Authenticator::new(&options);
    assert!(auth.needs_nonce());
    let signature = pair.sign(b"nonce");
    let signature = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(signature.as_ref());
    let credentials = Credentials { nkey: "UKEY".to_owned(), signature, ..Credentials::default() };
    assert_eq!(auth.check(&credentials, "nonce").unwrap().user, "UKEY");
    assert!(auth.check(&credentials, "other").is_none());
}

fn stays(old: &Options, new: &Options, user: &str) -> bool {
    let (old, new) = (Authenticator::new(old), Authenticator::new(new));
    let origin = Origin::default();
    new.standing(&old, &origin, user, options::GLOBAL_ACCOUNT, &None) == Standing::Same
}

#[test]
fn after_a_reload_only_those_stay_who_would_get_in_again() {
    let open = Options::default();
    let with = |auth: options::AuthOptions| Options { auth, ..Options::default() };
    let users = |list: Vec<User>, no_auth_user: Option<&str>| {
        let no_auth_user = no_auth_user.map(str::to_owned);
        with(options::AuthOptions { users: list, no_auth_user, ..Default::default() })
    };
    let token = |text: &str| {
        with(options::AuthOptions { token: Some(Secret::new(text)), ..Default::default() })
    };
    // Nobody showed anything before there was something to show.
    assert!(!stays(&open, &token("t"), ""));
    assert!(stays(&token("t"), &token("t"), ""));
    assert!(!stays(&token("t"), &token("other"), ""));
    let one = || users(vec![user("a", "one")], None);
    assert!(stays(&one(), &users(vec![user("a", "one"), user("b", "x")], None), "a"));
    assert!(!stays(&one(), &users(vec![user("a", "two")], None), "a"));
    assert!(!stays(&one(), &users(vec![user("b", "one")], None), "a"));
    let guest = users(vec![user("a", "one")], Some("a"));
    assert!(!stays(&guest, &one(), "a"));
    assert!(stays(&guest, &guest, "a"));
}

/// In the account of a callout's service nobody may ask it, and whoever is in already hears of that, too.
#[test]
fn a_callout_changes_the_rights_of_the_one_user() {
    let auth = |callout: Option<AuthCallout>| {
        let (user, password) = (Some("s".to_owned()), Some(Secret::new("pw")));
        let auth = options::AuthOptions { user, password, callout, ..Default::default() };
        Authenticator::new(&Options { auth, ..Options::default() })
    };
    let callout = AuthCallout {
        issuer: String::new(),
        account: options::GLOBAL_ACCOUNT.to_owned(),
        auth_users: BTreeSet::from(["s".to_owned()]),
        allowed_accounts: BTreeSet::new(),
        xkey: None,
    };
    let (without, with) = (auth(None), auth(Some(callout)));
    let standing = |new: &Authenticator, old: &Authenticator, rights: &Option<Arc<Rights>>| {
        new.standing(old, &Origin::default(), "s", options::GLOBAL_ACCOUNT, rights)
    };
    let Standing::Rights(Some(denied)) = standing(&with, &without, &None) else {
        panic!("it is denied something now")
    };
    let publish = denied.source.publish.as_ref().expect("publish");
    assert_eq!(publish.deny, [options::CALLOUT_SUBJECT]);
    assert!(standing(&with, &with, &Some(denied.clone())) == Standing::Same);
    assert!(standing(&without, &with, &Some(denied)) == Standing::Rights(None));
}
