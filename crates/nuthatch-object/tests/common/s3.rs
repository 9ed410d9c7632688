//! A real S3 API over HTTP, signatures included, served in this process over a directory.
#![allow(dead_code, reason = "each test file uses its own part")]

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use nuthatch_object::{Bucket, BucketOptions, open_url_with};
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

pub const KEY: &str = "nuthatch";
pub const SECRET: &str = "not-a-secret";
pub const BUCKET: &str = "logs";

/// An S3 server over a directory, gone with the value.
pub struct S3 {
    dir: PathBuf,
    pub address: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

impl S3 {
    pub fn start(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("nuthatch-s3-{name}-{}", std::process::id()));
        // A process of the same number may have been killed here.
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join(BUCKET)).expect("a directory");
        let mut builder =
            S3ServiceBuilder::new(s3s_fs::FileSystem::new(&dir).expect("a directory"));
        builder.set_auth(SimpleAuth::from_single(KEY, SECRET));
        let service = builder.build();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("threads");
        let bind = tokio::net::TcpListener::bind("127.0.0.1:0");
        let listener = runtime.block_on(bind).expect("a port");
        let address = listener.local_addr().expect("bound");
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let service = service.clone();
                tokio::spawn(async move {
                    let http = Builder::new(TokioExecutor::new());
                    let _ = http.serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        Self { dir, address, _runtime: runtime }
    }
}

impl S3 {
    /// Removes what is below a prefix: the more there is, the longer everybody's listings take.
    pub fn clear(&self, prefix: &str) {
        let _ = std::fs::remove_dir_all(self.dir.join(BUCKET).join(prefix));
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// What the environment says for a server at an address, under the names of AWS's own tools.
pub fn settings(address: SocketAddr, secret: &str) -> [(&'static str, String); 5] {
    [
        ("AWS_ENDPOINT_URL", format!("http://{address}")),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", secret.to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
    ]
}

/// The log `default` below `prefix` of the bucket, reached at an address.
pub fn bucket(address: SocketAddr, prefix: &str, options: BucketOptions) -> Arc<Bucket> {
    bucket_with(address, SECRET, prefix, options)
}

/// [`bucket`] with another secret.
pub fn bucket_with(
    address: SocketAddr,
    secret: &str,
    prefix: &str,
    options: BucketOptions,
) -> Arc<Bucket> {
    let settings = settings(address, secret);
    let settings: Vec<(&str, &str)> =
        settings.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let url = format!("s3://{BUCKET}/{prefix}");
    Arc::new(open_url_with(&url, "default", &settings, options).expect("the address is one"))
}
