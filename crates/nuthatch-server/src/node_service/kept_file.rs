//! A small file in our directory of the store that is always replaced as a whole.

use crate::private_files::OUR_DIRECTORY;
use crate::server::Server;
use nuthatch_log::env::{Disk, RealDisk, read_exact_at, replace_file};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::path::PathBuf;

/// The file, of which a process has one owner.
#[derive(Clone)]
pub(super) struct KeptFile {
    dir: PathBuf,
    name: &'static str,
}

impl KeptFile {
    /// The file in this directory of ours.
    pub(super) fn of(server: &Server, dir: &str, name: &'static str) -> Self {
        Self { dir: server.options().jetstream.store_dir.join(OUR_DIRECTORY).join(dir), name }
    }

    /// What is in it; `None`: it is not there.
    ///
    /// # Errors
    /// A sentence with the file's name: it cannot be read. It stays as it is.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<Option<T>, String> {
        let failed = |error: String| format!("{}/{}: {error}", self.dir.display(), self.name);
        let Some(bytes) = self.bytes().map_err(|error| failed(error.to_string()))? else {
            return Ok(None);
        };
        serde_json::from_slice(&bytes).map(Some).map_err(|error| failed(error.to_string()))
    }

    fn bytes(&self) -> io::Result<Option<Vec<u8>>> {
        let opened = match self.dir.try_exists()? {
            true => RealDisk::open(&self.dir)?.open(self.name),
            false => return Ok(None),
        };
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let len = usize::try_from(file.len()?).map_err(io::Error::other)?;
        read_exact_at(&*file, 0, len).map(Some)
    }

    /// Replaces it, durably; waits for the disk elsewhere.
    ///
    /// # Errors
    /// A sentence. What was there before may be there still.
    pub(super) async fn write<T: Serialize + Send + 'static>(
        self,
        content: T,
    ) -> Result<(), String> {
        let write = move || {
            let disk = RealDisk::open(&self.dir)?;
            disk.create_dir("tmp")?;
            replace_file(&disk, self.name, &serde_json::to_vec(&content)?)
        };
        match tokio::task::spawn_blocking(write).await {
            Ok(written) => written.map_err(|error: io::Error| error.to_string()),
            Err(panic) => Err(panic.to_string()),
        }
    }
}
