//! A log in Google Cloud Storage and in Azure Blob Storage: their own clients over HTTP, with a
//! server in this process that speaks as much of either as a log needs.

#[path = "common/blobs.rs"]
mod blobs;
#[path = "../../nuthatch-log/tests/common/mod.rs"]
mod common;
#[path = "common/proxy.rs"]
mod proxy;

use blobs::Dialect;
use common::{Outcome, Rig, tiny};
use nuthatch_log::LogOptions;
use nuthatch_object::{BucketOptions, ObjectDisk, ObjectDiskOptions, open_url_with};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Rounds of publishes: enough for segments to be sealed, compacted and removed.
const ROUNDS: u64 = 60;

/// An account of Google's that signs nothing.
const UNSIGNED: &str = r#"{"private_key": "none", "private_key_id": "none",
    "client_email": "none", "disable_oauth": true}"#;

fn open(dialect: Dialect, address: SocketAddr) -> Rig {
    let endpoint = format!("http://{address}");
    let (url, settings) = match dialect {
        Dialect::Gcs => (
            "gs://logs/team/a",
            [
                ("GOOGLE_BASE_URL", endpoint.as_str()),
                ("GOOGLE_SERVICE_ACCOUNT_KEY", UNSIGNED),
                ("GOOGLE_ALLOW_HTTP", "true"),
                ("GOOGLE_HTTP1_ONLY", "true"),
            ],
        ),
        Dialect::Azure => (
            "az://logs/team/a",
            [
                ("AZURE_STORAGE_ENDPOINT", endpoint.as_str()),
                ("AZURE_STORAGE_ACCOUNT_NAME", "team"),
                ("AZURE_SKIP_SIGNATURE", "true"),
                ("AZURE_ALLOW_HTTP", "true"),
            ],
        ),
    };
    let options = BucketOptions { retry_for: Duration::from_secs(30), ..BucketOptions::default() };
    let bucket = open_url_with(url, "default", &settings, options).expect("the address is one");
    let disk = ObjectDisk::open(Arc::new(bucket), ObjectDiskOptions::default());
    let options = LogOptions { block_bytes: 64, ..tiny() };
    Rig::open(options, Arc::new(disk.expect("the store can be used"))).expect("opens")
}

fn body(n: u64) -> Vec<u8> {
    let mut body = n.to_le_bytes().to_vec();
    body.resize(700, n as u8);
    body
}

fn a_log_lives_there(dialect: Dialect) {
    let address = blobs::serve(dialect);
    let mut first = open(dialect, address);
    first.create(1, 0);
    // Keeps five messages, so that segments die.
    first.create(2, 5);
    for n in 1..=ROUNDS {
        assert_eq!(first.publish(1, &body(n)), Outcome::Acked(n));
        assert_eq!(first.publish(2, &body(n)), Outcome::Acked(n));
        first.advance(Duration::from_millis(100));
    }
    let mut second = open(dialect, address);
    let late = first.publish(1, b"late");
    assert!(matches!(&late, Outcome::Failed(why) if why.contains("has taken over")), "{late:?}");
    for n in 1..=ROUNDS {
        assert_eq!(second.read(1, n), Outcome::Body(body(n)));
    }
    assert_eq!(second.read(2, ROUNDS), Outcome::Body(body(ROUNDS)));
    assert_eq!(second.publish(1, b"more"), Outcome::Acked(ROUNDS + 1));
    second.core.close().expect("closes");
}

#[test]
fn a_log_in_google_cloud_storage() {
    a_log_lives_there(Dialect::Gcs);
}

#[test]
fn a_log_in_azure_blob_storage() {
    a_log_lives_there(Dialect::Azure);
}
