//! Roles of sessions, and what permissions allow.

use nuthatch_protocol::subject::{is_subset, matches, overlap};
use serde_json::{Value, json};

use crate::host::Rule;

/// What a session may do at most; beyond that the broker decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Look.
    Read,
    /// Work with messages: publish, put, acknowledge, try again, pause.
    Operate,
    /// All that the user may do.
    Admin,
}

impl Role {
    /// A role by its name; none is the highest.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "read" => Some(Self::Read),
            "operate" => Some(Self::Operate),
            "admin" | "" => Some(Self::Admin),
            _ => None,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }

    /// What a request needs.
    pub fn needed(method: &str, path: &[&str]) -> Self {
        match (method, path) {
            ("GET", _) => Self::Read,
            ("POST", ["publish" | "request"])
            | ("POST", ["streams", _, "consumers", _, "pause" | "next" | "ack"])
            | ("PUT", ["kv", _, "entry"] | ["objects", _, "file"])
            | ("POST", ["dead", "retry" | "forget"]) => Self::Operate,
            _ => Self::Admin,
        }
    }
}

/// Whether a rule allows a subject, and why: `allowed`, `because`.
pub fn judge(rule: Option<&Rule>, subject: &str, publishes: bool) -> Value {
    let told = |allowed: bool, because: String| json!({ "allowed": allowed, "because": because });
    let Some(rule) = rule else {
        return told(true, "nothing is forbidden to this user".to_owned());
    };
    // A pattern may name a queue group behind a space.
    let plain = |pattern: &str| pattern.split(' ').next().unwrap_or_default().to_owned();
    let covers = |pattern: &String| match publishes {
        true => matches(plain(pattern).as_bytes(), subject.as_bytes()),
        false => is_subset(subject.as_bytes(), plain(pattern).as_bytes()),
    };
    let denies = |pattern: &&String| {
        covers(pattern) || (!publishes && is_subset(subject.as_bytes(), plain(pattern).as_bytes()))
    };
    if let Some(pattern) = rule.deny.iter().find(denies) {
        return told(false, format!("{pattern} is denied"));
    }
    let cut =
        rule.deny.iter().find(|p| !publishes && overlap(plain(p).as_bytes(), subject.as_bytes()));
    let but = cut.map(|pattern| format!(", except {pattern}")).unwrap_or_default();
    match &rule.allow {
        None => told(true, format!("everything is allowed that is not denied{but}")),
        Some(allow) => match allow.iter().find(|pattern| covers(pattern)) {
            Some(pattern) => told(true, format!("{pattern} is allowed{but}")),
            None => told(false, "no allowed subject covers it".to_owned()),
        },
    }
}

/// A rule as `$SYS.REQ.USER.INFO` tells it; `None`: there is none.
pub fn rule(told: &Value) -> Option<Rule> {
    let list = |name: &str| {
        let texts = told[name].as_array()?.iter().filter_map(Value::as_str);
        Some(texts.map(str::to_owned).collect::<Vec<_>>())
    };
    let is_there = told.is_object();
    is_there.then(|| Rule { allow: list("allow"), deny: list("deny").unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_in_order_and_what_is_new_needs_the_highest() {
        assert!(Role::Read < Role::Operate && Role::Operate < Role::Admin);
        assert_eq!(Role::parse("root"), None);
        assert_eq!(Role::needed("GET", &["anything"]), Role::Read);
        assert_eq!(Role::needed("POST", &["publish"]), Role::Operate);
        assert_eq!(Role::needed("POST", &["dead", "discard"]), Role::Admin);
        assert_eq!(Role::needed("DELETE", &["streams", "A"]), Role::Admin);
        assert_eq!(Role::needed("POST", &["something", "new"]), Role::Admin);
    }

    #[test]
    fn permissions_are_judged_as_the_broker_does() {
        let rule = |allow: Option<&[&str]>, deny: &[&str]| {
            let own = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
            Rule { allow: allow.map(own), deny: own(deny) }
        };
        let may = |rule: &Rule, subject: &str, publishes: bool| {
            judge(Some(rule), subject, publishes)["allowed"] == true
        };
        let some = rule(Some(&["orders.*", "a.>"]), &["orders.secret"]);
        assert!(may(&some, "orders.new", true) && may(&some, "a.b.c", true));
        assert!(!may(&some, "orders.secret", true) && !may(&some, "b", true));
        assert!(may(&some, "orders.*", false), "a pattern that is partly denied");
        assert!(!may(&some, "orders.>", false) && !may(&some, ">", false));
        assert!(!may(&some, "orders.secret", false));
        let nothing = rule(Some(&[]), &[]);
        assert!(!may(&nothing, "a", true));
        assert!(may(&rule(None, &["x"]), "a", true) && !may(&rule(None, &["x"]), "x", true));
        assert!(may(&rule(Some(&["jobs workers"]), &[]), "jobs", false), "a queue group");
        assert_eq!(judge(None, "anything", true)["allowed"], true);
    }
}
