//! Every bound of the console.

use std::time::Duration;

/// HTTP connections at a time: one beyond that ends the one that has asked for nothing for longest.
pub const CONNECTIONS_MAX: usize = 128;
/// API requests that are answered at a time; further ones are refused.
pub const REQUESTS_MAX: usize = 32;
/// Logins that are tried at a time; further ones are refused.
pub const LOGINS_MAX: usize = 4;
/// Sessions at a time: a login beyond that ends the one that was used longest ago.
pub const SESSIONS_MAX: usize = 64;
/// Sessions of one user at a time: his next login ends the one of them that was used longest ago.
pub const USER_SESSIONS_MAX: usize = 8;
/// A session ends after that much time, used or not.
pub const SESSION_AGE_MAX: Duration = Duration::from_secs(12 * 60 * 60);
/// A session ends when it was not used for so long.
pub const SESSION_IDLE_MAX: Duration = Duration::from_secs(60 * 60);
/// API requests of one session that are answered at a time; further ones are refused.
pub const SESSION_REQUESTS_MAX: usize = 6;
/// Bytes of a body with a message: 8 MB in base64, and what is around it.
pub const MESSAGE_BODY_BYTES_MAX: usize = 12 * 1024 * 1024;
/// Bytes of a body that is the configuration of a stream.
pub const CONFIG_BODY_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of every other body, logins included.
pub const SMALL_BODY_BYTES_MAX: usize = 16 * 1024;
/// Bytes of the headers of a message that is published, as JSON.
pub const HEADERS_BYTES_MAX: usize = 256 * 1024;
/// Bytes of the name of a user.
pub const USER_BYTES_MAX: usize = 255;
/// Bytes of a subject or a key.
pub const SUBJECT_BYTES_MAX: usize = 4 * 1024;
/// Bytes of a line in the log.
pub const LINE_BYTES_MAX: usize = 1024;
/// Time for the body of a login to arrive.
pub const LOGIN_BODY_TIME_MAX: Duration = Duration::from_secs(5);
/// Time for a request's body to arrive.
pub const BODY_TIME_MAX: Duration = Duration::from_secs(30);
/// Time for the head of a request to arrive.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(5);
/// Buffer of a connection, heads of requests included.
pub const BUFFER_BYTES: usize = 64 * 1024;
/// Time for an HTTP connection to be served on; browsers open another one.
pub const CONNECTION_TIME_MAX: Duration = Duration::from_secs(15 * 60);
/// Time for one answer of the broker.
pub const BROKER_TIME_MAX: Duration = Duration::from_secs(5);
/// Longest wait for the reply to a request that a user sends.
pub const REPLY_TIME_MAX: Duration = Duration::from_secs(20);
/// Time for all that one API request asks of the broker.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(25);
/// Time that a request waits for another of its session.
pub const TURN_TIME_MAX: Duration = Duration::from_secs(30);
/// A connection to the broker that was not used for so long is tried before it is used.
pub const TRUSTED_IDLE: Duration = Duration::from_secs(5);
/// Rows of a page.
pub const ROWS_MAX: usize = 200;
/// Names of streams that are looked through.
pub const NAMES_MAX: usize = 250_000;
/// Streams that are sorted by something other than their name.
pub const SORTED_STREAMS_MAX: usize = 2_000;
/// Streams whose consumers are looked at together.
pub const CONSUMER_STREAMS_MAX: usize = 1_000;
/// Consumers that are sorted.
pub const CONSUMERS_MAX: usize = 10_000;
/// Messages that one page of messages asks the broker for.
pub const MESSAGE_GETS_MAX: usize = 1_000;
/// Bytes of a message that a list of messages shows.
pub const PREVIEW_BYTES: usize = 2 * 1024;
/// Bytes of headers that a list of messages shows of each, and how many headers.
pub const PREVIEW_HEADER_BYTES: usize = 2 * 1024;
/// See [`PREVIEW_HEADER_BYTES`].
pub const PREVIEW_HEADERS: usize = 64;
/// Bytes of messages, headers included, that one page of messages reads.
pub const PAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Keys of a bucket that are looked through.
pub const KEYS_MAX: usize = 100_000;
/// Messages that a search looks at for one page.
pub const SEARCH_GETS_MAX: usize = 5_000;
/// Bytes of what is searched for.
pub const SEARCHED_BYTES_MAX: usize = 256;
/// Bytes of the older values of a key, headers included, that one page of its history reads.
pub const HISTORY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Time between two points of the history.
pub const HISTORY_STEP: Duration = Duration::from_secs(10);
/// Points of the history: an hour.
pub const HISTORY_POINTS: usize = 360;
/// Accounts whose history is kept: 7 MB.
pub const HISTORY_ACCOUNTS_MAX: usize = 256;
/// Advisories that wait to be kept; further ones are lost.
pub const ADVISORIES_WAITING_MAX: usize = 4_096;
/// Accounts whose advisories are kept.
pub const HEARD_ACCOUNTS_MAX: usize = 64;
/// Messages given up that are kept of an account; a new one takes the place of the oldest.
pub const DEAD_OF_ACCOUNT_MAX: usize = 1_000;
/// Advisories that are kept of an account.
pub const EVENTS_OF_ACCOUNT_MAX: usize = 100;
/// Bytes of an advisory; larger ones are not kept.
pub const EVENT_BYTES_MAX: usize = 4 * 1024;
/// Messages given up that one request deals with, and that a page shows.
pub const DEAD_AT_A_TIME_MAX: usize = 100;
/// Connections that are looked at together.
pub const CLIENTS_MAX: usize = 1_024;
/// Bytes of an object that is uploaded on the pages.
pub const OBJECT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes of an object that one answer holds.
pub const OBJECT_PART_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of the name of an object.
pub const OBJECT_NAME_BYTES_MAX: usize = 1024;
/// Objects of a bucket that are looked through.
pub const OBJECTS_MAX: usize = 100_000;
/// Users of a configuration that are shown.
pub const USERS_MAX: usize = 1_000;
/// Values of a key that are shown: the most that a bucket keeps.
pub const HISTORY_MAX: usize = 64;
/// Headers of a message that is published.
pub const HEADERS_MAX: usize = 64;
/// Streams of events at a time.
pub const FOLLOWS_MAX: usize = 64;
/// Streams of events of one session at a time.
pub const SESSION_FOLLOWS_MAX: usize = 8;
/// Time for which one goes on; browsers open another one. Less than a connection is served.
pub const FOLLOW_TIME_MAX: Duration = Duration::from_secs(10 * 60);
/// Time between two looks at what is followed.
pub const FOLLOW_STEP: Duration = Duration::from_secs(1);
/// The same for messages of a stream.
pub const FOLLOW_TAIL_STEP: Duration = Duration::from_millis(500);
/// A stream of events that has said nothing for so long says that it is there.
pub const FOLLOW_QUIET_MAX: Duration = Duration::from_secs(15);
