//! Identities of accounts.

use nuthatch_streams::AccountId;

/// Identity of the system account.
pub const SYSTEM_ACCOUNT_ID: AccountId = AccountId(1);
/// Ids of configured accounts have this bit; streams carry them, so they must not depend on the
/// order of the configuration.
const NAMED_ACCOUNT_BIT: u32 = 0x8000_0000;

/// Identity of a configured account. FNV-1a of the name: the same in every run, whatever the order of the configuration.
pub(crate) fn named_account_id(name: &str) -> AccountId {
    let hash = name
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    AccountId(hash | NAMED_ACCOUNT_BIT)
}
