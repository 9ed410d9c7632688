//! The tables of `jetstream` and of what stands in it.

use super::super::keys::{Block, no, said, yes};
use super::{CLUSTER_ONLY, NO_TPM};

/// Keys of `jetstream`.
pub(in crate::options) static JETSTREAM: Block = Block {
    place: "in 'jetstream'",
    keys: &[
        yes(&["enabled", "enable"], "true", "JetStream is on"),
        yes(
            &["store_dir", "storedir"],
            "`nuthatch-data`; for `nats-server` `/tmp/nats`",
            "data is in its subdirectory `nuthatch`",
        ),
        yes(
            &["store"],
            "none",
            "bucket that the default log is kept in, instead of the directory: \
             `\"s3://bucket/prefix\"`, `\"gs://…\"`, `\"az://…\"`, `\"file:///shared/dir\"`; \
             a value without `://` is a directory, as `store_dir`",
        ),
        yes(&["tier"], "none", "bucket to which old segments of the default log move; see below"),
        yes(&["quorum"], "none", "of a node of a cluster; see below"),
        yes(&["cache"], "none", "disk cache of a default log in a bucket; see below"),
        yes(&["logs"], "none", "further logs by name; see below"),
        yes(
            &["max_memory_store", "max_mem_store", "max_mem"],
            "decided by the server",
            "bytes of memory streams: `10GB`, or `\"10G\"` for 10 GiB",
        ),
        yes(
            &["max_file_store", "max_file"],
            "decided by the server",
            "bytes of stored streams, likewise",
        ),
        yes(&["domain"], "none", "JetStream domain"),
        yes(
            &["sync_interval", "sync"],
            "`always`",
            "when data is made durable: `always` (before every ack), a duration, or `never`",
        ),
        yes(
            &["compression"],
            "`none`; in a bucket `zstd`",
            "what compaction does to cold data of the default log; \
             streams with `compression: s2` are compressed in any case",
        ),
        yes(&["strict"], "true", "unknown fields of API requests are errors"),
        yes(&["limits"], "none", "see below"),
        yes(
            &["key", "ek", "encryption_key"],
            "none",
            "encrypts all stored logs; give it by a variable of the environment, as `$JS_KEY`",
        ),
        yes(
            &["prev_key", "prev_ek", "prev_encryption_key"],
            "none",
            "key under which there still is data, which compaction writes anew: with `key` under \
             that, without it in the clear",
        ),
        yes(&["cipher"], "`chacha`", "`chacha` (`chachapoly`), `aes` (`aesgcm`); with `key`"),
        no(&["tpm"], "key from a TPM", NO_TPM),
        said(&["extension_hint"], "hint to extend the cluster", CLUSTER_ONLY),
        yes(
            &["unique_tag"],
            "none",
            "what a tag of the servers begins with (`az:`) whose value no two replicas of a stream share; in a cluster",
        ),
        said(&["max_outstanding_catchup"], "bytes of catch-up in flight", CLUSTER_ONLY),
        said(&["meta_compact"], "compaction of the cluster's metadata", CLUSTER_ONLY),
        said(&["meta_compact_size"], "compaction of the cluster's metadata", CLUSTER_ONLY),
        said(&["meta_compact_sync"], "compaction of the cluster's metadata", CLUSTER_ONLY),
        said(
            &["max_buffered_size"],
            "bytes queued per stream",
            "one queue per log, bounded in bytes, serves all streams",
        ),
        said(
            &["max_buffered_msgs"],
            "messages queued per stream",
            "one queue per log, bounded in bytes, serves all streams",
        ),
        said(&["request_queue_limit"], "queued API requests", "the bound is fixed"),
        said(&["info_queue_limit"], "queued info requests", "the bound is fixed"),
        said(&["max_concurrent_io"], "parallel disk operations", "one writer per log suffices"),
    ],
};

/// Keys of one of `logs` in `jetstream`.
pub(in crate::options) static LOG: Block = Block {
    place: "in a log of 'jetstream'",
    keys: &[
        yes(&["mode"], "`object` with `store`, else `local`", "`local` (a directory), `object`"),
        yes(&["store"], "none", "address of the bucket of an `object` log, as `store` above"),
        yes(&["dir"], "one of its name in the store directory", "directory of a `local` log"),
        yes(&["sync_interval", "sync"], "as in `jetstream`", "for a `local` log"),
        yes(&["compression"], "`none`; in a bucket `zstd`", "of cold data: `none`, `zstd`"),
        yes(&["tier"], "none", "bucket to which old segments of a `local` log move; see below"),
        yes(&["cache"], "none", "disk cache of an `object` log; see below"),
    ],
};

/// Keys of `tier` in `jetstream` and in one of its `logs`.
pub(in crate::options) static TIER: Block = Block {
    place: "in 'tier'",
    keys: &[
        yes(&["store"], "required", "address of the bucket, as `store` of `jetstream`"),
        yes(
            &["after_age", "age"],
            "none",
            "segments move when they were sealed so long ago, such as `\"1h\"`",
        ),
        yes(
            &["local_max", "max_local"],
            "none",
            "the oldest segments move so that the log's files on the local disk stay below this; \
             at least 8MB. One of the two keys is needed",
        ),
    ],
};

/// Keys of `cache` in `jetstream` and in one of its `logs`.
pub(in crate::options) static CACHE: Block = Block {
    place: "in 'cache'",
    keys: &[
        yes(
            &["dir"],
            "required",
            "directory for blocks of objects, below which each log has one; may be deleted at any time",
        ),
        yes(
            &["max_bytes", "max"],
            "required",
            "bytes that the files of one log may take; at least 8MB",
        ),
    ],
};

/// Keys of `limits` in `jetstream`.
pub(in crate::options) static JETSTREAM_LIMITS: Block = Block {
    place: "in 'limits' of 'jetstream'",
    keys: &[
        yes(&["max_ack_pending"], "none", "highest max_ack_pending of a consumer"),
        yes(&["max_request_batch"], "none", "highest batch of a pull request"),
        yes(&["duplicate_window"], "none", "longest duplicate window of a stream"),
        yes(
            &["default_max_consumers"],
            "1000",
            "consumers of a stream that sets no max_consumers; -1: any number",
        ),
        said(&["max_ha_assets"], "replicated streams and consumers", CLUSTER_ONLY),
        yes(&["batch"], "as below", "limits of batch publishing"),
    ],
};

/// Keys of `batch` in `limits` of `jetstream`.
pub(in crate::options) static BATCH_LIMITS: Block = Block {
    place: "in 'batch' in 'limits' of 'jetstream'",
    keys: &[
        yes(
            &["max_inflight_per_stream"],
            "50 atomic, 1000 fast",
            "batches of a kind open at once in a stream",
        ),
        yes(
            &["max_inflight_total"],
            "1000 atomic, 50000 fast",
            "batches of a kind open at once in a log",
        ),
        yes(&["max_msgs"], "1000", "messages of an atomic batch, at most 65536"),
        yes(&["timeout"], "10s", "silence after which a batch is given up"),
    ],
};
