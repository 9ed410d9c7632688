//! Authentication: a client's credentials against the configuration.

use crate::identity::{CertificateLogin, Credentials, Identity, Origin, Rights};
use crate::operator::{Denial, Operator, Settings};
use crate::options::{self, AuthCallout, ConnectionType, Options, Secret, TrustedProxy};
use crate::signature;
use crate::tls::peer::{PeerCertificate, UserNames};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

pub use self::delegation::{OfAccount, Service};
pub use self::gate::SlowChecks;
pub use self::proxies::Proxied;

mod delegation;
mod gate;
mod proxies;

#[derive(PartialEq, Eq)]
enum Proof {
    Password(Option<Secret>),
    Nkey([u8; 32]),
}

struct Entry {
    account: String,
    proof: Proof,
    rights: Option<Arc<Rights>>,
    kinds: BTreeSet<ConnectionType>,
    /// Only through a trusted proxy.
    proxied_only: bool,
}

/// The one user, or the one token, of a block.
#[derive(Default, PartialEq, Eq)]
struct Single {
    user: Option<String>,
    password: Option<Secret>,
    token: Option<Secret>,
}

impl Single {
    fn of(user: &Option<String>, password: &Option<Secret>, token: &Option<Secret>) -> Self {
        Self { user: user.clone(), password: password.clone(), token: token.clone() }
    }

    fn is_there(&self) -> bool {
        self.user.is_some() || self.token.is_some()
    }
}

/// What is to become of a client that wants to come in.
pub enum Decision {
    /// Who it is; an error is an authorization violation, with the reason for the log, if there is more to
    /// say.
    Made(Result<Identity, Option<Denial>>),
    /// This service decides.
    OfService(Service),
}

/// What a change of the users means for a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Nothing.
    Same,
    /// It has other permissions now.
    Rights(Option<Arc<Rights>>),
    /// It would not be let in.
    Gone,
}

/// The users of a configuration.
#[derive(Default)]
pub struct Authenticator {
    users: FxHashMap<String, Entry>,
    nkeys: FxHashMap<String, Entry>,
    single: Single,
    /// The one user or token of websocket clients, if those have their own.
    of_websocket: Option<Single>,
    no_auth_user: Option<String>,
    required: bool,
    /// Proxies that are believed.
    proxies: Vec<TrustedProxy>,
    /// The one user, or the one with the token, has to come through one.
    single_proxied_only: bool,
    /// The service that says who clients are.
    callout: Option<Arc<AuthCallout>>,
    /// In operator mode: the operator, which knows the users.
    operator: Option<(Arc<Operator>, Arc<Settings>)>,
}

impl Authenticator {
    /// The users of these options.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        let auth = &options.auth;
        let mut this = Self {
            single: Single::of(&auth.user, &auth.password, &auth.token),
            of_websocket: options
                .websocket
                .as_ref()
                .and_then(|ws| ws.auth.as_ref())
                .map(|own| Single::of(&own.user, &own.password, &own.token)),
            no_auth_user: auth.no_auth_user.clone(),
            callout: auth.callout.clone().map(Arc::new),
            proxies: options.proxies.clone(),
            single_proxied_only: auth.proxy_required,
            ..Self::default()
        };
        this.add(options::GLOBAL_ACCOUNT, &auth.users, &auth.nkeys);
        for account in &options.accounts {
            this.add(&account.name, &account.users, &account.nkeys);
        }
        this.required = auth.is_configured() || !this.users.is_empty() || !this.nkeys.is_empty();
        this
    }

    /// The users that only leaf nodes have; `None`: there are none.
    #[must_use]
    pub fn of_leafs(leafs: &options::LeafAuth) -> Option<Self> {
        if !leafs.is_configured() {
            return None;
        }
        let mut this = Self { required: true, ..Self::default() };
        let account = |name: &Option<String>| {
            name.clone().unwrap_or_else(|| options::GLOBAL_ACCOUNT.to_owned())
        };
        let one = leafs.user.as_ref().map(|name| (name, &leafs.password, &leafs.account, false));
        let several = leafs
            .users
            .iter()
            .map(|user| (&user.name, &user.password, &user.account, user.proxy_required));
        for (name, password, of, proxied_only) in one.into_iter().chain(several) {
            let entry = Entry {
                account: account(of),
                proof: Proof::Password(password.clone()),
                rights: None,
                kinds: BTreeSet::new(),
                proxied_only: proxied_only || leafs.proxy_required,
            };
            this.users.insert(name.clone(), entry);
        }
        if let Some((text, key)) = &leafs.nkey {
            let entry = Entry {
                account: account(&leafs.account),
                proof: Proof::Nkey(*key),
                rights: None,
                kinds: BTreeSet::new(),
                proxied_only: leafs.proxy_required,
            };
            this.nkeys.insert(text.clone(), entry);
        }
        Some(this)
    }

    /// The users of an operator's accounts instead, if there is one.
    #[must_use]
    pub fn with_operator(mut self, operator: Option<Arc<Operator>>, options: &Options) -> Self {
        self.required |= operator.is_some();
        self.operator = operator.map(|operator| (operator, Arc::new(Settings::new(options))));
        self
    }

    fn add(&mut self, account: &str, users: &[options::User], nkeys: &[options::NkeyUser]) {
        for user in users {
            let entry = Entry {
                account: account.to_owned(),
                proof: Proof::Password(user.password.clone()),
                rights: self.rights_in(account, user.permissions.as_ref()),
                kinds: user.allowed_connection_types.clone(),
                proxied_only: user.proxy_required,
            };
            self.users.insert(user.name.clone(), entry);
        }
        for user in nkeys {
            let entry = Entry {
                account: account.to_owned(),
                proof: Proof::Nkey(user.key),
                rights: self.rights_in(account, user.permissions.as_ref()),
                kinds: user.allowed_connection_types.clone(),
                proxied_only: user.proxy_required,
            };
            self.nkeys.insert(user.public.clone(), entry);
        }
    }

    /// True if clients must say who they are (INFO `auth_required`).
    #[must_use]
    pub fn asks(&self) -> bool {
        self.required && self.no_auth_user.is_none()
    }

    /// True if any authentication is configured at all.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        self.required
    }

    /// True if those who come like this must say who they are, or be the user of those who do not.
    #[must_use]
    pub fn requires(&self, is_websocket: bool) -> bool {
        self.required || (is_websocket && self.of_websocket.is_some())
    }

    fn requires_of(&self, origin: &Origin) -> bool {
        self.requires(origin.is_websocket && !origin.is_leaf)
    }

    fn single_of(&self, origin: &Origin) -> &Single {
        match &self.of_websocket {
            Some(own) if origin.is_websocket && !origin.is_leaf => own,
            _ => &self.single,
        }
    }

    /// True if clients may need a nonce to sign.
    #[must_use]
    pub fn needs_nonce(&self) -> bool {
        !self.nkeys.is_empty() || self.operator.is_some() || !self.proxies.is_empty()
    }

    /// True if these credentials lead to a bcrypt hash, whose check takes long.
    #[must_use]
    pub fn is_slow(&self, credentials: &Credentials) -> bool {
        let secret = match self.users.get(&credentials.user) {
            Some(Entry { proof: Proof::Password(secret), .. }) => secret.as_ref(),
            _ => {
                let single = self.single_of(&credentials.origin);
                single.token.as_ref().or(single.password.as_ref())
            }
        };
        secret.is_some_and(Secret::is_bcrypt)
    }

    /// Who the client is, or who has to say so.
    #[must_use]
    pub fn decide(&self, credentials: &Credentials, nonce: &str) -> Decision {
        if self.operator.is_none() && self.lacks_proxy(credentials) {
            return Decision::Made(Err(Some(Denial::ProxyRequired)));
        }
        let found = self.examine(credentials, nonce);
        let of_account = || self.service_of_account(found.as_ref().ok()?);
        let configured = || self.service_for(credentials, found.as_ref().ok());
        match of_account().or_else(|| configured().cloned().map(Service::Configured)) {
            Some(service) => Decision::OfService(service),
            None => Decision::Made(found),
        }
    }

    fn examine(&self, credentials: &Credentials, nonce: &str) -> Result<Identity, Option<Denial>> {
        match &self.operator {
            Some((operator, settings)) => {
                let now = SystemTime::now();
                operator.authenticate(credentials, nonce, settings, now).map_err(Some)
            }
            None => self.check(credentials, nonce).ok_or(None),
        }
    }

    /// Authenticates a client outside of operator mode; `None`: authorization violation.
    fn check(&self, credentials: &Credentials, nonce: &str) -> Option<Identity> {
        if !self.requires_of(&credentials.origin) {
            return Some(Identity::global(""));
        }
        if !credentials.nkey.is_empty() && !self.nkeys.is_empty() {
            let entry = self.nkeys.get(&credentials.nkey)?;
            return entry
                .proves(credentials, nonce)
                .then(|| entry.identity(&credentials.nkey))
                .filter(|_| entry.admits(&credentials.origin));
        }
        if !self.users.is_empty() {
            match &credentials.origin.certificate {
                CertificateLogin::Unused => {}
                CertificateLogin::Missing => return None,
                CertificateLogin::Shown(certificate) => {
                    return self.by_certificate(certificate, &credentials.origin);
                }
            }
        }
        if !credentials.user.is_empty()
            && let Some(entry) = self.users.get(&credentials.user)
        {
            return entry
                .proves(credentials, nonce)
                .then(|| entry.identity(&credentials.user))
                .filter(|_| entry.admits(&credentials.origin));
        }
        if credentials.is_empty()
            && let Some(name) = self.open_user(&credentials.origin)
        {
            return self.unproven(name, &credentials.origin);
        }
        self.check_single(credentials)
    }

    /// The user that clients without credentials become.
    #[must_use]
    pub fn anonymous(&self, origin: &Origin) -> Option<Identity> {
        if !self.requires_of(origin) {
            return Some(Identity::global(""));
        }
        let credentials = Credentials { origin: origin.clone(), ..Credentials::default() };
        let found = self.open_user(origin).and_then(|name| self.unproven(name, origin));
        // Who says nothing asks nobody either.
        found.filter(|found| self.service_for(&credentials, Some(found)).is_none())
    }

    fn open_user<'a>(&'a self, origin: &'a Origin) -> Option<&'a String> {
        origin.no_auth_user.as_ref().or(self.no_auth_user.as_ref())
    }

    /// The user that a certificate names; its password is not asked for.
    fn by_certificate(&self, certificate: &PeerCertificate, origin: &Origin) -> Option<Identity> {
        let name = certificate.find_user(&Mapped { auth: self, origin })?;
        self.users.get(name).map(|entry| entry.identity(name))
    }

    /// What becomes of a connection that `old` let in as this user. It stays if the user is still there
    /// and what the client showed then would still do.
    #[must_use]
    pub fn standing(
        &self,
        old: &Self,
        origin: &Origin,
        user: &str,
        account: &str,
        rights: &Option<Arc<Rights>>,
    ) -> Standing {
        let same_if = |holds: bool| if holds { Standing::Same } else { Standing::Gone };
        if self.operator.is_some() {
            // Its accounts see to it themselves.
            return Standing::Same;
        }
        if self.asks_about(user, account, origin.is_leaf) {
            // The service has never said anything of it.
            return Standing::Gone;
        }
        if !self.requires_of(origin) {
            return same_if(user.is_empty() && rights.is_none());
        }
        if !old.requires_of(origin) {
            return Standing::Gone;
        }
        if let Some(entry) = self.entry(user) {
            // It may have shown nothing at all, as the user of those without credentials.
            let was_open = old.open_user(origin).is_some_and(|name| name == user);
            let stays = entry.account == account
                && entry.admits(origin)
                && old.entry(user).is_some_and(|before| before.proof == entry.proof)
                && (!was_open || self.open_user(origin) == old.open_user(origin));
            return match stays && entry.rights != *rights {
                true => Standing::Rights(entry.rights.clone()),
                false => same_if(stays),
            };
        }
        let single = self.single_of(origin);
        let stays = single.is_there()
            && single == old.single_of(origin)
            && user == single.user.as_deref().unwrap_or_default();
        let now = self.single(user).rights;
        match stays && now != *rights {
            true => Standing::Rights(now),
            false => same_if(stays),
        }
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        self.users.get(name).or_else(|| self.nkeys.get(name))
    }

    fn unproven(&self, name: &str, origin: &Origin) -> Option<Identity> {
        let entry = self.entry(name)?;
        Some(entry.identity(name)).filter(|_| entry.admits(origin))
    }

    fn check_single(&self, credentials: &Credentials) -> Option<Identity> {
        let single = self.single_of(&credentials.origin);
        if let Some(token) = &single.token {
            return same_secret(token, &credentials.token).then(|| self.single(""));
        }
        let user = single.user.as_ref()?;
        let password = match &single.password {
            Some(secret) => same_secret(secret, &credentials.password),
            None => credentials.password.is_empty(),
        };
        (*user == credentials.user && password).then(|| self.single(user))
    }
}

/// The users that a certificate may name: those who may connect like this.
struct Mapped<'a> {
    auth: &'a Authenticator,
    origin: &'a Origin,
}

impl<'a> UserNames<'a> for Mapped<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        let (name, entry) = self.auth.users.get_key_value(name)?;
        entry.admits(self.origin).then_some(name)
    }

    fn all(&self) -> Vec<&'a str> {
        let users = self.auth.users.iter().filter(|(_, entry)| entry.admits(self.origin));
        let mut names: Vec<&str> = users.map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names
    }
}

impl Entry {
    fn admits(&self, origin: &Origin) -> bool {
        let is_way = self.kinds.is_empty() || self.kinds.contains(&origin.kind());
        is_way && (!self.proxied_only || origin.is_proxied)
    }

    fn identity(&self, name: &str) -> Identity {
        let (user, account) = (name.to_owned(), self.account.clone());
        Identity { user, account, rights: self.rights.clone(), grant: None }
    }

    fn proves(&self, credentials: &Credentials, nonce: &str) -> bool {
        match &self.proof {
            Proof::Password(Some(secret)) => same_secret(secret, &credentials.password),
            Proof::Password(None) => credentials.password.is_empty(),
            Proof::Nkey(key) => signature::verify_nonce(key, nonce, &credentials.signature),
        }
    }
}

/// Compares without telling by its duration how much was right.
fn same_secret(secret: &Secret, given: &str) -> bool {
    let expected = secret.expose();
    if secret.is_bcrypt() {
        return bcrypt::verify(given, expected).unwrap_or(false);
    }
    let (expected, given) = (expected.as_bytes(), given.as_bytes());
    let mut difference = u8::from(expected.len() != given.len());
    for (at, byte) in given.iter().enumerate() {
        difference |= byte ^ expected.get(at).copied().unwrap_or(!byte);
    }
    difference == 0
}

#[cfg(test)]
mod tests;
