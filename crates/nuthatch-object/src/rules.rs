//! The rules of durability that this crate keeps, by name. Each is asked where it is kept, and
//! `tests/mutations.rs` turns them off one by one; see [`nuthatch_log::rules`].

use nuthatch_log::rules::Rule;

/// A new owner makes its fence before it lists what is stored.
pub const FENCE_BEFORE_LISTING: Rule = Rule("object.fence-before-listing");
/// A log that cannot be read is refused before the fence is created.
pub const ASKED_BEFORE_FENCE: Rule = Rule("object.asked-before-fence");
/// After storing and before acknowledging, an owner looks for a later owner's fence.
pub const LOOK_BEFORE_ACK: Rule = Rule("object.look-before-ack");
/// In a directory an owner looks for its own fence, too.
pub const OWN_FENCE: Rule = Rule("object.own-fence");
/// A fence is made only where there is none.
pub const FENCE_CREATED: Rule = Rule("object.fence-created");
/// The epoch is above that of the newest catalog, whatever fences are left.
pub const EPOCH_ABOVE_CATALOG: Rule = Rule("object.epoch-above-catalog");
/// After a creation that was not answered, or refused, what is there is read and compared.
pub const CREATION_COMPARED: Rule = Rule("object.creation-compared");
/// A version of the catalog is made only where there is none.
pub const CATALOG_CREATED: Rule = Rule("object.catalog-created");
/// A new owner writes a version of the catalog before it reads anything else.
pub const CATALOG_CLAIMED: Rule = Rule("object.catalog-claimed");
/// After a version of the catalog was made, its owner looks for a later one.
pub const LOOK_AFTER_CATALOG: Rule = Rule("object.look-after-catalog");
/// A version of the catalog that this owner has made without an answer is no rival's.
pub const UNANSWERED_SETTLED: Rule = Rule("object.unanswered-settled");
/// A frame counts as stored when all of its objects are there.
pub const ALL_PARTS_STORED: Rule = Rule("object.all-parts-stored");
/// A sync waits for what is on its way already.
pub const SYNC_WAITS: Rule = Rule("object.sync-waits");
/// Behind something that did not arrive for certain nothing is written.
pub const NOTHING_BEHIND_LOST: Rule = Rule("object.nothing-behind-lost");
/// Nothing is stored twice under one key with different content.
pub const NO_KEY_TWICE: Rule = Rule("object.no-key-twice");
/// A manifest is stored before the sync ends if listing does not tell the file's layout.
pub const MANIFEST_STORED: Rule = Rule("object.manifest-stored");
/// A manifest from before its file was begun anew does not count.
pub const MANIFEST_OF_THIS_FILE: Rule = Rule("object.manifest-of-this-file");
/// A file whose manifest names a beginning that is gone is not there.
pub const MANIFEST_BEGINS: Rule = Rule("object.manifest-begins");
/// A file without a manifest consists of the objects of one epoch.
pub const ONE_EPOCH: Rule = Rule("object.one-epoch");
/// A catalog's checksum is checked.
pub const CATALOG_SUM: Rule = Rule("object.catalog-sum");
/// A manifest's checksum is checked.
pub const MANIFEST_SUM: Rule = Rule("object.manifest-sum");
/// The checksum of a block in the disk cache is checked.
pub const BLOCK_SUM: Rule = Rule("object.block-sum");
/// The name in a block of the disk cache is compared.
pub const BLOCK_NAME: Rule = Rule("object.block-name");
/// A file of a later version is refused.
pub const LATER_VERSION_REFUSED: Rule = Rule("object.later-version-refused");
/// What has the name of a fence or of a catalog and a number that cannot be read is refused.
pub const STRANGERS_REFUSED: Rule = Rule("object.strangers-refused");
/// The doctor keeps what it replaces before it replaces it.
pub const REPAIRER_KEEPS: Rule = Rule("object.repairer-keeps");
/// Of a file's new content the doctor writes the beginning last.
pub const REPAIRER_BEGINNING_LAST: Rule = Rule("object.repairer-beginning-last");
/// The doctor removes old objects after the new ones are there.
pub const REPAIRER_REMOVES_LAST: Rule = Rule("object.repairer-removes-last");
/// A move is noted before anything is uploaded.
pub const MOVE_NOTED: Rule = Rule("tier.move-noted");
/// A moved segment is read back from the bucket and compared with the local file, byte by byte.
pub const MOVE_COMPARED: Rule = Rule("tier.move-compared");
/// The local file is removed after the note says that it has moved.
pub const NOTED_BEFORE_REMOVAL: Rule = Rule("tier.noted-before-removal");
/// Before a segment counts as moved, and before one is removed from the bucket, a mover looks whether
/// another has taken the tier.
pub const MOVER_LOOKS: Rule = Rule("tier.mover-looks");
/// An upload that an earlier server began does not count.
pub const BEGUN_IS_UNDONE: Rule = Rule("tier.begun-is-undone");
/// After an attempt that failed, the next one has another epoch.
pub const ATTEMPT_OF_ITS_OWN: Rule = Rule("tier.attempt-of-its-own");
/// A segment that was removed while it moved does not come back.
pub const REMOVED_MEANWHILE: Rule = Rule("tier.removed-meanwhile");
/// That a moved segment is not needed is noted before it is forgotten.
pub const REMOVAL_NOTED: Rule = Rule("tier.removal-noted");
/// A local file with other bytes behind the segment's end is not removed.
pub const BYTES_BEHIND_KEPT: Rule = Rule("tier.bytes-behind-kept");
/// If both sides have a segment and differ, the local one counts.
pub const LOCAL_COUNTS: Rule = Rule("tier.local-counts");
/// A tier is one log's.
pub const ONE_LOG: Rule = Rule("tier.one-log");
/// A tier that holds nothing of what was moved there is another one.
pub const SAME_PLACE: Rule = Rule("tier.same-place");
/// The note's checksum is checked.
pub const NOTE_SUM: Rule = Rule("tier.note-sum");
/// A note that cannot be read is kept before another takes its place.
pub const NOTE_KEPT: Rule = Rule("tier.note-kept");
/// The checksum of a segment's ends is checked.
pub const ENDS_SUM: Rule = Rule("tier.ends-sum");
/// A segment's ends are compared with its name and length.
pub const ENDS_OF_THIS: Rule = Rule("tier.ends-of-this");
/// A read that fails is repeated before anything is concluded.
pub const READ_REPEATED: Rule = Rule("tier.read-repeated");

/// Every rule of this crate, for the job that turns them off one by one.
pub const ALL: &[Rule] = &[
    FENCE_BEFORE_LISTING,
    ASKED_BEFORE_FENCE,
    LOOK_BEFORE_ACK,
    OWN_FENCE,
    FENCE_CREATED,
    EPOCH_ABOVE_CATALOG,
    CREATION_COMPARED,
    CATALOG_CREATED,
    CATALOG_CLAIMED,
    LOOK_AFTER_CATALOG,
    UNANSWERED_SETTLED,
    ALL_PARTS_STORED,
    SYNC_WAITS,
    NOTHING_BEHIND_LOST,
    NO_KEY_TWICE,
    MANIFEST_STORED,
    MANIFEST_OF_THIS_FILE,
    MANIFEST_BEGINS,
    ONE_EPOCH,
    CATALOG_SUM,
    MANIFEST_SUM,
    BLOCK_SUM,
    BLOCK_NAME,
    LATER_VERSION_REFUSED,
    STRANGERS_REFUSED,
    REPAIRER_KEEPS,
    REPAIRER_BEGINNING_LAST,
    REPAIRER_REMOVES_LAST,
    MOVE_NOTED,
    MOVE_COMPARED,
    NOTED_BEFORE_REMOVAL,
    MOVER_LOOKS,
    BEGUN_IS_UNDONE,
    ATTEMPT_OF_ITS_OWN,
    REMOVED_MEANWHILE,
    REMOVAL_NOTED,
    BYTES_BEHIND_KEPT,
    LOCAL_COUNTS,
    ONE_LOG,
    SAME_PLACE,
    NOTE_SUM,
    NOTE_KEPT,
    ENDS_SUM,
    ENDS_OF_THIS,
    READ_REPEATED,
];
