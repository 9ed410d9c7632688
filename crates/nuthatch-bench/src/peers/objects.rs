//! What an object store takes, measured without any of the systems: puts of several sizes, one and
//! several at a time. Done by the program in `bench/peers/woodpecker`, which has a well-kept S3 client
//! in it and can start a MinIO.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::catalog::{find_woodpecker, minio};
use crate::harness::BenchError;
use crate::process;
use crate::report::RawLimit;

/// Puts into `url`, a bucket as `http://HOST:PORT/BUCKET`; or into a MinIO that is started for it
/// below `dir`, and ended. Name and password of a bucket are taken from `AWS_ACCESS_KEY_ID` and
/// `AWS_SECRET_ACCESS_KEY`.
///
/// # Errors
/// When a program is missing, or the store refuses.
pub fn limits(dir: &Path, url: Option<&str>) -> Result<Vec<RawLimit>, BenchError> {
    let (Some(program), Some(minio)) = (find_woodpecker(), minio().or(url.map(|_| "".into())))
    else {
        let text = "measuring puts needs the programs of the peer woodpecker-minio; see `nuthatch \
                    bench peers`";
        return Err(BenchError::Usage(text.into()));
    };
    let dir = std::path::absolute(dir).map_err(crate::compare::file_error("find", dir))?;
    let dir = dir.join(format!("objects-{:x}", nuthatch_client::random_u64()));
    let mut command = Command::new(&program);
    command.arg("--limits").arg(&dir).arg("--minio").arg(minio);
    command.args(url.map(|url| ["--s3", url]).into_iter().flatten());
    command.stdin(Stdio::null());
    // SAFETY: only one async-signal-safe system call runs between fork and exec.
    unsafe { command.pre_exec(process::die_with_parent) };
    let output = command.output().map_err(crate::compare::file_error("start", &program));
    // Only the MinIO's data; nothing is lost when they stay.
    let _ = std::fs::remove_dir_all(&dir);
    let output = output?;
    let limits = serde_json::from_slice(&output.stdout);
    limits.map_err(|_| {
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().last().unwrap_or("no answer").to_owned();
        BenchError::Failed(format!("cannot measure puts of objects: {last}"))
    })
}
