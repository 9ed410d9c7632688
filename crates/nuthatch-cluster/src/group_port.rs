//! The way to a node's member of the built-in catalog, as connections know it.

use nuthatch_catalog_group::{Envelope, MemberId};
use std::io;
use std::net::IpAddr;

/// Takes what arrives for the member.
pub trait GroupPort: Send + Sync {
    /// What a node is told that looks for its cluster.
    fn answer(&self) -> Vec<u8>;
    /// Answers a node at an address that asks to be let join; that may take seconds.
    fn let_join(&self, asked: &[u8], from: IpAddr) -> Vec<u8>;
    /// Takes what another member says.
    fn deliver(&self, envelope: Envelope);
    /// A member has ended its connection to this one: whether it is there is looked at.
    fn hung_up(&self, member: MemberId);
}

/// The member that a hello of this lane names where other lanes name the keeper's disk.
///
/// # Errors
/// It names none.
pub fn member_of(incarnation: u128) -> io::Result<MemberId> {
    let member = u64::try_from(incarnation).ok().filter(|member| *member != 0);
    member.map(MemberId).ok_or_else(|| io::ErrorKind::InvalidData.into())
}
