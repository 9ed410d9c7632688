//! What is known of a client: its account, its identity, and what it asked for in its CONNECT.

use crate::account::Account;
use crate::identity::{Grant, Rights};
use std::sync::Arc;

/// The client's CONNECT options and its authenticated identity.
#[derive(Clone)]
pub struct Session {
    /// Its account.
    pub account: Arc<Account>,
    /// User name or public nkey; empty without authentication.
    pub user: String,
    /// Its permissions; `None`: unrestricted.
    pub rights: Option<Arc<Rights>>,
    /// Content of its token; `None` outside of operator mode.
    pub grant: Option<Arc<Grant>>,
    /// Public key of the trusted proxy that it came through.
    pub proxy: Option<String>,
    /// `verbose`.
    pub verbose: bool,
    /// `pedantic`.
    pub pedantic: bool,
    /// `echo`.
    pub echo: bool,
    /// `headers`.
    pub headers: bool,
    /// `no_responders`.
    pub no_responders: bool,
    /// `protocol`.
    pub protocol: i64,
    /// `name`.
    pub name: String,
    /// `lang`.
    pub lang: String,
    /// `version`.
    pub version: String,
}

impl Session {
    /// How a client is treated before its CONNECT.
    #[must_use]
    pub fn initial(account: Arc<Account>) -> Self {
        Self {
            account,
            user: String::new(),
            rights: None,
            grant: None,
            proxy: None,
            verbose: true,
            pedantic: true,
            echo: true,
            headers: false,
            no_responders: false,
            protocol: 0,
            name: String::new(),
            lang: String::new(),
            version: String::new(),
        }
    }

    /// How another server is treated that we connect to.
    #[must_use]
    pub fn of_leaf(account: Arc<Account>) -> Self {
        Self { verbose: false, pedantic: false, echo: false, ..Self::initial(account) }
    }

    /// The account's name for people.
    #[must_use]
    pub fn account_name(&self) -> &str {
        self.grant.as_ref().map_or(&self.account.name, |grant| &grant.account_name)
    }
}
