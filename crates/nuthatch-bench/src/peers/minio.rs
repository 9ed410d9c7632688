//! A MinIO by itself: one drive, one bucket, ended and removed with the value.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::catalog::{MINIO_SECRET, minio};
use super::running::{end, wait_answers};
use crate::compare::file_error;
use crate::harness::BenchError;
use crate::process;

/// What MinIO must be told so that it shows its metrics to this machine without a token.
pub const PUBLIC_METRICS: (&str, &str) = ("MINIO_PROMETHEUS_AUTH_TYPE", "public");

/// A running MinIO.
#[derive(Debug)]
pub struct Minio {
    child: Child,
    dir: PathBuf,
    /// Its port on the loopback interface.
    pub port: u16,
}

impl Minio {
    /// Starts one below `base` with a bucket of this name, and waits until it answers.
    ///
    /// # Errors
    /// When it is not installed or does not start.
    pub fn start(base: &Path, bucket: &str) -> Result<Self, BenchError> {
        let program = minio().ok_or_else(|| {
            let text = "there is no MinIO; see the peer nuthatch-minio in `nuthatch bench peers`";
            BenchError::Usage(text.into())
        })?;
        let base = std::path::absolute(base).map_err(file_error("find", base))?;
        let dir = base.join(format!("minio-{:x}", nuthatch_client::random_u64()));
        // A bucket is a directory of the drive.
        let drive = dir.join("drive");
        let made = drive.join(bucket);
        fs::create_dir_all(&made).map_err(file_error("create", &made))?;
        let port = nuthatch_ports::free_port().map_err(file_error("find a free port for", &dir))?;
        let log_path = dir.join("log");
        let log = fs::File::create(&log_path).map_err(file_error("create", &log_path))?;
        let mut command = Command::new(&program);
        command.args(["server", "--quiet", "--address", &format!("127.0.0.1:{port}")]).arg(&drive);
        command.envs([
            ("MINIO_ROOT_USER", MINIO_SECRET),
            ("MINIO_ROOT_PASSWORD", MINIO_SECRET),
            ("MINIO_BROWSER", "off"),
            PUBLIC_METRICS,
        ]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
        // SAFETY: only one async-signal-safe system call runs between fork and exec.
        unsafe { command.pre_exec(process::die_with_parent) };
        let child = command.spawn().map_err(file_error("start", &program))?;
        let minio = Self { child, dir, port };
        wait_answers(port, "/minio/health/cluster", &minio.dir)?;
        Ok(minio)
    }

    /// What a client of S3 has to know, as environment.
    pub fn env(&self) -> Vec<(String, String)> {
        [
            ("AWS_ACCESS_KEY_ID", MINIO_SECRET.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", MINIO_SECRET.to_owned()),
            ("AWS_ENDPOINT", format!("http://127.0.0.1:{}", self.port)),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .to_vec()
    }
}

impl Drop for Minio {
    fn drop(&mut self) {
        end(&mut self.child);
        // Nothing is lost when it stays.
        let _ = fs::remove_dir_all(&self.dir);
    }
}
