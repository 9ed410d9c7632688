//! What stands where in the server and in the JetStream service.

/// The layers of the server from the bottom up.
pub const SERVER_LAYERS: &[&[&str]] = &[
    // What everything uses: buffers, budgets of work, randomness, names and numbers.
    &[
        "buffers",
        "slice",
        "shares",
        "trim",
        "large_answers",
        "signature",
        "credentials",
        "quote",
        "random",
        "member_rng",
        "version",
        "wall_time",
        "private_files",
        "fatal",
        "host_name",
        "account_id",
        "log_id",
        "change_log",
        "cipher_suites",
        "close_reason",
    ],
    // The configuration.
    &["options"],
    // Transport: sockets, TLS, websocket, what waits to be written, and the log of the process.
    &["greeting", "logging", "logs", "socket", "tls", "websocket", "outbox"],
    // Core NATS: identity, outlets, subscriptions, accounts, routing, and the port to JetStream.
    &[
        "identity",
        "operator",
        "auth",
        "mapping",
        "meaning",
        "link",
        "outlet",
        "egress",
        "subscription",
        "leaf_table",
        "interest",
        "latency",
        "served",
        "account",
        "peer",
        "jetstream_port",
        "route",
        "account_imports",
        "advisories",
        "operations",
        "own_publishes",
        "sink",
        "conn",
        "connections",
        "leafs",
        "nodes",
        "system_port",
        "info",
    ],
    // The server as a whole, and what reads and writes for its connections.
    &["server", "leaf", "reader", "writer", "leaf_service", "node_service", "listener"],
    // Operations.
    &["operator_service", "monitor", "system", "process"],
];

/// The layers of the JetStream service from the bottom up.
pub const JETSTREAM_LAYERS: &[&[&str]] = &[
    // Ports, what the API says and is asked, what there is, and what is under way.
    &[
        "foreign",
        "core_port",
        "logs_port",
        "outcome",
        "envelope",
        "request",
        "registry",
        "account_table",
        "copy_tasks",
        "import_table",
        "move_table",
        "stream_subjects",
        "pending_changes",
    ],
    // What the calls share, each with a state or a port of its own.
    &["stream_table", "log_names", "log_calls", "changing", "admission", "audit"],
    // The service.
    &["service"],
    // The calls, and the tasks that they begin.
    &[
        "across",
        "placing",
        "step_down",
        "lists",
        "streams",
        "replicas",
        "writers",
        "consumers",
        "account",
        "snapshot",
        "restore",
        "imports",
        "moves",
        "replication",
        "load",
        "view",
        "api",
    ],
    // The logs, and the service as connections see it.
    &[
        "settings",
        "clock",
        "engine",
        "log_table",
        "engines",
        "known_logs",
        "startup_hints",
        "durable_logs",
        "handle",
        "routing",
        "banner",
        "owned_logs",
        "open",
    ],
];
