//! Mending a log in a bucket, as its owner: what a diagnosis changes is written as objects of a new
//! epoch, and every object that this replaces is kept below `doctor/{when}/` first.
//!
//! Owners that went before are shut out in the same way as by a server that takes over: by the fence.
//! Each file changes at once: of the objects of its new content the one for the file's beginning is
//! written last, and only with it do the others count ([`crate::listing`]). The catalog comes last of
//! all. Dying between any two steps leaves a log that another examination understands.

use crate::bucket::{Bucket, BucketError};
use crate::catalog::CatalogVersions;
use crate::names;
use crate::owner::{self, Owner};
use crate::shared::LogShared;
use crate::survey::{Survey, newest_epoch};
use crate::view::BucketView;
use crate::{manifest, rules, selftest, view};
use bytes::Bytes;
use nuthatch_log::Entropy;
use nuthatch_log::doctor::{Applied, KEPT_DIR};
use nuthatch_log::env::{Change, SystemEntropy};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

/// The catalog's path, as the log knows it.
const CATALOG_PATH: &str = "catalog";

/// Size of the objects that a written file is cut into.
const PART_BYTES: usize = 8 << 20;

/// Objects that are copied at a time.
const KEPT_TOGETHER: usize = 16;

/// The newest owner of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastOwner {
    /// Its epoch.
    pub epoch: u32,
    /// How it named itself.
    pub who: String,
    /// True if it recorded that it closed the log. Without that it may have died, or it lives.
    pub has_left: bool,
}

impl LastOwner {
    /// Asks the bucket.
    ///
    /// # Errors
    /// The store's; `NotFound` if no log was ever there.
    pub fn of(bucket: &Bucket) -> io::Result<Self> {
        let newest = newest_epoch(bucket)?.ok_or(io::ErrorKind::NotFound)?;
        let who = owner::name_of(bucket, newest)?.unwrap_or_else(|| "unknown".to_owned());
        let has_left = bucket.exists(&names::left(newest))?;
        Ok(Self { epoch: newest, who, has_left })
    }
}

/// Owns a log in a bucket in order to mend it.
pub struct BucketRepairer {
    owner: Arc<Owner>,
    shared: Arc<LogShared>,
    versions: CatalogVersions,
    view: Arc<BucketView>,
    survey: Survey,
}

/// An object to be written: its key and its content.
type Part = (String, Bytes);

/// The steps of [`BucketRepairer::apply`].
struct Plan {
    /// Prefix that the old objects are moved to.
    kept_in: String,
    /// Keys to keep.
    keep: Vec<String>,
    /// New content of each file but the catalog; none: the file goes.
    files: BTreeMap<String, Vec<Part>>,
    /// Old keys of each of those files.
    old: BTreeMap<String, Vec<String>>,
    /// A manifest for each file that needs a new one, and the key of the damaged one.
    manifests: Vec<(Part, Option<String>)>,
    /// The catalog's new content.
    catalog: Option<Bytes>,
    /// Keys to be written.
    written: Vec<String>,
}

impl BucketRepairer {
    /// Becomes the owner of the log in `bucket`, which ends any other, and looks at what is there.
    /// `who` names this process to others.
    ///
    /// # Errors
    /// The store cannot be used or fails; `InvalidData` if something is of a later version.
    pub fn open(bucket: &Arc<Bucket>, who: &str) -> io::Result<Self> {
        let mut entropy = SystemEntropy::default();
        let mut nonce = || u128::from(entropy.next()) << 64 | u128::from(entropy.next());
        selftest::run(bucket, nonce()).map_err(io::Error::other)?;
        crate::tier::refuse_tier(bucket)?;
        // Data of a later version is refused before the fence ends an owner that can read it.
        BucketView::survey(Arc::clone(bucket))?;
        let used = newest_epoch(bucket)?.unwrap_or(0);
        let owner = Arc::new(Owner::take(Arc::clone(bucket), who, nonce(), used)?);
        let versions = CatalogVersions::claim_readable(
            Arc::clone(bucket),
            Arc::clone(&owner),
            entropy.next(),
        )?;
        let shared = Arc::new(LogShared::repairer(view::cache(bucket), Arc::clone(&owner)));
        // Damaged versions of the catalog show no more: the claim is the newest now.
        let (view, survey) = BucketView::survey_as(&shared)?;
        Ok(Self { owner, shared, versions, view: Arc::new(view), survey })
    }

    /// The log as it is, for reading.
    #[must_use]
    pub fn view(&self) -> Arc<BucketView> {
        Arc::clone(&self.view)
    }

    /// Findings about the log's objects.
    #[must_use]
    pub const fn survey(&self) -> &Survey {
        &self.survey
    }

    /// The epoch that this process took.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.owner.epoch()
    }

    /// Writes `changes` (by file) down, and what the survey found. `before` is the survey from before
    /// this process became the owner; `when` names the directory for what is replaced.
    ///
    /// # Errors
    /// The store's; [`crate::Fenced`] inside if a server has become the owner meanwhile. What was
    /// replaced until then is kept.
    pub fn apply(
        &self,
        changes: &BTreeMap<String, Change>,
        before: &Survey,
        when: &str,
    ) -> io::Result<Applied> {
        self.fill_fences()?;
        let plan = self.plan(changes, before, when);
        let keep = if rules::REPAIRER_KEEPS.holds() { &plan.keep[..] } else { &[] };
        for keys in keep.chunks(KEPT_TOGETHER) {
            self.keep(&plan.kept_in, keys)?;
        }
        let mut applied =
            Applied { kept_in: plan.kept_in.clone(), kept: Vec::new(), created: Vec::new() };
        for path in changes.keys().chain(self.survey.manifests.keys()) {
            let is_new = path != CATALOG_PATH && self.view.objects_of(path).is_empty();
            let list = if is_new { &mut applied.created } else { &mut applied.kept };
            if !list.contains(path) {
                list.push(path.clone());
            }
        }
        self.put(&format!("{}/manifest", plan.kept_in), plan.text(self.epoch()))?;
        self.write(plan)?;
        Ok(applied)
    }

    /// Notes that this process writes nothing any more.
    pub fn leave(&self) {
        self.owner.leave();
    }

    fn plan(&self, changes: &BTreeMap<String, Change>, before: &Survey, when: &str) -> Plan {
        let mut plan = Plan {
            kept_in: format!("{KEPT_DIR}/{when}"),
            keep: before.damaged_catalogs.clone(),
            files: BTreeMap::new(),
            old: BTreeMap::new(),
            manifests: Vec::new(),
            catalog: None,
            written: Vec::new(),
        };
        let (claimed, next) = self.versions.keys();
        if !before.damaged_catalogs.is_empty() {
            plan.written.push(claimed.clone());
        }
        for (path, change) in changes {
            if path == CATALOG_PATH {
                plan.written.push(next.clone());
                plan.catalog = Some(match change {
                    Change::Written(bytes) => Bytes::copy_from_slice(bytes),
                    Change::Removed => Bytes::new(),
                });
                continue;
            }
            let parts = match change {
                Change::Written(bytes) => self.parts(path, bytes),
                Change::Removed => Vec::new(),
            };
            plan.old.insert(path.clone(), self.view.objects_of(path));
            plan.files.insert(path.clone(), parts);
        }
        for (path, extents) in &self.survey.manifests {
            if !plan.files.contains_key(path) {
                let bytes = Bytes::from(manifest::encode(extents));
                let damaged = self.damaged_manifest(path);
                plan.keep.extend(damaged.clone());
                let part = (names::manifest(path, self.epoch()), bytes);
                plan.manifests.push((part, damaged));
            }
        }
        plan.keep.extend(plan.old.values().flatten().cloned());
        let new = plan.files.values().flatten().chain(plan.manifests.iter().map(|(part, _)| part));
        plan.written.extend(new.map(|(key, _)| key.clone()));
        plan
    }

    /// The manifest of a file that cannot be read: the newest.
    fn damaged_manifest(&self, path: &str) -> Option<String> {
        let prefix = names::manifest(path, 0);
        let prefix = prefix.trim_end_matches('0');
        let keys = self.view.objects_of(path);
        keys.into_iter().filter(|key| key.starts_with(prefix)).max()
    }

    fn parts(&self, path: &str, bytes: &[u8]) -> Vec<Part> {
        let key = |number: usize| names::part(path, (number * PART_BYTES) as u64, self.epoch());
        let chunks = bytes.chunks(PART_BYTES).enumerate();
        chunks.map(|(number, chunk)| (key(number), Bytes::copy_from_slice(chunk))).collect()
    }

    fn keep(&self, kept_in: &str, keys: &[String]) -> io::Result<()> {
        let bucket = &self.shared.bucket;
        let mut copies = Vec::new();
        for (key, read) in keys.iter().zip(bucket.get_all(keys.to_vec())?) {
            let bytes = match read.map_or_else(|| bucket.get(key), Ok) {
                Ok(bytes) => bytes,
                // A late removal by an owner that was replaced.
                Err(BucketError::NotFound { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            copies.push((format!("{kept_in}/{key}"), bytes.into()));
        }
        Ok(bucket.put_all(copies)?)
    }

    fn put(&self, key: &str, bytes: Bytes) -> io::Result<()> {
        Ok(self.shared.bucket.put(key, bytes.into())?)
    }

    fn write(&self, plan: Plan) -> io::Result<()> {
        for (path, parts) in plan.files {
            self.owner.check()?;
            let old = plan.old.get(&path).cloned().unwrap_or_default();
            if !rules::REPAIRER_REMOVES_LAST.holds() {
                self.shared.bucket.delete_all(old.clone())?;
            }
            let mut parts = parts.into_iter();
            let mut first = parts.next();
            if !rules::REPAIRER_BEGINNING_LAST.holds()
                && let Some((key, bytes)) = first.take()
            {
                self.put(&key, bytes)?;
            }
            for (key, bytes) in parts {
                self.put(&key, bytes)?;
            }
            if let Some((key, bytes)) = first {
                self.put(&key, bytes)?;
            }
            self.owner.check()?;
            self.shared.bucket.delete_all(old)?;
        }
        for ((key, bytes), damaged) in plan.manifests {
            self.put(&key, bytes)?;
            self.owner.check()?;
            self.shared.bucket.delete_all(damaged.into_iter().collect())?;
        }
        match plan.catalog {
            Some(body) => self.versions.publish(body),
            None => self.owner.check(),
        }
    }

    fn fill_fences(&self) -> io::Result<()> {
        let mut entropy = SystemEntropy::default();
        for number in &self.survey.missing_fences {
            let (one, two) = (entropy.next(), entropy.next());
            let body =
                format!("{one:016x}{two:016x} nuthatch doctor, in place of one that was lost\n");
            match self.shared.bucket.create(&names::fence(*number), &Bytes::from(body)) {
                Ok(()) | Err(BucketError::Exists { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Plan {
    fn text(&self, epoch: u32) -> Bytes {
        let mut text = format!(
            "# What `nuthatch doctor --apply` changed, as epoch {epoch}. To undo it, with no \
             server running and\n# before one has been started again: remove the objects marked \
             `written`, then copy those marked `kept`\n# from {}/KEY back to KEY.\n",
            self.kept_in
        );
        for key in &self.written {
            let _ = writeln!(text, "written\t{key}");
        }
        for key in &self.keep {
            let _ = writeln!(text, "kept\t{key}");
        }
        Bytes::from(text)
    }
}
