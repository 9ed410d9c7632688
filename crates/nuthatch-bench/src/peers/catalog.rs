//! All peers. The packages are those that were tried; newer ones will usually do.

use std::path::{Path, PathBuf};

use super::minio::PUBLIC_METRICS;
use super::{Launch, Peer, Site, find_program, first_line, jvm, rabbit, user_dir};
use crate::harness::BenchError;

/// Largest message servers are configured for, above the largest one measured.
const MAX_PAYLOAD_BYTES: usize = 8 * 1024 * 1024;

const FSYNC_BEFORE: (&str, &str) = ("fsync", "before the ack (sync_interval always)");
const FSYNC_AFTER: (&str, &str) = ("fsync", "after the ack (sync_interval 2m)");
const GO_GET_NATS: &str =
    "Go module: go install github.com/nats-io/nats-server/v2@v2.15.2 (Apache-2.0)";

/// All peers, in the order of reports.
pub static PEERS: &[Peer] = &[
    nuthatch("nuthatch", "Nuthatch as it comes", FSYNC_ROW_BEFORE, |site| {
        Ok(nats_like(site, &["serve"], "always"))
    }),
    nuthatch("nuthatch-2m", "Nuthatch with nats-server's sync_interval", FSYNC_ROW_AFTER, |site| {
        Ok(nats_like(site, &["serve"], "2m"))
    }),
    Peer {
        package: concat!(
            "this binary, or the one that NUTHATCH names, and the Go module: ",
            "GOBIN=~/.cache/nuthatch-peers go install ",
            "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c"
        ),
        licence: "Apache-2.0; MinIO AGPL-3.0",
        config: "as nuthatch, store s3://, one MinIO with one drive",
        on_objects: true,
        find: || minio().and_then(|_| find_nuthatch()),
        ..nuthatch(
            "nuthatch-minio",
            "Nuthatch, its log as objects in a MinIO",
            PUT_BEFORE,
            nuthatch_on_minio,
        )
    },
    nats_server("nats", "nats-server as it comes", FSYNC_ROW_AFTER, |site| {
        Ok(nats_like(site, &[], "2m"))
    }),
    nats_server("nats-sync", "nats-server, sync_interval always", FSYNC_ROW_BEFORE, |site| {
        Ok(nats_like(site, &[], "always"))
    }),
    redis("redis", "Redis Streams, appendfsync everysec", |site| {
        Ok(redis_server(site, "everysec"))
    }),
    redis("redis-sync", "Redis Streams, appendfsync always", |site| {
        Ok(redis_server(site, "always"))
    }),
    Peer {
        name: "postgres",
        what: "PostgreSQL table, SKIP LOCKED",
        driver: "postgres",
        speaks_nats: false,
        package: "Debian: apt install postgresql-15",
        licence: "PostgreSQL Licence",
        config: "initdb, fsync=on, synchronous_commit=on, shared_buffers=1GB",
        settings: &[],
        on_objects: false,
        find: || find_program("POSTGRES", "postgres", &postgres_dirs()),
        version: |program| first_line(program, &["--version"]),
        launch: postgres,
    },
    Peer {
        name: "rabbitmq",
        what: "RabbitMQ quorum queue, one node",
        driver: "rabbitmq",
        speaks_nats: false,
        package: "Debian: apt install rabbitmq-server",
        licence: "MPL-2.0",
        config: "defaults, an epmd of its own",
        settings: &[],
        on_objects: false,
        find: rabbit::find,
        version: rabbit::version,
        launch: rabbit::launch,
    },
    kafka("kafka", "Kafka in KRaft mode, one node", KAFKA_LAZY),
    kafka("kafka-sync", "Kafka, flushed at every message", KAFKA_SYNC),
    Peer {
        what: "Woodpecker embedded, local files",
        config: "the settings it ships, storage local, embedded etcd",
        ..WOODPECKER
    },
    Peer {
        name: "woodpecker-minio",
        what: "Woodpecker embedded, objects in a MinIO",
        package: concat!(
            "Go modules: cd bench/peers/woodpecker && go build -o \
             ~/.cache/nuthatch-peers/woodpecker . && GOBIN=~/.cache/nuthatch-peers go install ",
            "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c"
        ),
        licence: "as woodpecker; MinIO AGPL-3.0",
        config: "the settings it ships, storage minio, one MinIO with one drive, embedded etcd",
        on_objects: true,
        find: || minio().and_then(|_| find_woodpecker()),
        version: |program| {
            let minio = minio()?.display().to_string();
            first_line(program, &["--minio", &minio, "--version"])
        },
        launch: |site| {
            let minio = minio().ok_or_else(|| BenchError::Usage("there is no MinIO".into()))?;
            let launch = program(site, &["--minio", &minio.display().to_string()]);
            // Handed on to the MinIO that it starts.
            let env = vec![(PUBLIC_METRICS.0.to_owned(), PUBLIC_METRICS.1.to_owned())];
            Ok(Launch { env, ..launch })
        },
        ..WOODPECKER
    },
    Peer {
        name: "rocksmq",
        what: "RocksMQ of a standalone Milvus",
        driver: "program",
        speaks_nats: false,
        package: "Debian: apt install librocksdb-dev; Go module: cd bench/peers/rocksmq && \
                  CGO_CFLAGS=\"-O2 -g -I$PWD/rocksdb7\" go build -o \
                  ~/.cache/nuthatch-peers/rocksmq .",
        licence: "Apache-2.0 (RocksDB: Apache-2.0)",
        config: "Milvus's defaults; RocksDB's write-ahead log not synced",
        settings: &[],
        on_objects: false,
        find: || find_program("ROCKSMQ", "rocksmq", &[]),
        version: |program| first_line(program, &["--version"]),
        launch: |site| Ok(program(site, &[])),
    },
];

type Settings = &'static [(&'static str, &'static str)];
type LaunchFn = fn(&Site<'_>) -> Result<Launch, BenchError>;

const FSYNC_ROW_BEFORE: Settings = &[FSYNC_BEFORE];
const FSYNC_ROW_AFTER: Settings = &[FSYNC_AFTER];
const PUT_BEFORE: Settings =
    &[("fsync", "before the ack (object PUT; MinIO syncs files, not directories)")];
const KAFKA_LAZY: Settings = &[("fsync", "no (left to the page cache)"), ("partitions", "16")];
const KAFKA_SYNC: Settings = &[
    ("fsync", "before the answer (topic's flush.messages=1)"),
    ("partitions", "16"),
    ("flush.messages", "1"),
];

const fn nuthatch(
    name: &'static str,
    what: &'static str,
    settings: Settings,
    launch: LaunchFn,
) -> Peer {
    Peer {
        name,
        what,
        driver: "nats",
        speaks_nats: true,
        package: "this binary, or the one that NUTHATCH names",
        licence: "Apache-2.0",
        config: "serve -c: max_payload 8 MiB, the sync_interval above",
        settings,
        on_objects: false,
        find: find_nuthatch,
        version: |program| first_line(program, &["--version"]),
        launch,
    }
}

const fn nats_server(
    name: &'static str,
    what: &'static str,
    settings: Settings,
    launch: LaunchFn,
) -> Peer {
    Peer {
        name,
        what,
        driver: "nats",
        speaks_nats: true,
        package: GO_GET_NATS,
        licence: "Apache-2.0",
        config: "-c: JetStream on, max_payload 8 MiB, the sync_interval above",
        settings,
        on_objects: false,
        find: || find_program("NATS_SERVER", "nats-server", &[user_dir("go/bin")]),
        version: |program| first_line(program, &["--version"]),
        launch,
    }
}

const fn redis(name: &'static str, what: &'static str, launch: LaunchFn) -> Peer {
    Peer {
        name,
        what,
        driver: "redis",
        speaks_nats: false,
        package: "Debian: apt install redis-server",
        licence: "BSD-3-Clause up to 7.2",
        config: "--save '' --appendonly yes, no rewriting of the log",
        settings: &[],
        on_objects: false,
        find: || find_program("REDIS_SERVER", "redis-server", &[]),
        // Such as `Redis server v=7.0.15 sha=00000000:0 malloc=…`.
        version: |program| {
            let line = first_line(program, &["--version"])?;
            let version = line.split(" v=").nth(1)?.split(' ').next()?;
            Some(format!("Redis {version}"))
        },
        launch,
    }
}

const fn kafka(name: &'static str, what: &'static str, settings: Settings) -> Peer {
    Peer {
        name,
        what,
        driver: "kafka",
        speaks_nats: false,
        package: "Maven: mvn -q -f bench/peers/kafka/pom.xml dependency:copy-dependencies \
                  -DoutputDirectory=$HOME/.cache/nuthatch-peers/kafka",
        licence: "Apache-2.0",
        config: "kafka.Kafka 4.3.1, KRaft, -Xmx1g G1, replication factor 1, 16 partitions, acks=all, \
                 linger.ms=0, one partition for offsets",
        settings,
        on_objects: false,
        find: jvm::find_kafka,
        version: jvm::kafka_version,
        launch: jvm::kafka,
    }
}

/// Settings shared by its peers.
const WOODPECKER: Peer = Peer {
    name: "woodpecker",
    what: "",
    driver: "program",
    speaks_nats: false,
    package: "Go module: cd bench/peers/woodpecker && go build -o \
              ~/.cache/nuthatch-peers/woodpecker .",
    licence: "Apache-2.0; its server package, which this links, AGPL-3.0 or SSPL-1.0",
    config: "",
    settings: &[],
    on_objects: false,
    find: find_woodpecker,
    version: |program| first_line(program, &["--version"]),
    launch: |site| Ok(program(site, &[])),
};

pub(super) fn find_woodpecker() -> Option<PathBuf> {
    find_program("WOODPECKER", "woodpecker", &[])
}

pub(super) fn minio() -> Option<PathBuf> {
    find_program("MINIO", "minio", &[user_dir("go/bin")])
}

fn find_nuthatch() -> Option<PathBuf> {
    crate::own::program(None).ok()
}

/// Name and password of a MinIO that only this machine reaches.
pub(super) const MINIO_SECRET: &str = "workbench";

/// A MinIO with one drive and a bucket, which is a directory of the drive, and Nuthatch on it.
fn nuthatch_on_minio(site: &Site<'_>) -> Result<Launch, BenchError> {
    let minio = minio().ok_or_else(|| BenchError::Usage("there is no MinIO".into()))?;
    let address = format!("127.0.0.1:{}", site.ports[1]);
    let drive = site.dir.join("minio");
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut launch = nats_like(site, &["serve"], "always");
    for (_, text) in &mut launch.files {
        *text = text.replace("jetstream {\n", "jetstream {\n  store: \"s3://bench/log\"\n");
    }
    launch.before = vec![words(&["mkdir", "-p", &drive.join("bench").display().to_string()])];
    let (minio, drive) = (minio.display().to_string(), drive.display().to_string());
    launch.beside = vec![words(&[&minio, "server", "--quiet", "--address", &address, &drive])];
    launch.beside_ready = Some((site.ports[1], "/minio/health/cluster"));
    launch.env = [
        ("MINIO_ROOT_USER", MINIO_SECRET.to_owned()),
        ("MINIO_ROOT_PASSWORD", MINIO_SECRET.to_owned()),
        ("MINIO_BROWSER", "off".to_owned()),
        (PUBLIC_METRICS.0, PUBLIC_METRICS.1.to_owned()),
        ("AWS_ACCESS_KEY_ID", MINIO_SECRET.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", MINIO_SECRET.to_owned()),
        ("AWS_ENDPOINT", format!("http://{address}")),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .to_vec();
    Ok(launch)
}

fn nats_like(site: &Site<'_>, arguments: &[&str], sync_interval: &str) -> Launch {
    let port = site.ports[0];
    let config = format!(
        "host: 127.0.0.1\nport: {port}\nmax_payload: {MAX_PAYLOAD_BYTES}\n\
         jetstream {{\n  store_dir: '{}'\n  sync_interval: {sync_interval}\n}}\n{PARTITION_MAPPINGS}",
        site.dir.join("store").display(),
    );
    let mut command = vec![site.program.display().to_string()];
    command.extend(arguments.iter().map(ToString::to_string));
    command.extend(["-c".to_owned(), site.dir.join("server.conf").display().to_string()]);
    Launch {
        files: vec![("server.conf".into(), config)],
        command,
        url: format!("nats://127.0.0.1:{port}"),
        port: Some(port),
        stop_signal: libc::SIGTERM,
        ..Launch::default()
    }
}

/// The mapping of seed 001, for `bench partitions`.
const PARTITION_MAPPINGS: &str =
    "mappings {\n  \"events.*\": \"events.{{wildcard(1)}}.{{partition(5,1)}}\"\n}\n";

fn redis_server(site: &Site<'_>, appendfsync: &str) -> Launch {
    let port = site.ports[0];
    let text = format!(
        "--bind 127.0.0.1 --port {port} --appendonly yes --appendfsync {appendfsync} \
         --auto-aof-rewrite-percentage 0 --daemonize no --save"
    );
    let mut command = vec![site.program.display().to_string()];
    command.extend(text.split_whitespace().map(str::to_owned));
    command.push(String::new());
    command.extend(["--dir".to_owned(), site.dir.display().to_string()]);
    Launch {
        command,
        url: format!("redis://127.0.0.1:{port}/"),
        port: Some(port),
        stop_signal: libc::SIGTERM,
        ..Launch::default()
    }
}

/// Debian keeps the servers of each version in a directory of their own; the newest first.
fn postgres_dirs() -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir("/usr/lib/postgresql") else { return Vec::new() };
    let mut dirs: Vec<PathBuf> = entries.flatten().map(|entry| entry.path().join("bin")).collect();
    dirs.sort_unstable_by(|a, b| b.cmp(a));
    dirs
}

fn postgres(site: &Site<'_>) -> Result<Launch, BenchError> {
    let port = site.ports[0];
    let data = site.dir.join("data").display().to_string();
    let initdb = site.program.with_file_name("initdb").display().to_string();
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let init = words(&format!("{initdb} -D {data} -A trust -U bench --no-instructions"));
    let mut command = words(&format!(
        "{} -D {data} -p {port} -c listen_addresses=127.0.0.1 -c shared_buffers=1GB \
         -c fsync=on -c synchronous_commit=on -c max_connections=400 -c max_wal_size=8GB \
         -c unix_socket_directories=",
        site.program.display()
    ));
    command.push("-c".into());
    command.push("logging_collector=off".into());
    Ok(Launch {
        before: vec![init],
        command,
        url: format!("postgres://bench@127.0.0.1:{port}/postgres"),
        port: Some(port),
        not_root: true,
        // The fast shutdown: does not wait for clients.
        stop_signal: libc::SIGINT,
        ..Launch::default()
    })
}

/// A program of `bench/peers`: `PROGRAM --socket PATH --dir DIR`, and further options.
fn program(site: &Site<'_>, further: &[&str]) -> Launch {
    let socket = site.dir.join("socket").display().to_string();
    let dir = site.dir.join("data").display().to_string();
    let program = site.program.display().to_string();
    let mut command = vec![program, "--socket".into(), socket.clone(), "--dir".into(), dir];
    command.extend(further.iter().map(ToString::to_string));
    Launch { command, url: socket, stop_signal: libc::SIGTERM, ..Launch::default() }
}

/// True if a path is a directory with at least one file of this ending.
pub fn has_files(dir: &Path, ending: &str) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else { return false };
    entries.flatten().any(|entry| entry.path().extension().is_some_and(|e| e == ending))
}
