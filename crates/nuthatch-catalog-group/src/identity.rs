//! The small files of a member: which one it is and how often it began, what it was founded with, and the greatest
//! boot counter that it has seen of each other member.

use crate::coding::{LATER, Malformed, Reader, Writer, crc, malformed};
use crate::founding::Founding;
use crate::roster::Roster;
use crate::types::{Boot, MemberId};
use nuthatch_log::env::{Disk, again, read_exact_at, replace_file};
use nuthatch_quorum::types::NodeId;
use std::collections::BTreeMap;
use std::io;

/// The directory of the member in its node's.
pub const DIR: &str = "catalog";
/// Which member this is.
const IDENTITY: &str = "catalog/identity";
/// What it was founded with.
const FOUNDING: &str = "catalog/founding";
/// Boot counters of others.
const PEERS: &str = "catalog/peers";
/// Which number the node has, and who the nodes were when that changed last, as far as it knew.
const JOINED: &str = "catalog/joined";
/// That the node was removed.
const REMOVED: &str = "catalog/removed";

/// Bytes of a small file at most.
const SMALL_MAX: usize = 1 << 16;

/// Members whose boot counters are kept at most: those of five nodes, and many disks that are gone.
pub const PEERS_MAX: usize = 256;

const MAGIC: u32 = u32::from_le_bytes(*b"NCS1");

/// Which member a disk is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Its identity.
    pub member: MemberId,
    /// How it began last.
    pub boot: Boot,
    /// That a majority holds this boot counter: the next start is another beginning. Until then a start goes on with
    /// the last one, or an old image of the disk that starts often enough would count as far as the true one.
    pub held: bool,
}

/// Greatest boot counters that were seen.
pub type Peers = BTreeMap<MemberId, Boot>;

fn store(disk: &dyn Disk, path: &str, content: Writer) -> io::Result<()> {
    let mut to = Writer::default();
    to.u32(MAGIC);
    to.u32(crc(&content.0));
    to.bytes(&content.0);
    replace_file(disk, path, &to.0)
}

/// Reads a small file; none where there is none.
fn load<T>(
    disk: &dyn Disk,
    path: &str,
    decode: impl FnOnce(&mut Reader<'_>) -> Result<T, Malformed>,
) -> io::Result<Option<T>> {
    let read = || {
        let file = disk.open(path)?;
        let len = usize::try_from(file.len()?).unwrap_or(usize::MAX).min(SMALL_MAX);
        read_exact_at(&*file, 0, len)
    };
    let bytes = match again(read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes?,
    };
    let decode = |bytes: &[u8]| {
        let mut from = Reader(bytes);
        let (magic, sum, content) = (from.u32()?, from.u32()?, from.bytes()?);
        match magic == MAGIC && sum == crc(content) {
            true => decode(&mut Reader(content)),
            false => Err(malformed("its checksum does not fit")),
        }
    };
    decode(&bytes).map(Some).map_err(|why| match why.is_later() {
        true => later(disk, path),
        false => damaged(disk, path, why.what),
    })
}

/// Says that a file is of a later program: moving it away would throw away what is good.
fn later(disk: &dyn Disk, path: &str) -> io::Error {
    let what =
        format!("{}/{path}: {LATER}. Nothing is damaged, and nothing was changed", disk.label());
    io::Error::new(io::ErrorKind::Unsupported, what)
}

/// Says what is damaged, and what to do.
pub(crate) fn damaged(disk: &dyn Disk, path: &str, why: &str) -> io::Error {
    let label = disk.label();
    let what = format!(
        "{label}/{path}: {why}; nothing was changed. If the other nodes of the cluster run, move {label}/{DIR} away: \
         this node then joins the catalog with a new disk"
    );
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Makes the directories that files are written in.
///
/// # Errors
/// The disk's.
pub fn prepare(disk: &dyn Disk) -> io::Result<()> {
    disk.create_dir("tmp")?;
    disk.create_dir(DIR)?;
    disk.sync_dir("")
}

/// Reads which member this disk is; one that is none becomes `fresh`.
///
/// # Errors
/// The disk's; `InvalidData` if it is damaged.
pub fn identify(disk: &dyn Disk, fresh: MemberId) -> io::Result<Identity> {
    let read = |from: &mut Reader<'_>| {
        let member = MemberId(from.u64()?);
        let boot = Boot { count: from.u32()?, nonce: from.u64()? };
        Ok(Identity { member, boot, held: from.bool()? })
    };
    if let Some(identity) = load(disk, IDENTITY, read)? {
        return Ok(identity);
    }
    let identity = Identity { member: fresh, boot: Boot::default(), held: true };
    store_identity(disk, identity)?;
    Ok(identity)
}

/// Writes which member this is and how it began, durably.
///
/// # Errors
/// The disk's.
pub fn store_identity(disk: &dyn Disk, identity: Identity) -> io::Result<()> {
    let mut to = Writer::default();
    to.u64(identity.member.0);
    to.u32(identity.boot.count);
    to.u64(identity.boot.nonce);
    to.bool(identity.held);
    store(disk, IDENTITY, to)
}

/// Reads what this disk was founded with.
///
/// # Errors
/// The disk's; `InvalidData` if it is damaged.
pub fn load_founding(disk: &dyn Disk) -> io::Result<Option<Founding>> {
    load(disk, FOUNDING, Founding::read)
}

/// Writes what this disk is founded with, durably; a disk has at most one founding.
///
/// # Errors
/// The disk's; `AlreadyExists` if it has another one.
pub fn take_founding(disk: &dyn Disk, founding: &Founding) -> io::Result<()> {
    match load_founding(disk)? {
        Some(held) if held == *founding => return Ok(()),
        Some(_) => return Err(io::ErrorKind::AlreadyExists.into()),
        None => {}
    }
    let mut to = Writer::default();
    founding.put(&mut to);
    store(disk, FOUNDING, to)
}

/// Reads which number a node has, and who the nodes were, as far as it knew; none where nobody has joined.
///
/// # Errors
/// The disk's; `InvalidData` if it is damaged.
pub fn load_joined(disk: &dyn Disk) -> io::Result<Option<(NodeId, Roster)>> {
    load(disk, JOINED, |from| Ok((NodeId(from.u8()?), Roster::read(from)?)))
}

/// Writes that, durably.
///
/// # Errors
/// The disk's.
pub fn store_joined(disk: &dyn Disk, node: NodeId, roster: &Roster) -> io::Result<()> {
    let mut to = Writer::default();
    to.u8(node.0);
    roster.put(&mut to);
    store(disk, JOINED, to)
}

/// Whether this disk's node was removed, and who took its place.
///
/// # Errors
/// The disk's; `InvalidData` if it is damaged.
pub fn load_removed(disk: &dyn Disk) -> io::Result<Option<Option<String>>> {
    load(disk, REMOVED, |from| from.option(Reader::string))
}

/// Notes that this disk's node was removed, durably. Nothing else of it is touched.
///
/// # Errors
/// The disk's.
pub fn note_removed(disk: &dyn Disk, by: Option<&str>) -> io::Result<()> {
    let mut to = Writer::default();
    to.option(by, |to, by| to.bytes(by.as_bytes()));
    store(disk, REMOVED, to)
}

/// Reads the boot counters of others.
///
/// # Errors
/// The disk's; `InvalidData` if they are damaged.
pub fn load_peers(disk: &dyn Disk) -> io::Result<Peers> {
    let peer = |from: &mut Reader<'_>| {
        let member = MemberId(from.u64()?);
        Ok((member, Boot { count: from.u32()?, nonce: from.u64()? }))
    };
    let peers = load(disk, PEERS, |from| from.all(peer))?;
    Ok(peers.unwrap_or_default().into_iter().collect())
}

/// Writes the boot counters of others, durably.
///
/// # Errors
/// The disk's.
pub fn store_peers(disk: &dyn Disk, peers: &Peers) -> io::Result<()> {
    let mut to = Writer::default();
    let peers: Vec<_> = peers.iter().collect();
    to.all(&peers, |to, (member, boot)| {
        to.u64(member.0);
        to.u32(boot.count);
        to.u64(boot.nonce);
    });
    store(disk, PEERS, to)
}
