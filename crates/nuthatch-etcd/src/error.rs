//! Why etcd cannot be used, or a request had no success.

use std::io;

/// Why an address or its settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Not an address of etcd.
    #[error(
        "{address:?} is not an address of etcd: {why}; expected etcd://HOST:PORT[,HOST:PORT...]/PREFIX, or etcds:// \
         where etcd speaks TLS"
    )]
    Address {
        /// The address, without what may be a secret.
        address: String,
        /// The fault.
        why: String,
    },
    /// A variable of the environment lacks another, or has no use.
    #[error("{0}")]
    Environment(&'static str),
    /// A file that the environment names cannot be read.
    #[error("{variable} names {file}: {source}")]
    File {
        /// The variable.
        variable: &'static str,
        /// The file.
        file: String,
        /// Why not.
        source: io::Error,
    },
    /// What the certificates' files hold does not fit.
    #[error("the certificates for etcd: {why}")]
    Certificates {
        /// Why not.
        why: String,
    },
    /// The operating system has no threads to give.
    #[error("etcd: {0}")]
    System(#[from] io::Error),
}

/// Why a request had no success. Of one that writes it is not known whether it was, or will be, carried out, where
/// [`EtcdError::is_passing`] says so.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EtcdError {
    /// No server has answered in time, or none that can.
    #[error("etcd does not answer ({operation} of {key}; {endpoint}: {why})")]
    Away {
        /// The operation that failed.
        operation: &'static str,
        /// The key, with its prefix.
        key: String,
        /// The server that was asked last.
        endpoint: String,
        /// What was the matter with it.
        why: String,
    },
    /// etcd takes no writes: its space is used up.
    #[error(
        "etcd refuses all writes, because its space is used up (alarm NOSPACE): compact and defragment it, or raise its \
         --quota-backend-bytes, and then disarm the alarm with `etcdctl alarm disarm`"
    )]
    NoSpace,
    /// The user or the password is wrong.
    #[error(
        "etcd refuses user {user:?}: the user or its password is wrong (NUTHATCH_ETCD_USER, NUTHATCH_ETCD_PASSWORD)"
    )]
    WrongPassword {
        /// The user.
        user: String,
    },
    /// etcd wants a user, and none is set up.
    #[error("etcd wants a user: set NUTHATCH_ETCD_USER and NUTHATCH_ETCD_PASSWORD")]
    NoUser,
    /// The user has no right to the prefix.
    #[error(
        "etcd does not let {user} use {key}: grant it to a role of the user (`etcdctl role grant-permission ROLE --prefix=true \
         readwrite {prefix}`)"
    )]
    Forbidden {
        /// The user.
        user: String,
        /// The key, with its prefix.
        key: String,
        /// The prefix of all keys.
        prefix: String,
    },
    /// A value is larger than a request to etcd may be.
    #[error("{key} has {bytes} bytes, and etcd takes at most {max} of them in a request")]
    TooLarge {
        /// The key, with its prefix.
        key: String,
        /// What it would have.
        bytes: usize,
        /// How many it may have.
        max: usize,
    },
    /// etcd refused for another reason.
    #[error("etcd refuses {operation} of {key}: {why}")]
    Refused {
        /// The operation that failed.
        operation: &'static str,
        /// The key, with its prefix.
        key: String,
        /// Its answer.
        why: String,
    },
    /// The connection is being closed.
    #[error("etcd is not used any more")]
    Closed,
}

impl EtcdError {
    /// True if asking again later may help without anybody having changed a setting.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Away { .. })
    }
}
