//! Every metric: its name, kind, labels and meaning. `docs/metrics.md` is written from it.

use prometheus_client::metrics::MetricType;

/// A metric's description.
#[derive(Debug)]
pub(in crate::monitor) struct Metric {
    /// Its name; counters end in `_total` on the wire.
    pub name: &'static str,
    pub kind: Kind,
    /// Names of its labels, in the order of the values.
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

/// Kind of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::monitor) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    pub(in crate::monitor) const fn metric_type(self) -> MetricType {
        match self {
            Self::Counter => MetricType::Counter,
            Self::Gauge => MetricType::Gauge,
            Self::Histogram => MetricType::Histogram,
        }
    }
}

type Labels = &'static [&'static str];

const fn counter(name: &'static str, labels: Labels, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, labels, help }
}

const fn gauge(name: &'static str, labels: Labels, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, labels, help }
}

const fn histogram(name: &'static str, labels: Labels, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Histogram, labels, help }
}

macro_rules! metrics {
    ($($section:literal { $($id:ident = $metric:expr;)* })*) => {
        $($(pub(in crate::monitor) static $id: Metric = $metric;)*)*

        /// All of them by section, for the document.
        #[cfg(test)]
        pub(in crate::monitor) static SECTIONS: &[(&str, &[&Metric])] =
            &[$(($section, &[$(&$id),*])),*];
    };
}

const LOG: Labels = &["log"];
const NODE: Labels = &["node"];
const ACCOUNT: Labels = &["account"];
const STREAM: Labels = &["account", "stream"];
const CONSUMER: Labels = &["account", "stream", "consumer"];

metrics! {
    "Server" {
        INFO = gauge("nuthatch_info", &["version", "nats_version", "server_name", "server_id"],
            "1, with who this is");
        UPTIME = gauge("nuthatch_uptime_seconds", &[], "Time since the start");
        CONFIG_LOADED = gauge("nuthatch_config_load_time_seconds", &[],
            "When the configuration was last read, in seconds since 1970");
        CONNECTIONS = gauge("nuthatch_connections", &[], "Open client connections");
        ACCEPTED = counter("nuthatch_connections_accepted", &[], "Client connections accepted");
        SUBSCRIPTIONS = gauge("nuthatch_subscriptions", &[], "Subscriptions of all clients");
        RECEIVED_MESSAGES = counter("nuthatch_received_messages", &[], "Messages from clients");
        RECEIVED_BYTES = counter("nuthatch_received_bytes", &[],
            "Headers and bodies of messages from clients");
        SENT_MESSAGES = counter("nuthatch_sent_messages", &[], "Messages to clients");
        SENT_BYTES = counter("nuthatch_sent_bytes", &[],
            "Headers and bodies of messages to clients");
        PENDING_BYTES = gauge("nuthatch_pending_bytes", &[],
            "Bytes that wait for clients to read them");
        PENDING_BYTES_MAX = gauge("nuthatch_pending_bytes_max", &[],
            "The same of the client for whom most waits");
        SLOW_CONSUMERS = counter("nuthatch_slow_consumers", &["reason"],
            "Clients closed because they did not keep up: `pending_bytes` or `write_deadline`");
        STALE_CONNECTIONS = counter("nuthatch_stale_connections", &[],
            "Clients closed because they did not answer pings");
        STALLED_CLIENTS = counter("nuthatch_stalled_clients", &[],
            "Times a publisher was slowed down for a slow subscriber");
        LEAFS = gauge("nuthatch_leafnodes", &[],
            "Connections to other servers (leaf nodes) that have joined an account");
        LEAF_RECEIVED_MESSAGES = counter("nuthatch_leafnode_received_messages", &[],
            "Messages from them");
        LEAF_RECEIVED_BYTES = counter("nuthatch_leafnode_received_bytes", &[],
            "Headers and bodies of messages from them");
        LEAF_SENT_MESSAGES = counter("nuthatch_leafnode_sent_messages", &[], "Messages to them");
        LEAF_SENT_BYTES = counter("nuthatch_leafnode_sent_bytes", &[],
            "Headers and bodies of messages to them");
        LEAF_PENDING_BYTES = gauge("nuthatch_leafnode_pending_bytes", &[],
            "Bytes that wait for them to read them");
        MAX_CONNECTIONS = gauge("nuthatch_max_connections", &[],
            "Client connections that there may be (`max_connections`)");
        MAX_PENDING = gauge("nuthatch_max_pending_bytes", &[],
            "Bytes that may wait for one client (`max_pending`): compare `nuthatch_pending_bytes_max`");
        REFUSED_PUBLISHES = counter("nuthatch_refused_publishes", &[],
            "Published messages that no log took: queue or medium full, log stopped");
        HTTP_REQUESTS = counter("nuthatch_http_requests", &["path"], "Requests to this port");
    }
    "Cluster" {
        CLUSTER_NODES = gauge("nuthatch_cluster_nodes", &[],
            "Nodes of the cluster, this one included; this and what follows have numbers only at servers in one");
        CLUSTER_CONNECTED = gauge("nuthatch_cluster_connected_nodes", &[],
            "Those that this node has connections to, itself included");
        CLUSTER_KEEPERS = gauge("nuthatch_cluster_keepers", &[], "Nodes that keep the logs");
        CLUSTER_SPARES = gauge("nuthatch_cluster_spares", &[], "Nodes that are spares");
        CLUSTER_REMOVED = gauge("nuthatch_cluster_removed_nodes", &[],
            "Nodes that were removed, of those that the catalog still names");
        CLUSTER_MAY_STOP = gauge("nuthatch_cluster_may_stop", &[],
            "1: nothing that this node knows speaks against stopping any one node. How far copies are the owner of each log alone knows: stop one where `min by (job)` of all nodes is 1");
        NODE_KEEPS = gauge("nuthatch_cluster_node_keeps", NODE, "1 for a node that keeps the logs, 0 for a spare");
        NODE_DRAIN = gauge("nuthatch_cluster_node_drain", &["node", "state"],
            "1 for a node in that state: `draining` owns logs or leads the catalog still, `drained` does neither");
        NODE_SILENT = gauge("nuthatch_cluster_node_silent_seconds", NODE,
            "For how long this node has not heard that one; where it never has, since this one began. Below a second: it is there");
        NODE_TURNED_AWAY = gauge("nuthatch_cluster_node_turned_away", NODE,
            "1: it came and was turned away, `nuthatch cluster status` says why");
        NODE_PROTOCOL = gauge("nuthatch_cluster_node_protocol_max", NODE,
            "The newest protocol that it speaks; only once this node has heard it");
        REPLACE_AFTER = gauge("nuthatch_cluster_replace_after_seconds", &[],
            "After so long without a node a spare takes its place (`replace_after`); 0: only people replace nodes");
        NODE_REPLACED_IN = gauge("nuthatch_cluster_node_replaced_in_seconds", NODE,
            "When that is due for a node that this one does not hear, at the earliest; 0: now, or there is no spare. Only for nodes that keep the logs, are not drained, and while nothing else changes");
        CHANGE_UNDER_WAY = gauge("nuthatch_cluster_change_under_way", &["change"],
            "1 while the nodes that keep the logs change: `replace`, `grow`, `shrink`");
        CHANGE_SECONDS = gauge("nuthatch_cluster_change_seconds", &["change"],
            "For how long, since this node first saw it; 0: it is not under way");
        ZONES = gauge("nuthatch_cluster_zones", &[], "Zones of the nodes that keep the logs, as far as they say one");
        ZONE_RISK = gauge("nuthatch_cluster_zone_risk", &[],
            "1: the loss of one zone leaves no majority of the nodes that keep the logs");
        WITHOUT_ZONE = gauge("nuthatch_cluster_nodes_without_zone", &[],
            "Nodes that say no zone while another one does");
        OWNER_ZONES_DIFFER = gauge("nuthatch_cluster_owner_zones_differ", &[],
            "1: another node has other `owner_zones` than this one");
        OWNER_ZONES_EMPTY = gauge("nuthatch_cluster_owner_zones_empty", &[],
            "1: no node that keeps the logs is in one of this node's `owner_zones`");
        CATALOG_INFO = gauge("nuthatch_cluster_catalog_info", &["kind"],
            "1, with where the catalog is: `built-in`, `directory`, `bucket` or `etcd`");
        CATALOG_LEADER = gauge("nuthatch_cluster_catalog_leader", &[], "1 at the node that leads the built-in catalog");
        CATALOG_SILENT = gauge("nuthatch_cluster_catalog_silent_seconds", &[],
            "For how long the catalog has answered nothing that this node asked for some log; it asks five times a second");
        CATALOG_FAILURES = counter("nuthatch_cluster_catalog_failures", &[],
            "Calls to the catalog for logs that had no success");
        PROTOCOL = gauge("nuthatch_cluster_protocol", &[], "What the nodes speak");
        PROTOCOL_AVAILABLE = gauge("nuthatch_cluster_protocol_available", &[],
            "The newest protocol that all nodes know: above `nuthatch_cluster_protocol` the cluster can be finalized. Only while all are heard");
        CLOCK_AGREED = gauge("nuthatch_cluster_clock_agreed", &[],
            "1: a majority of the nodes agrees with this one's wall clock within 2 s. Only while this node hears a majority");
        STANDBY_BYTES = gauge("nuthatch_cluster_standby_memory_bytes", &[],
            "Memory that all standbys of this node take, about");
        STANDBY_MAX = gauge("nuthatch_cluster_standby_memory_max_bytes", &[],
            "Memory that they may take (`standby_memory`); 0: there are none");
        QUORUM_OWNED = gauge("nuthatch_quorum_log_owned", LOG,
            "1 for a quorum log that this node owns; 0 at all nodes: nobody does, and nothing is acknowledged");
        QUORUM_BEHIND = gauge("nuthatch_quorum_log_replicas_behind", LOG,
            "Other nodes that are away, do not count for its majority yet or lack more than 16 entries; told by its owner alone");
        QUORUM_LAG = gauge("nuthatch_quorum_log_replica_lag_entries", &["log", "node"],
            "Entries (syncs of the log) that a node lacks; likewise");
        QUORUM_ASKED = counter("nuthatch_quorum_log_asked_bytes", &["log", "node"],
            "Bytes that clients of a node have asked of a log since it came to its owner, with 64 or more for each operation; told by the owner alone");
        QUORUM_ELSEWHERE = gauge("nuthatch_quorum_log_owned_elsewhere", &["log", "than"],
            "1: this node owns it, and another one is its `place`, or was named by `move_log`, or could own it in `owner_zones`, where this one is not; told by the owner alone. Busy logs are away from their places on purpose");
        QUORUM_ZONES = gauge("nuthatch_quorum_log_zones", LOG,
            "Zones that its replicas are in, as far as their nodes say one");
        QUORUM_ZONE_RISK = gauge("nuthatch_quorum_log_zone_risk", LOG,
            "1: the loss of one zone leaves no majority of its replicas");
        QUORUM_COUNTS = gauge("nuthatch_quorum_log_replica_counts", LOG,
            "0: this node's replica does not count for the majority yet: its disk or memory is new, or being brought what it lacks");
        QUORUM_UNOPENED = gauge("nuthatch_quorum_log_unopened", LOG,
            "1: this node owns it and could not open it");
        QUORUM_TAKEOVERS = counter("nuthatch_quorum_log_takeovers", &["log", "by"],
            "Takeovers by this node: by `loss` of the owner, or where there was none, or by `handover`");
        QUORUM_TAKEOVER = histogram("nuthatch_quorum_log_takeover_seconds", LOG,
            "Time of each, from the former owner's last word until clients were taken");
        QUORUM_MOVES = counter("nuthatch_quorum_log_moves", &["log", "to"],
            "Times that balance had this node, as its owner, give it up: to another `node`, or to itself with other `keepers`");
        QUORUM_NOTICED = counter("nuthatch_quorum_log_noticed", &["log", "what"],
            "What this node's replica has noticed: see [what is noticed](cluster.md#what-is-noticed)");
        STANDBYS_DROPPED = counter("nuthatch_quorum_log_standbys_dropped", LOG,
            "Times that this node has ceased to follow it because standbys took more than `standby_memory`");
        QUORUM_STANDBY = gauge("nuthatch_quorum_log_standby_bytes", LOG,
            "Memory, about, in which this node follows a log of another node, to take it over faster; 0: it does not");
        DIRECT_GETS_NEAR = counter("nuthatch_direct_gets_own_zone", &[],
            "Direct gets of this node's clients that were answered from a log that it follows, in place of the node that owns that");
        QUORUM_MEMORY = gauge("nuthatch_quorum_log_memory_bytes", LOG,
            "Memory that this node's replica of the log in memory takes, what is set aside for it included");
        QUORUM_MEMORY_MAX = gauge("nuthatch_quorum_log_memory_max_bytes", LOG,
            "Memory that it may take");
        QUORUM_ANEW = counter("nuthatch_quorum_log_began_anew", LOG,
            "Times that this node began the log in memory anew, because too few nodes still had it: what it held is lost");
    }
    "Process and runtime" {
        RESIDENT = gauge("process_resident_memory_bytes", &[], "Resident memory");
        CPU = counter("process_cpu_seconds", &[], "Processor time used");
        OPEN_FILES = gauge("process_open_fds", &[], "Open file handles, sockets included");
        MAX_FILES = gauge("process_max_fds", &[], "File handles that the system allows it");
        START_TIME = gauge("process_start_time_seconds", &[],
            "When the process started, in seconds since 1970");
        THREADS = gauge("nuthatch_threads", &[], "Threads of the process");
        TASKS = gauge("nuthatch_runtime_tasks", &[],
            "Tasks that have not ended: two for each connection and a few of the server");
        TASKS_QUEUED = gauge("nuthatch_runtime_queued_tasks", &[],
            "Tasks in the shared queue that wait for a worker thread");
    }
    "Accounts" {
        ACCOUNT_CONNECTIONS = gauge("nuthatch_account_connections", ACCOUNT, "Open connections");
        ACCOUNT_SUBSCRIPTIONS = gauge("nuthatch_account_subscriptions", ACCOUNT, "Subscriptions");
        ACCOUNT_RECEIVED_MESSAGES = counter("nuthatch_account_received_messages", ACCOUNT,
            "Messages from its clients");
        ACCOUNT_RECEIVED_BYTES = counter("nuthatch_account_received_bytes", ACCOUNT,
            "Their headers and bodies");
        ACCOUNT_SENT_MESSAGES = counter("nuthatch_account_sent_messages", ACCOUNT,
            "Messages to its clients");
        ACCOUNT_SENT_BYTES = counter("nuthatch_account_sent_bytes", ACCOUNT,
            "Their headers and bodies");
        ACCOUNT_STREAMS = gauge("nuthatch_account_streams", ACCOUNT, "Streams");
        ACCOUNT_CONSUMERS = gauge("nuthatch_account_consumers", ACCOUNT, "Consumers");
        ACCOUNT_STORED = gauge("nuthatch_account_stored_bytes", &["account", "storage"],
            "Bytes of messages in its streams, by `file` and `memory`");
        ACCOUNT_STORED_LIMIT = gauge("nuthatch_account_stored_limit_bytes", &["account", "storage"],
            "Bytes that there may be; only where the account has a limit");
        ACCOUNT_STREAMS_LIMIT = gauge("nuthatch_account_streams_limit", ACCOUNT,
            "Streams that there may be; only where the account has a limit");
    }
    "JetStream" {
        JS_STREAMS = gauge("nuthatch_jetstream_streams", &[], "Streams");
        JS_CONSUMERS = gauge("nuthatch_jetstream_consumers", &[], "Consumers");
        JS_MESSAGES = gauge("nuthatch_jetstream_messages", &[], "Messages in all streams");
        JS_MISSING = counter("nuthatch_jetstream_missing_messages", &[],
            "Messages that streams hold and the log did not give when they were read: damage");
        JS_BYTES = gauge("nuthatch_jetstream_bytes", &["storage"],
            "Bytes of messages in streams, by `file` and `memory`");
        JS_RESERVED = gauge("nuthatch_jetstream_reserved_bytes", &["storage"],
            "Bytes promised to streams by their max_bytes");
        JS_LIMIT = gauge("nuthatch_jetstream_limit_bytes", &["storage"],
            "Bytes that streams may take (`max_file`, `max_mem`); only where there is a limit");
        JS_API_LATENCY = histogram("nuthatch_jetstream_api_seconds", &[],
            "Time from a request to `$JS.API.>` to its answer, without the way through the network");
        JS_API = counter("nuthatch_jetstream_api_requests", &[], "Requests to `$JS.API.>`");
        JS_API_ERRORS = counter("nuthatch_jetstream_api_errors", &[],
            "Requests answered with an error");
        JS_REFUSED_RESTORES = counter("nuthatch_jetstream_refused_restores", &[],
            "Restores that were refused or came to nothing");
        JS_MOVES = gauge("nuthatch_jetstream_moves", &["state"],
            "Streams on their way to another log: `running`, `failing` (tried again, `/jsz` says why)");
        DURABILITY = gauge("nuthatch_durability", &["level"],
            "1 for the level in force: `always` (fsync before the ack), `interval` or `never`");
        SYNC_INTERVAL = gauge("nuthatch_sync_interval_seconds", &[],
            "Longest time between an ack and its fsync; 0: none (always), -1: unbounded (never)");
    }
    "Streams and consumers" {
        STREAM_MESSAGES = gauge("nuthatch_stream_messages", STREAM, "Messages");
        STREAM_BYTES = gauge("nuthatch_stream_bytes", STREAM, "Their bytes");
        STREAM_LAST = gauge("nuthatch_stream_last_sequence", STREAM, "Sequence of the last one");
        STREAM_CONSUMERS = gauge("nuthatch_stream_consumers", STREAM, "Consumers");
        STREAM_LAST_TIME = gauge("nuthatch_stream_last_message_time_seconds", STREAM,
            "When the last message was stored, in seconds since 1970: `time() -` it is the time since");
        STREAM_BYTES_LIMIT = gauge("nuthatch_stream_limit_bytes", &["account", "stream", "discard"],
            "`max_bytes`, where there is one. `discard`: `new` refuses what does not fit, `old` deletes the oldest");
        STREAM_MESSAGES_LIMIT =
            gauge("nuthatch_stream_limit_messages", &["account", "stream", "discard"],
            "`max_msgs`, where there is one");
        CONSUMER_PENDING = gauge("nuthatch_consumer_pending_messages", CONSUMER,
            "Messages it has not delivered yet: with the next one, its lag");
        CONSUMER_ACK_PENDING = gauge("nuthatch_consumer_ack_pending_messages", CONSUMER,
            "Messages delivered and not acknowledged");
        CONSUMER_REDELIVERED = gauge("nuthatch_consumer_redelivered_messages", CONSUMER,
            "Unacknowledged messages that were delivered more than once");
        CONSUMER_WAITING = gauge("nuthatch_consumer_waiting_pulls", CONSUMER,
            "Pull requests that wait for messages");
        CONSUMER_DELIVERED = counter("nuthatch_consumer_delivered_messages", CONSUMER,
            "Deliveries, repeated ones included");
        CONSUMER_ACK_FLOOR = gauge("nuthatch_consumer_ack_floor_sequence", CONSUMER,
            "Everything up to this sequence of the stream is acknowledged");
        CONSUMER_OLDEST = gauge("nuthatch_consumer_oldest_ack_pending_seconds", CONSUMER,
            "Age of the oldest message that was delivered and not acknowledged; 0: there is none");
        CONSUMER_LAST_DELIVERY = gauge("nuthatch_consumer_last_delivery_time_seconds", CONSUMER,
            "When it was last given a message, in seconds since 1970; only once it was since the start");
        CONSUMER_LAST_ACK = gauge("nuthatch_consumer_last_ack_time_seconds", CONSUMER,
            "When it was last acknowledged one, likewise");
        OMITTED = gauge("nuthatch_metrics_omitted", &["what"],
            "`accounts` and `streams` left out of this page by its bounds, and 1 for `consumers` if some were");
    }
    "Logs" {
        LOG_FRAMES = counter("nuthatch_log_frames", LOG, "Frames (group commits) committed");
        LOG_RECORDS = counter("nuthatch_log_records", LOG, "Records committed");
        LOG_FRAME_BYTES = counter("nuthatch_log_frame_bytes", LOG,
            "Bytes of committed frames, without padding");
        LOG_WRITTEN = counter("nuthatch_log_written_bytes", LOG,
            "Bytes written: frames with padding, zero-filling, footers, headers");
        LOG_SYNCS = counter("nuthatch_log_syncs", LOG, "fsyncs of segments");
        LOG_SYNC_LATENCY = histogram("nuthatch_log_sync_seconds", LOG,
            "Time of each fsync (with the write, where the write is direct)");
        LOG_COMMIT_LATENCY = histogram("nuthatch_log_commit_seconds", LOG,
            "Time from sealing a frame to its commit");
        LOG_ACK_LATENCY = histogram("nuthatch_log_ack_seconds", LOG,
            "Time from the first publish in a frame to its commit, when all publishes in it are acknowledged: the longest wait of each frame, without that for the log's queue");
        LOG_MEDIUM = gauge("nuthatch_log_medium_bytes", LOG,
            "Size of the file system that a log on the local disk is on");
        LOG_MEDIUM_FREE = gauge("nuthatch_log_medium_free_bytes", LOG,
            "What is free of it for the server");
        LOG_COMMITTED = gauge("nuthatch_log_committed_lsn", LOG, "Newest committed position");
        LOG_DURABLE = gauge("nuthatch_log_durable_lsn", LOG, "Newest position known to be durable");
        LOG_QUEUE = gauge("nuthatch_log_queue_bytes", LOG, "Bytes that wait for the sequencer");
        LOG_QUEUE_REFUSALS = counter("nuthatch_log_queue_refusals", LOG,
            "Sends refused because that queue was full");
        LOG_CACHE_HITS = counter("nuthatch_log_cache_hits", &["log", "cache"],
            "Reads answered from memory: `tail` (recent frames) or `block` (frames read back)");
        LOG_CACHE_MISSES = counter("nuthatch_log_cache_misses", LOG,
            "Reads that had to go to a file");
        LOG_CACHE_BYTES = gauge("nuthatch_log_cache_bytes", &["log", "cache"],
            "Bytes the caches hold");
        LOG_SEGMENTS = gauge("nuthatch_log_segments", LOG, "Segments with a file");
        LOG_SEGMENT_BYTES = gauge("nuthatch_log_segment_bytes", LOG, "Bytes of their frames");
        LOG_LIVE = gauge("nuthatch_log_live_bytes", LOG, "Bytes of live messages in them");
        LOG_COMPACTED = counter("nuthatch_log_compacted_segments", LOG,
            "Segments rewritten or removed by compaction");
        LOG_RECLAIMED = counter("nuthatch_log_reclaimed_bytes", LOG,
            "Bytes given back by compaction");
        LOG_COMPACTION_READ = counter("nuthatch_log_compaction_read_bytes", LOG,
            "Bytes of records that compaction read");
        LOG_COMPACTION_WRITTEN = counter("nuthatch_log_compaction_written_bytes", LOG,
            "Bytes of frames that compaction wrote, with padding");
        LOG_PACKED = counter("nuthatch_log_packed_bytes", LOG,
            "Bytes of records that compaction compressed, before");
        LOG_PACKED_INTO = counter("nuthatch_log_packed_into_bytes", LOG,
            "Bytes that these became");
        LOG_CHECKPOINTS = counter("nuthatch_log_checkpoints", LOG, "Checkpoints written");
        LOG_TORN_FRAMES = gauge("nuthatch_log_torn_frames", LOG,
            "Incomplete frames that the last start cut off and kept aside");
        LOG_TORN_BYTES = gauge("nuthatch_log_torn_bytes", LOG, "Their bytes");
        LOG_UNUSABLE = gauge("nuthatch_log_unusable_files", LOG,
            "Checkpoints and footers that the last start could not use: set aside, or left as they are because reading them failed");
        LOG_ASIDE = gauge("nuthatch_log_set_aside_files", LOG,
            "Files in `torn/` of a log in a directory: torn ends, files and tier notes that a start set aside, foreign files");
        LOG_DAMAGED = gauge("nuthatch_log_damaged_places", LOG, "Places in files found damaged");
        LOG_READ_ERRORS = counter("nuthatch_log_read_errors", LOG,
            "Reads of files that the disk failed; they are tried again");
        LOG_STATES_REFUSED = counter("nuthatch_log_states_refused", LOG,
            "Compactions put off because a stream's state could not be logged");
        LOG_FULL_REFUSALS = counter("nuthatch_log_full_refusals", LOG,
            "Appends refused because the medium was full");
        STORE_REQUESTS = counter("nuthatch_store_requests", &["log", "kind"],
            "Requests to the bucket of a log: `put`, `get`, `head`, `list` (pages), `delete`");
        STORE_RETRIES = counter("nuthatch_store_retries", LOG,
            "Requests that were repeated because the bucket failed for a moment");
        STORE_PUT = counter("nuthatch_store_put_bytes", LOG, "Bytes written to the bucket");
        STORE_GET = counter("nuthatch_store_get_bytes", LOG, "Bytes read from the bucket");
        STORE_CACHE_BYTES = gauge("nuthatch_store_cache_bytes", &["log", "cache"],
            "Bytes of a bucket's objects kept here: `memory`, `disk`");
        STORE_CACHE_HITS = counter("nuthatch_store_cache_hits", &["log", "cache"],
            "Blocks of objects that were found there");
        STORE_CACHE_MISSES = counter("nuthatch_store_cache_misses", LOG,
            "Blocks of objects that had to be fetched when they were asked for");
        TIER_SEGMENTS = gauge("nuthatch_tier_segments", LOG,
            "Segments of a local log that are in the bucket behind it only");
        TIER_BYTES = gauge("nuthatch_tier_bytes", LOG, "Their bytes");
        TIER_LOCAL = gauge("nuthatch_tier_local_bytes", LOG,
            "Bytes of a tiered log's files on the local disk, as last counted");
        TIER_WAITING = gauge("nuthatch_tier_waiting_segments", LOG,
            "Segments that should have moved by now, as last counted");
        TIER_MOVED = counter("nuthatch_tier_moved_segments", LOG, "Segments moved");
        TIER_MOVED_BYTES = counter("nuthatch_tier_moved_bytes", LOG, "Their bytes");
        TIER_FAILURES = counter("nuthatch_tier_failures", LOG,
            "Attempts to move or remove a segment that failed; they are repeated");
        TIER_FAILING = gauge("nuthatch_tier_failing", LOG,
            "1 while nothing moves because the last attempt failed");
        LOG_SPACE = gauge("nuthatch_log_space_state", LOG,
            "What the medium takes: 0 everything, 1 only what frees space (the reserve is in use), 2 nothing");
        LOG_FAILED = gauge("nuthatch_log_failed", LOG,
            "1 after an error that stopped the log until a restart");
    }
}
