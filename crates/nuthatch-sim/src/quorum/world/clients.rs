//! Clients that publish and read.

use super::{Happening, MILLI, World};
use nuthatch_quorum::owner::Publish;
use nuthatch_quorum::types::{RequestId, mix};

impl World {
    pub(super) fn clients_act(&mut self) {
        let pause = self.schedule.rng.between(5 * MILLI, 60 * MILLI);
        self.schedule.after(pause, Happening::ClientsAct);
        if self.silent {
            return;
        }
        let at = if self.schedule.rng.chance(900) {
            self.owner_or_any()
        } else {
            self.schedule.rng.below(self.hosts.len() as u64) as usize
        };
        self.requests += 1;
        let request = RequestId(self.requests);
        if self.schedule.rng.chance(600) {
            let payload = mix(1, self.requests);
            let rng = &mut self.schedule.rng;
            let len = if rng.chance(900) { rng.below(4_096) } else { rng.below(8 << 20) };
            let publish = Publish { request, payload, len: len as u32 };
            self.schedule.after(100, Happening::Publish { at, publish });
        } else {
            self.reads.insert(request, self.checker.last());
            self.schedule.after(100, Happening::Read { at, request });
        }
    }
}
