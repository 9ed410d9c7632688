//! The brokers of this process by number. A number is never given twice.

use crate::error::Failure;
use nuthatch_embed::{Broker, Config};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of a broker; 0 is none.
pub type Handle = u64;

/// The process that opened the first broker; 0: none was opened. In a fork of it nothing of a broker runs, and the
/// table may be locked for good, so nothing is touched there.
static PROCESS: AtomicU32 = AtomicU32::new(0);

static BROKERS: Mutex<Brokers> = Mutex::new(Brokers { last: 0, open: BTreeMap::new() });

struct Brokers {
    last: Handle,
    open: BTreeMap<Handle, Arc<Broker>>,
}

/// Claims brokers for this process.
pub(crate) fn check_process() -> Result<(), Failure> {
    let this = std::process::id();
    match PROCESS.compare_exchange(0, this, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(()),
        Err(found) if found == this => Ok(()),
        Err(_) => Err(Failure::forked()),
    }
}

/// Opens a broker. Others open and close meanwhile.
pub(crate) fn open(config: Config) -> Result<Handle, Failure> {
    let broker = Arc::new(Broker::open(config)?);
    let mut brokers = BROKERS.lock();
    brokers.last += 1;
    let handle = brokers.last;
    brokers.open.insert(handle, broker);
    Ok(handle)
}

/// The broker of a number. A call that has it already goes on while another one closes it.
pub(crate) fn get(handle: Handle) -> Result<Arc<Broker>, Failure> {
    with(handle, |brokers| brokers.open.get(&handle).cloned())
}

/// Takes the broker of a number out: only the first who closes it gets it.
pub(crate) fn take(handle: Handle) -> Result<Arc<Broker>, Failure> {
    with(handle, |brokers| brokers.open.remove(&handle))
}

fn with(
    handle: Handle,
    find: impl FnOnce(&mut Brokers) -> Option<Arc<Broker>>,
) -> Result<Arc<Broker>, Failure> {
    match PROCESS.load(Ordering::Acquire) {
        0 => return Err(Failure::handle(handle)),
        found if found != std::process::id() => return Err(Failure::forked()),
        _ => {}
    }
    let mut brokers = BROKERS.lock();
    let was_given = handle != 0 && handle <= brokers.last;
    find(&mut brokers)
        .ok_or_else(|| if was_given { Failure::closed() } else { Failure::handle(handle) })
}
