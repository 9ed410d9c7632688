//! Errors of configuration files and command lines, and their texts.

use std::fmt;

use nuthatch_protocol::config::{DurationError, Position, SizeError, SyntaxError, SyntaxErrorKind};

/// Most problems of one configuration that are shown.
pub const MAX_SHOWN_PROBLEMS: usize = 50;

/// Why a server cannot start with these arguments. Its text is for the person who wrote them.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum OptionsError {
    /// The configuration file cannot be read.
    #[error("cannot read configuration file '{path}': {why}")]
    Read {
        /// As given.
        path: String,
        /// Why not.
        why: String,
    },
    /// The configuration is not well-formed.
    #[error("{}", first_words(.0))]
    Syntax(#[from] SyntaxError),
    /// The configuration is well-formed and holds something that is wrong or not supported.
    #[error("{}", Shown(.0))]
    Config(Vec<ConfigProblem>),
    /// The command line is wrong.
    #[error(transparent)]
    Flag(#[from] FlagError),
    /// Settings that do not go together.
    #[error(transparent)]
    Conflict(#[from] Conflict),
}

/// The first words are those of nats-server, which people look for.
fn first_words(error: &SyntaxError) -> String {
    let line = error.pos.line;
    match &error.kind {
        SyntaxErrorKind::UnknownVariable { name } => {
            format!("variable reference for '{name}' on line {line} can not be found: {error}")
        }
        SyntaxErrorKind::Include { path, .. } => {
            format!("error parsing include file '{path}', {error}")
        }
        _ => format!("Parse error on line {line}: {error}"),
    }
}

/// Several problems, one per line.
struct Shown<'a>(&'a [ConfigProblem]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().take(MAX_SHOWN_PROBLEMS).enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        match self.0.len().checked_sub(MAX_SHOWN_PROBLEMS) {
            Some(more @ 1..) => write!(f, "\n… and {more} more"),
            _ => Ok(()),
        }
    }
}

/// One thing that is wrong in a configuration file, shown as `file:line:column: what to do`.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{pos}: {kind}")]
pub struct ConfigProblem {
    /// Its position.
    pub pos: Position,
    /// The problem.
    pub kind: ProblemKind,
}

/// The kinds of things that can be wrong in a configuration file.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ProblemKind {
    /// A key that does not exist.
    #[error("unknown field \"{key}\" {place}{}", did_you_mean(.nearest))]
    UnknownKey {
        /// The key as written.
        key: String,
        /// The block it is in, such as `in 'authorization'`.
        place: &'static str,
        /// The known key that looks most like it.
        nearest: Option<&'static str>,
    },
    /// A value of another type than the key takes.
    #[error("'{key}' must be {wanted}, found {found}{}", .advice.as_deref().unwrap_or_default())]
    WrongType {
        /// The key.
        key: String,
        /// The expected value.
        wanted: &'static str,
        /// The value found.
        found: &'static str,
        /// A suggestion, with its leading punctuation.
        advice: Option<String>,
    },
    /// A number outside of what the key takes.
    #[error("'{key}' must be from {min} to {max}, found {found}")]
    Range {
        /// The key.
        key: String,
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
        /// The value found.
        found: i64,
    },
    /// A word that the key does not take.
    #[error("'{key}' must be {wanted}, found '{found}'{}", did_you_mean(.nearest))]
    Word {
        /// The key.
        key: String,
        /// The expected value.
        wanted: &'static str,
        /// The value found.
        found: String,
        /// The word that looks most like it.
        nearest: Option<&'static str>,
    },
    /// Not a duration.
    #[error("'{key}': {source}")]
    Duration {
        /// The key.
        key: String,
        /// Why not.
        source: DurationError,
    },
    /// `2m` without quotes, which is two million.
    #[error(
        "'{key}' is {written}, which without quotes is the number {value}: write \"{written}\" \
         for a duration"
    )]
    UnquotedDuration {
        /// The key.
        key: String,
        /// As written.
        written: String,
        /// The number that it is.
        value: i64,
    },
    /// A duration below what the key takes.
    #[error("'{key}' must be at least {min}, found {found}")]
    TooShort {
        /// The key.
        key: String,
        /// Smallest value.
        min: &'static str,
        /// As written.
        found: String,
    },
    /// Not a size.
    #[error("'{key}': {source}")]
    Size {
        /// The key.
        key: String,
        /// Why not.
        source: SizeError,
    },
    /// Not an address.
    #[error("'{key}': cannot use '{found}' as an address: {why}")]
    Address {
        /// The key.
        key: String,
        /// As written.
        found: String,
        /// Why not.
        why: &'static str,
    },
    /// Not a subject.
    #[error("'{key}': '{found}' is not a valid {what}")]
    Subject {
        /// The key.
        key: String,
        /// As written.
        found: String,
        /// `subject` or `queue name`.
        what: &'static str,
    },
    /// A key that this server knows and does not support.
    #[error("'{key}' {place} is not supported: {reason}")]
    Refused {
        /// The key.
        key: String,
        /// The block it is in, such as `in 'tls'`.
        place: &'static str,
        /// Why, or what to do instead.
        reason: &'static str,
    },
    /// Anything else about one key.
    #[error("'{key}' {what}")]
    Invalid {
        /// The key.
        key: String,
        /// The fault, as the rest of a sentence that begins with the key.
        what: String,
    },
}

fn did_you_mean(nearest: &Option<&'static str>) -> String {
    nearest.map(|n| format!(": did you mean '{n}'?")).unwrap_or_default()
}

/// Errors of a command line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// `---x` or `-=x`.
    #[error("bad flag syntax: '{arg}'")]
    Syntax {
        /// The argument.
        arg: String,
    },
    /// A flag that does not exist.
    #[error("flag provided but not defined: -{name}{} (see --help)", did_you_mean_flag(.nearest))]
    Unknown {
        /// Its name.
        name: String,
        /// The flag that looks most like it.
        nearest: Option<&'static str>,
    },
    /// A flag at the end that takes a value.
    #[error("flag '-{name}' needs a value: write -{name} {value}")]
    NoValue {
        /// Its name.
        name: String,
        /// The value in the help text, such as `<port>`.
        value: &'static str,
    },
    /// A value that the flag does not take.
    #[error("invalid value \"{found}\" for flag -{name}: must be {wanted}")]
    BadValue {
        /// Its name.
        name: String,
        /// The expected value.
        wanted: String,
        /// The value given.
        found: String,
    },
    /// An argument that is not a flag.
    #[error("unknown argument '{arg}': flags begin with '-' (see --help)")]
    Argument {
        /// The argument.
        arg: String,
    },
    /// A flag that this server knows and does not support.
    #[error("flag '-{name}' is not supported: {reason}")]
    Refused {
        /// Its name.
        name: String,
        /// Why, or what to do instead.
        reason: &'static str,
    },
    /// `-t` without `-c`.
    #[error("-t needs a configuration file to test: add -c <file>")]
    NothingToTest,
    /// `-sl` with an unknown command.
    #[error("unknown signal '{found}': use stop, quit, term, reopen, reload, ldm or clock")]
    UnknownSignal {
        /// The value given.
        found: String,
    },
    /// `-sl cmd=x` where `x` is no process.
    #[error("'{found}' is neither a process id nor a file that holds one{why}")]
    BadPid {
        /// The value given.
        found: String,
        /// The file's content, with its leading punctuation.
        why: String,
    },
    /// TLS flags without a certificate.
    #[error("TLS needs both --tlscert <file> and --tlskey <file>")]
    TlsWithoutCertificate,
}

fn did_you_mean_flag(nearest: &Option<&'static str>) -> String {
    nearest.map(|n| format!(": did you mean '-{n}'?")).unwrap_or_default()
}

/// Settings that do not go together, wherever they were made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// Lame duck.
    #[error(
        "lame_duck_grace_period ({grace:?}) must be shorter than lame_duck_duration ({total:?})"
    )]
    LameDuck {
        /// `lame_duck_grace_period`.
        grace: std::time::Duration,
        /// `lame_duck_duration`.
        total: std::time::Duration,
    },
    /// A message that could never be delivered.
    #[error("max_payload ({payload}) cannot be higher than max_pending ({pending})")]
    PayloadAbovePending {
        /// `max_payload`, bytes.
        payload: usize,
        /// `max_pending`, bytes.
        pending: usize,
    },
    /// Server name with a space.
    #[error("server name '{name}' cannot contain spaces")]
    ServerName {
        /// The name.
        name: String,
    },
    /// A node without what it needs.
    #[error(
        "a node of a cluster needs a node port (cluster {{ port }}, -cluster_listen), routes (cluster {{ routes }}, -routes) \
         and a name (server_name, -node_name)"
    )]
    IncompleteCluster,
    /// User and token.
    #[error("a user and a token cannot both be required: keep one of them")]
    UserAndToken,
    /// The single user or token, and users.
    #[error("'{single}' cannot be combined with a list of users: add it to the list instead")]
    SingleAndUsers {
        /// `user` or `token`.
        single: &'static str,
    },
    /// A password without its user.
    #[error("a password is given without a user: add 'user' (--user)")]
    PasswordWithoutUser,
    /// Two users of one name.
    #[error("user '{name}' is defined twice: names must be unique across all accounts")]
    DuplicateUser {
        /// The name or nkey.
        name: String,
    },
    /// `authorization` of `websocket` beside users.
    #[error(
        "websocket authentication not compatible with presence of users/nkeys: use \
         'allowed_connection_types' of users"
    )]
    WebsocketSingleAndUsers,
    /// `auth_callout` beside `operator`.
    #[error(
        "operators do not allow authorization callouts to be configured directly: remove 'auth_callout'; \
         with an operator an account's token says so"
    )]
    CalloutOfOperator,
    /// An account of `auth_callout` that is not there.
    #[error("auth_callout allowed account {name:?} not found in configured accounts")]
    CalloutAccount {
        /// The name.
        name: String,
    },
    /// `no_auth_user` names no user.
    #[error(
        "no_auth_user '{name}' is not among the users: define it in 'authorization' or 'accounts'"
    )]
    NoAuthUser {
        /// The name.
        name: String,
    },
    /// `system_account` names no account.
    #[error("system_account '{name}' is not among the accounts: define it in 'accounts'")]
    SystemAccount {
        /// The name.
        name: String,
    },
    /// Two names with the same identity.
    #[error(
        "accounts '{one}' and '{other}' cannot be told apart by the identity that streams carry: \
         rename the one that has no streams yet"
    )]
    AccountIds {
        /// One name.
        one: String,
        /// The other.
        other: String,
    },
    /// Operator mode.
    #[error(transparent)]
    Operator(#[from] super::operator::OperatorConflict),
    /// JetStream in the system account.
    #[error("jetstream can not be enabled on the system account ('{name}')")]
    SystemJetStream {
        /// Its name.
        name: String,
    },
    /// A tier behind a bucket.
    #[error("'tier' in jetstream does nothing for a default log in a bucket ('store'): keep one")]
    TierOfBucket,
    /// Logs of a cluster in a bucket, and its catalog on the nodes' disks.
    #[error(
        "{}; for old segments of logs on disks use 'tier'",
        nuthatch_cluster::ConfigError::BucketBuiltIn
    )]
    StoreOfBuiltIn,
    /// A cache of what is local.
    #[error("'cache' in jetstream is for a default log in a bucket, which needs 'store'")]
    CacheOfDirectory,
    /// Exports and imports that cannot be.
    #[error(transparent)]
    AccountImports(Box<super::sharing::ExchangeProblem>),
    /// `leafnodes` names an account that is not there.
    #[error("cannot find local account \"{name}\" specified in leafnode {place}")]
    LeafAccount {
        /// The name.
        name: String,
        /// `authorization` or `remote`.
        place: &'static str,
    },
    /// One user or nkey, and users, of leaf nodes.
    #[error(
        "in 'authorization' of 'leafnodes' a single user or nkey cannot be combined with users"
    )]
    LeafSingleAndUsers,
    /// Two users of leaf nodes with one name.
    #[error("duplicate user \"{name}\" detected in leafnode authorization")]
    LeafUser {
        /// The name.
        name: String,
    },
    /// The same account is connected to the same place twice.
    #[error("duplicate remote {url} for account '{account}' in 'leafnodes'")]
    LeafRemote {
        /// The first address.
        url: String,
        /// The account here.
        account: String,
    },
    /// Both monitoring ports.
    #[error("http and https monitoring cannot both be on: keep one of them")]
    HttpAndHttps,
    /// HTTPS without a certificate.
    #[error("https monitoring needs a 'tls' block (or --tls, --tlscert and --tlskey)")]
    HttpsWithoutTls,
}
