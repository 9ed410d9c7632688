//! A way to the store that several puts share: together they take longer than one attempt may.

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use nuthatch_object::{Bucket, BucketOptions};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What a put takes that has the link for itself, in steps.
const STEPS: f64 = 10.0;
const STEP: Duration = Duration::from_millis(20);

/// Shares its bandwidth among the puts that are under way.
struct Link {
    store: InMemory,
    puts: AtomicU32,
}

/// A put that is under way.
struct UnderWay<'a>(&'a AtomicU32);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("link")
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("link")
    }
}

#[async_trait]
impl ObjectStore for Link {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.puts.fetch_add(1, Ordering::SeqCst);
        let _under_way = UnderWay(&self.puts);
        let mut sent = 0.0;
        while sent < STEPS {
            tokio::time::sleep(STEP).await;
            sent += 1.0 / f64::from(self.puts.load(Ordering::SeqCst));
        }
        self.store.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.store.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.store.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}

/// One put takes two thirds of the time that an attempt may take, four at a time take longer. They
/// would get in each other's way for ever.
#[test]
fn puts_that_are_too_slow_together_are_stored_one_by_one() {
    let options = BucketOptions {
        attempt_timeout: STEP * 15,
        retry_for: Duration::from_secs(5),
        ..BucketOptions::default()
    };
    let link = Link { store: InMemory::new(), puts: AtomicU32::new(0) };
    let bucket = Bucket::new(Arc::new(link), Path::from("log"), "link".to_owned(), options);
    let bucket = bucket.expect("threads");
    let objects = (0..4).map(|n| (format!("data/{n}"), PutPayload::from_static(b"frame")));
    bucket.put_all(objects.collect()).expect("they are stored");
    assert_eq!(bucket.list("data").expect("lists").len(), 4);
}
