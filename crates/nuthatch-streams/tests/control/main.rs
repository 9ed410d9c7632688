//! The machines of the control plane ([`nuthatch_streams::control`]) over real engines on disks that
//! forget what was not synced: power is cut at any step, operations are refused, answers are lost, and
//! machines are thrown away and made anew. Each suite tells what must hold afterwards; with a rule of
//! its machine turned off it must fail (`tests/mutations.rs`).

mod copies;
mod imports;
mod restores;
mod rig;
#[path = "../../../../tests/seeds.rs"]
mod seeds;
