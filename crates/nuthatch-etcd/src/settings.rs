//! What beside the address is needed, from the environment: a user, and files of certificates.

use crate::error::OpenError;

/// The user, if etcd wants one.
pub const USER: &str = "NUTHATCH_ETCD_USER";
/// Its password.
pub const PASSWORD: &str = "NUTHATCH_ETCD_PASSWORD";
/// File with the certificates (PEM) of who signs those of etcd; without it the system's count.
pub const CA_FILE: &str = "NUTHATCH_ETCD_CA_FILE";
/// File with the certificate (PEM) that is shown to etcd, and those up to who signed it.
pub const CERT_FILE: &str = "NUTHATCH_ETCD_CERT_FILE";
/// File with its key (PEM).
pub const KEY_FILE: &str = "NUTHATCH_ETCD_KEY_FILE";

/// A user of etcd.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Its name.
    pub user: String,
    /// Its password.
    pub password: String,
}

/// How etcd is spoken to.
#[derive(Clone, Default)]
pub struct Settings {
    /// None: etcd is asked as nobody, or as whom the certificate names.
    pub credentials: Option<Credentials>,
    /// Certificates that etcd's are signed by; none: the system's.
    pub ca: Option<Vec<u8>>,
    /// A certificate that is shown, and its key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Settings {
    /// Reads those that `variable` gives, which is asked by name.
    ///
    /// # Errors
    /// [`OpenError`]: files cannot be read, or one of two is not given. No value is in its text.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, OpenError> {
        let given = |name: &'static str| variable(name).filter(|value| !value.is_empty());
        let file = |name: &'static str| {
            let named = given(name).map(|file| {
                std::fs::read(&file).map_err(|source| OpenError::File {
                    variable: name,
                    file,
                    source,
                })
            });
            named.transpose()
        };
        let credentials = match (given(USER), given(PASSWORD)) {
            (Some(user), Some(password)) => Some(Credentials { user, password }),
            (None, None) => None,
            _ => {
                return Err(OpenError::Environment(
                    "NUTHATCH_ETCD_USER and NUTHATCH_ETCD_PASSWORD belong together: one of them is not set",
                ));
            }
        };
        let identity = match (file(CERT_FILE)?, file(KEY_FILE)?) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => {
                return Err(OpenError::Environment(
                    "NUTHATCH_ETCD_CERT_FILE and NUTHATCH_ETCD_KEY_FILE belong together: one of them is not set",
                ));
            }
        };
        Ok(Self { credentials, ca: file(CA_FILE)?, identity })
    }

    /// Those of this process's environment.
    ///
    /// # Errors
    /// As [`Settings::read`].
    pub fn from_environment() -> Result<Self, OpenError> {
        Self::read(|name| std::env::var(name).ok())
    }

    /// Refuses certificates where there is no TLS.
    pub(crate) fn check(&self, tls: bool) -> Result<(), OpenError> {
        let has_files = self.ca.is_some() || self.identity.is_some();
        if has_files && !tls {
            return Err(OpenError::Environment(
                "certificates are given for etcd (NUTHATCH_ETCD_CA_FILE, NUTHATCH_ETCD_CERT_FILE), and its address says \
                 etcd://, which is plain text: write etcds://",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &[(&str, &str)]) -> Result<Settings, OpenError> {
        let value = |name: &str| given.iter().find(|(known, _)| *known == name);
        Settings::read(|name| value(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn what_belongs_together_is_given_together_and_no_secret_is_told() {
        assert!(read(&[]).expect("nothing is needed").credentials.is_none());
        assert!(read(&[(USER, ""), (PASSWORD, "")]).expect("as if not set").credentials.is_none());
        let both = read(&[(USER, "n"), (PASSWORD, "secret")]).expect("both");
        assert!(
            both.credentials.is_some_and(|known| known.user == "n" && known.password == "secret")
        );
        for (given, part) in [
            (&[(PASSWORD, "secret")][..], "belong together"),
            (&[(USER, "n")][..], "belong together"),
            (&[(CA_FILE, "/nowhere/ca.pem")][..], "NUTHATCH_ETCD_CA_FILE names /nowhere/ca.pem"),
            (&[(CERT_FILE, "/proc/self/status")][..], "NUTHATCH_ETCD_KEY_FILE belong together"),
        ] {
            let text = read(given).err().expect("wrong").to_string();
            assert!(text.contains(part) && !text.contains("secret"), "{text}");
        }
        let plain = read(&[(CA_FILE, "/proc/self/status")]).expect("a file").check(false);
        assert!(plain.expect_err("no TLS").to_string().contains("write etcds://"));
    }
}
