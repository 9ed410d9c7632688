//! What entries make: the files of a replicated directory, by the meaning of the operations alone.

use nuthatch_cluster::operation::{FileId, Operation, operations};
use nuthatch_cluster::replica::Replica;
use std::collections::BTreeMap;

/// Names and contents.
#[derive(Default)]
pub(super) struct Model {
    names: BTreeMap<String, FileId>,
    files: BTreeMap<FileId, Vec<u8>>,
}

impl Model {
    /// What these payloads make, one after the other.
    pub(super) fn of<'a>(payloads: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut model = Self::default();
        for payload in payloads {
            for operation in operations(payload).expect("the clients of this world wrote it") {
                model.apply(operation);
            }
        }
        model
    }

    fn apply(&mut self, operation: Operation<'_>) {
        match operation {
            Operation::Create { path, file } => {
                self.files.insert(file, vec![]);
                self.names.insert(path, file);
            }
            Operation::Write { file, at, bytes } => {
                let (file, at) = (self.files.entry(file).or_default(), at as usize);
                file.resize(file.len().max(at + bytes.len()), 0);
                file[at..at + bytes.len()].copy_from_slice(bytes);
            }
            Operation::SetLen { file, len } => {
                self.files.entry(file).or_default().resize(len as usize, 0);
            }
            Operation::Rename { from, to } => {
                let file = self.names.remove(&from).expect("a name that is there");
                self.names.insert(to, file);
            }
            Operation::Remove { path } => drop(self.names.remove(&path)),
        }
    }

    /// How a directory differs from this, if it does.
    pub(super) fn differs(&self, replica: &Replica) -> Option<String> {
        let named: BTreeMap<&String, FileId> = replica.names().collect();
        let own: BTreeMap<&String, FileId> =
            self.names.iter().map(|(name, file)| (name, *file)).collect();
        if named != own {
            return Some(format!("the names are {named:?} and not {own:?}"));
        }
        named.into_iter().find_map(|(name, file)| {
            let open = replica.file(file).expect("it is named");
            let mut bytes = vec![0; open.len().ok()? as usize];
            let read = open.read_at(&mut bytes, 0);
            let same = read.is_ok() && bytes == self.files[&file];
            (!same).then(|| format!("{name} has another content"))
        })
    }
}
