//! Advisories about leaders and majorities, in the incumbent's form: subjects and bodies.

use nuthatch_protocol::js::{PeerInfo, Time};
use nuthatch_server::nodes::peer_id;
use nuthatch_server::random::random_id;
use serde::Serialize;

/// What the subjects of all advisories begin with.
pub(super) const ADVISORIES: &str = "$JS.EVENT.ADVISORY";
/// Subject of the advisory about who decides about streams.
pub(super) const DOMAIN_LED: &str = "$JS.EVENT.ADVISORY.DOMAIN.LEADER_ELECTED";
/// Characters of an event's id, as many as the incumbent's.
const ID_CHARS: usize = 22;

/// What has happened to a stream or consumer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// A node leads it from now on.
    LeaderElected,
    /// The nodes that are left of those that keep it are no majority.
    QuorumLost,
}

impl Event {
    const fn token(self) -> &'static str {
        match self {
            Self::LeaderElected => "LEADER_ELECTED",
            Self::QuorumLost => "QUORUM_LOST",
        }
    }
}

/// A stream, or a consumer of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asset<'a> {
    pub(super) stream: &'a str,
    /// `None`: the stream itself.
    pub(super) consumer: Option<&'a str>,
}

impl Asset<'_> {
    const fn kind(self) -> &'static str {
        if self.consumer.is_some() { "CONSUMER" } else { "STREAM" }
    }

    /// Subject of an advisory about it.
    pub(super) fn subject(self, event: Event) -> String {
        let start = format!("{ADVISORIES}.{}.{}.{}", self.kind(), event.token(), self.stream);
        self.consumer.map_or_else(|| start.clone(), |consumer| format!("{start}.{consumer}"))
    }

    /// Type of an advisory about it.
    fn type_of(self, event: Event) -> String {
        let of = format!("{}_{}", self.kind(), event.token()).to_lowercase();
        format!("io.nats.jetstream.advisory.v1.{of}")
    }
}

/// Subjects of all advisories of an event: of streams and of consumers.
pub(super) fn all_of(event: Event) -> [String; 2] {
    ["STREAM", "CONSUMER"].map(|kind| format!("{ADVISORIES}.{kind}.{}.>", event.token()))
}

/// Who keeps what an advisory is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Keepers<'a> {
    /// The server that tells.
    pub(super) own: &'a str,
    /// All of them, it too.
    pub(super) replicas: Vec<PeerInfo>,
    /// JetStream domain, empty if none.
    pub(super) domain: &'a str,
    pub(super) now: Time,
}

/// Fields in the incumbent's order.
#[derive(Clone, Serialize)]
pub(super) struct Advisory<'a> {
    #[serde(rename = "type")]
    kind: String,
    id: String,
    timestamp: Time,
    /// Whose it is: the system account alone is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) account: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    consumer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    leader: Option<String>,
    replicas: Vec<PeerInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    domain: &'a str,
}

impl<'a> Advisory<'a> {
    fn new(kind: String, keepers: Keepers<'a>) -> Self {
        let Keepers { replicas, domain, now, .. } = keepers;
        let (account, stream, consumer, leader, cluster) = (None, None, None, None, None);
        let (id, timestamp) = (random_id(ID_CHARS), now);
        Self { kind, id, timestamp, account, stream, consumer, leader, replicas, cluster, domain }
    }

    /// About a stream or consumer.
    pub(super) fn of(event: Event, asset: Asset<'a>, keepers: Keepers<'a>) -> Self {
        let leader = (event == Event::LeaderElected).then(|| keepers.own.to_owned());
        let (stream, consumer) = (Some(asset.stream), asset.consumer);
        Self { stream, consumer, leader, ..Self::new(asset.type_of(event), keepers) }
    }

    /// This server decides about streams from now on. The leader is named by its id.
    pub(super) fn of_domain(cluster: &'a str, keepers: Keepers<'a>) -> Self {
        let (leader, cluster) = (Some(peer_id(keepers.own)), Some(cluster));
        let kind = "io.nats.jetstream.advisory.v1.domain_leader_elected".to_owned();
        Self { leader, cluster, ..Self::new(kind, keepers) }
    }

    /// Its body.
    pub(super) fn body(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("an advisory can be written")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn keepers() -> Keepers<'static> {
        let peer = |name: &str, lag| PeerInfo {
            name: name.to_owned(),
            current: lag == 0,
            lag,
            peer: peer_id(name),
            ..PeerInfo::default()
        };
        let replicas = vec![peer("n1", 0), peer("n2", 3)];
        Keepers { own: "n1", replicas, domain: "", now: Time(0) }
    }

    /// Without what is different each time.
    fn shown(advisory: &Advisory<'_>) -> Value {
        let mut body: Value = serde_json::from_slice(&advisory.body()).expect("JSON");
        let fields = body.as_object_mut().expect("an object");
        let id = fields.remove("id").expect("an id");
        assert_eq!(id.as_str().map(str::len), Some(ID_CHARS));
        assert_eq!(fields.remove("timestamp"), Some(json!("1970-01-01T00:00:00Z")));
        body
    }

    /// As nats-server 2.15.2 names the peers n1 and n2.
    fn peers() -> Value {
        json!([
            { "name": "n1", "current": true, "active": 0, "peer": "fjFyEjc1" },
            { "name": "n2", "current": false, "active": 0, "lag": 3, "peer": "44jzkV9D" },
        ])
    }

    #[test]
    fn leaders_are_told_as_the_incumbent_tells_them() {
        let stream = Asset { stream: "S", consumer: None };
        let (event, subject) = (Event::LeaderElected, stream.subject(Event::LeaderElected));
        assert_eq!(subject, "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.S");
        let own = Advisory::of(event, stream, keepers());
        let expected = json!({ "type": "io.nats.jetstream.advisory.v1.stream_leader_elected",
            "stream": "S", "leader": "n1", "replicas": peers() });
        assert_eq!(shown(&own), expected);

        let consumer = Asset { stream: "S", consumer: Some("C") };
        let subject = consumer.subject(event);
        assert_eq!(subject, "$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED.S.C");
        let for_system = Advisory {
            account: Some("A"),
            ..Advisory::of(event, consumer, Keepers { domain: "D", ..keepers() })
        };
        let expected = json!({ "type": "io.nats.jetstream.advisory.v1.consumer_leader_elected",
            "account": "A", "stream": "S", "consumer": "C", "leader": "n1", "replicas": peers(),
            "domain": "D" });
        assert_eq!(shown(&for_system), expected);
    }

    #[test]
    fn what_has_no_majority_has_no_leader() {
        for (consumer, kind) in [(None, "stream"), (Some("C"), "consumer")] {
            let asset = Asset { stream: "S", consumer };
            let body = shown(&Advisory::of(Event::QuorumLost, asset, keepers()));
            assert_eq!(body["type"], format!("io.nats.jetstream.advisory.v1.{kind}_quorum_lost"));
            assert_eq!((body.get("leader"), &body["replicas"]), (None, &peers()));
            let start = format!("$JS.EVENT.ADVISORY.{}.QUORUM_LOST.S", kind.to_uppercase());
            assert!(asset.subject(Event::QuorumLost).starts_with(&start));
        }
    }

    #[test]
    fn who_decides_about_streams_is_named_by_its_id() {
        let expected = json!({ "type": "io.nats.jetstream.advisory.v1.domain_leader_elected",
            "leader": "fjFyEjc1", "replicas": peers(), "cluster": "c1" });
        assert_eq!(shown(&Advisory::of_domain("c1", keepers())), expected);
    }
}
