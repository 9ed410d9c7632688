//! What an answer of etcd that is none means.

use std::error::Error;
use tonic::{Code, Status};

/// What is to be made of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Another server, or this one later, may answer.
    Passing,
    /// etcd does not know the token any more.
    OldToken,
    /// etcd has no users: none is needed.
    NoUsers,
    /// etcd has users, and was told none.
    NoUser,
    WrongPassword,
    Forbidden,
    NoSpace,
    /// Anything else, in its words.
    Refused(String),
}

/// etcd's answers have a code, which several share, and a text, which is part of its API (`rpctypes/error.go`).
pub(crate) fn judge(status: &Status) -> Verdict {
    let says = |text: &str| status.message().contains(text);
    match status.code() {
        Code::Unauthenticated => Verdict::OldToken,
        _ if says("revision of auth store is old") => Verdict::OldToken,
        _ if says("authentication is not enabled") => Verdict::NoUsers,
        _ if says("user name is empty") || says("user name not found") => Verdict::NoUser,
        _ if says("authentication failed") => Verdict::WrongPassword,
        _ if says("database space exceeded") => Verdict::NoSpace,
        Code::PermissionDenied => Verdict::Forbidden,
        Code::ResourceExhausted if says("too many requests") => Verdict::Passing,
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::ResourceExhausted
        | Code::DataLoss => Verdict::Refused(told(status)),
        // What became of it is not known, or nobody took it.
        _ => Verdict::Passing,
    }
}

/// An error with those behind it.
pub(crate) fn told(error: &(dyn Error + 'static)) -> String {
    let first = match error.downcast_ref::<Status>() {
        Some(status) => status.message().to_owned(),
        None => error.to_string(),
    };
    let mut text = first;
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_etcd_are_told_apart_by_code_and_text() {
        for (code, text, verdict) in [
            (Code::Unavailable, "etcdserver: no leader", Verdict::Passing),
            (Code::Unavailable, "etcdserver: request timed out", Verdict::Passing),
            (Code::ResourceExhausted, "etcdserver: too many requests", Verdict::Passing),
            (Code::Unknown, "transport error", Verdict::Passing),
            (Code::Unauthenticated, "etcdserver: invalid auth token", Verdict::OldToken),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old", Verdict::OldToken),
            (
                Code::FailedPrecondition,
                "etcdserver: authentication is not enabled",
                Verdict::NoUsers,
            ),
            (Code::InvalidArgument, "etcdserver: user name is empty", Verdict::NoUser),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                Verdict::WrongPassword,
            ),
            (Code::PermissionDenied, "etcdserver: permission denied", Verdict::Forbidden),
            (
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded",
                Verdict::NoSpace,
            ),
        ] {
            assert_eq!(judge(&Status::new(code, text)), verdict, "{text}");
        }
        let large = judge(&Status::invalid_argument("etcdserver: request is too large"));
        assert_eq!(large, Verdict::Refused("etcdserver: request is too large".to_owned()));
    }
}
