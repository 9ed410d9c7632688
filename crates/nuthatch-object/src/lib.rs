//! Files of a log in object storage: S3, GCS, Azure, or a directory that several machines share.
//!
//! [`ObjectDisk`] implements [`nuthatch_log::Disk`], so that sequencer, recovery, compaction and
//! checkpoints of a log run unchanged with a bucket as their medium. What differs is below that
//! seam: a file is a run of immutable objects ([`extents`]), a sync puts what was written as new
//! objects and then asks whether this server still owns the log ([`owner`]), and several syncs of a
//! growing file may be under way at a time ([`in_flight_upload`]); the catalog is a sequence of
//! numbered objects made by conditional creation ([`catalog`]).
//!
//! A log is opened in two steps: [`ObjectDisk::prepare`] asks everything that needs no ownership, and
//! [`PreparedDisk::take`] makes the fence. A server prepares all of its logs before it takes any.
//!
//! [`TieredDisk`] is a local disk whose sealed segments move to a bucket ([`tier`]).
//!
//! Keys of a log in a bucket, below its prefix; `gen` is the epoch of the owner that wrote the
//! object:
//!
//! ```text
//! fence/{gen}                     made once by who becomes owner; never removed
//! catalog/{number}                versions of the catalog; the newest counts
//! data/{file}/{offset}.{gen}      bytes of a file from an offset on
//! data/{file}/manifest.{gen}      which bytes a file consists of, once a later owner cut it
//! left/{gen}                      that owner closed the log and went; only people rely on it
//! doctor/{when}/{key}             objects that `nuthatch doctor --apply` replaced, and its manifest
//! ```

mod bucket;
mod cache;
mod catalog;
mod counters;
mod disk;
mod extents;
mod file;
mod listing;
mod manifest;
mod mounts;
mod names;
mod numbered;
mod open;
mod owner;
mod prepare;
mod rehearsal;
mod repair;
pub mod rules;
mod selftest;
mod shared;
mod survey;
mod tier;
mod view;

pub use bucket::{Bucket, BucketError, BucketOptions, Executor};
pub use cache::CacheSnapshot;
pub use cache::disk::DiskCacheOptions;
pub use counters::{Counters, CountersSnapshot, RequestKind};
pub use disk::{ObjectDisk, ObjectDiskOptions};
pub use open::{OpenUrlError, check_url, open_url, open_url_with};
pub use owner::{Fenced, OWNER_CHECK_MS};
pub use prepare::PreparedDisk;
pub use repair::{BucketRepairer, LastOwner};
pub use selftest::SelfTestError;
pub use survey::Survey;
pub use tier::{
    LocalDisk, MovedAway, Step, TierOptions, TierStatus, TierView, TieredDisk, moved_away,
};
pub use view::BucketView;
