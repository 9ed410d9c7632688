//! A bucket from an address: `s3://bucket/prefix`, `gs://…`, `az://…`, `file:///shared/directory`.

use crate::bucket::{Bucket, BucketOptions};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, RetryConfig};
use std::io;
use std::sync::Arc;
use url::Url;

/// Why an address gives no bucket.
#[derive(Debug, thiserror::Error)]
pub enum OpenUrlError {
    /// Not an address.
    #[error(
        "{address:?} is not an address of a bucket: {why}; expected something like s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///shared/directory"
    )]
    Address {
        /// The address given.
        address: String,
        /// The fault.
        why: String,
    },
    /// The store's settings (from the environment) do not fit.
    #[error("settings of {place}: {source}")]
    Settings {
        /// The store.
        place: String,
        /// The fault.
        source: object_store::Error,
    },
    /// The operating system refused.
    #[error("{place}: {source}")]
    Io {
        /// The store.
        place: String,
        /// Why.
        source: io::Error,
    },
}

/// Opens the bucket at `address`, with the settings that each store's own tools read from the
/// environment (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, `AWS_ALLOW_HTTP`, `GOOGLE_…`, `AZURE_…`).
/// `below` is appended to the address's prefix.
///
/// # Errors
/// [`OpenUrlError`]; nothing of the environment is in its text.
pub fn open_url(
    address: &str,
    below: &str,
    options: BucketOptions,
) -> Result<Bucket, OpenUrlError> {
    open_url_with(address, below, &[], options)
}

/// As [`open_url`] with further settings over those of the environment, named as there.
///
/// # Errors
/// [`OpenUrlError`].
pub fn open_url_with(
    address: &str,
    below: &str,
    settings: &[(&str, &str)],
    options: BucketOptions,
) -> Result<Bucket, OpenUrlError> {
    // The client library has none of its own. Another that is in force already serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let url = read_url(address)?;
    let wrong = |why: &str| OpenUrlError::Address { address: redact(address), why: why.to_owned() };
    let label = format!("{}/{below}", address.trim_end_matches('/'));
    let (store, prefix) = store_of(&url, &label, settings).map_err(|error| match error {
        Opening::Address(why) => wrong(&why),
        Opening::Settings(source) => OpenUrlError::Settings { place: label.clone(), source },
        Opening::Io(source) => OpenUrlError::Io { place: label.clone(), source },
    })?;
    let prefix = below.split('/').fold(prefix, |path, part| path.join(part));
    let is_directory = url.scheme() == "file";
    let made = if is_directory { Bucket::in_directory } else { Bucket::new };
    made(store, prefix, label.clone(), options)
        .map_err(|source| OpenUrlError::Io { place: label, source })
}

/// Reads an address as [`open_url`] does, and opens nothing.
///
/// # Errors
/// [`OpenUrlError::Address`].
pub fn check_url(address: &str) -> Result<(), OpenUrlError> {
    read_url(address).map(drop)
}

fn read_url(address: &str) -> Result<Url, OpenUrlError> {
    let wrong = |why: &str| OpenUrlError::Address { address: redact(address), why: why.to_owned() };
    let url = Url::parse(address).map_err(|error| wrong(&error.to_string()))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("it must not hold credentials: use the environment"));
    }
    let is_whole = match url.scheme() {
        "file" => url.to_file_path().is_ok(),
        "memory" => true,
        scheme if is_remote(scheme) => url.host_str().is_some_and(|bucket| !bucket.is_empty()),
        other => return Err(wrong(&format!("{other}:// is not known"))),
    };
    Path::from_url_path(url.path()).map_err(|error| wrong(&error.to_string()))?;
    if is_whole { Ok(url) } else { Err(wrong("it names no bucket")) }
}

/// Whether this build opens buckets of such addresses.
fn is_remote(scheme: &str) -> bool {
    (cfg!(feature = "s3") && matches!(scheme, "s3" | "s3a"))
        || (cfg!(feature = "gcs") && scheme == "gs")
        || (cfg!(feature = "azure") && matches!(scheme, "az" | "azure" | "abfs" | "abfss"))
}

enum Opening {
    Address(String),
    Settings(object_store::Error),
    Io(io::Error),
}

/// The part of an unreadable address that may be shown: nothing that may be a secret.
fn redact(address: &str) -> String {
    let Some(at) = address.rfind('@') else { return address.to_owned() };
    match address.find("://") {
        Some(scheme) if scheme < at => format!("{}://…{}", &address[..scheme], &address[at..]),
        _ => format!("…{}", &address[at..]),
    }
}

fn store_of(
    url: &Url,
    label: &str,
    settings: &[(&str, &str)],
) -> Result<(Arc<dyn ObjectStore>, Path), Opening> {
    let prefix =
        Path::from_url_path(url.path()).map_err(|error| Opening::Address(error.to_string()))?;
    let store: Arc<dyn ObjectStore> = match url.scheme() {
        "file" => return directory(url),
        // For tests: gone with the process.
        "memory" => Arc::new(InMemory::new()),
        #[cfg(feature = "s3")]
        "s3" | "s3a" => {
            let mut builder = object_store::aws::AmazonS3Builder::from_env()
                .with_url(url.as_str())
                .with_retry(no_retry());
            for (key, value) in settings {
                let key = key.to_ascii_lowercase().parse().map_err(Opening::Settings)?;
                builder = builder.with_config(key, *value);
            }
            Arc::new(builder.build().map_err(Opening::Settings)?)
        }
        #[cfg(feature = "gcs")]
        "gs" => {
            let mut builder = object_store::gcp::GoogleCloudStorageBuilder::from_env()
                .with_url(url.as_str())
                .with_retry(no_retry());
            for (key, value) in settings {
                let key = key.to_ascii_lowercase().parse().map_err(Opening::Settings)?;
                builder = builder.with_config(key, *value);
            }
            Arc::new(builder.build().map_err(Opening::Settings)?)
        }
        #[cfg(feature = "azure")]
        "az" | "azure" | "abfs" | "abfss" => {
            let mut builder = object_store::azure::MicrosoftAzureBuilder::from_env()
                .with_url(url.as_str())
                .with_retry(no_retry());
            for (key, value) in settings {
                let key = key.to_ascii_lowercase().parse().map_err(Opening::Settings)?;
                builder = builder.with_config(key, *value);
            }
            Arc::new(builder.build().map_err(Opening::Settings)?)
        }
        other => unreachable!("the scheme of {label} was read: {other}"),
    };
    Ok((store, prefix))
}

/// A directory, with every write forced to the disk.
fn directory(url: &Url) -> Result<(Arc<dyn ObjectStore>, Path), Opening> {
    let dir = url.to_file_path().map_err(|()| Opening::Address("it has no path".to_owned()))?;
    nuthatch_log::env::create_dirs(&dir).map_err(Opening::Io)?;
    crate::mounts::check(&dir).map_err(Opening::Io)?;
    let store = LocalFileSystem::new_with_prefix(&dir).map_err(Opening::Settings)?;
    Ok((Arc::new(store.with_fsync(true)), Path::default()))
}

/// Repeating is the bucket's business.
fn no_retry() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_address_is_explained_without_secrets() {
        for (address, part) in [
            ("bucket", "is not an address"),
            ("ftp://x/y", "ftp:// is not known"),
            ("s3://key:secret@bucket/p", "must not hold credentials"),
            ("s3://", "it names no bucket"),
            ("file://host/p", "it names no bucket"),
            ("s3://b/a//c", "is not an address"),
            ("s3://key:sec@secret@bucket", "s3://…@bucket"),
            ("s3:key:secret@bucket", "…@bucket"),
        ] {
            assert!(check_url(address).is_err(), "{address}");
            let error = open_url(address, "default", BucketOptions::default()).err();
            let text = error.map(|error| error.to_string()).unwrap_or_default();
            assert!(text.contains(part), "{text}");
            assert!(!text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn addresses_are_read_as_they_are_opened() {
        for address in
            ["file:///c", "file:/c", "memory://", "s3://b", "S3://b/p", "gs://b/p", "az://b"]
        {
            check_url(address).expect(address);
        }
    }
}
