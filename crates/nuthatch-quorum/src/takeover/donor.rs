//! Which of the keepers that have answered has what the log of the epoch begins with.

use crate::message::Sealed;
use crate::rules::Rule;
use crate::types::{Epoch, Member};

/// Chooses the donor among answers that count: the largest position.
#[must_use]
pub fn donor<'a>(
    answers: impl Iterator<Item = (Member, &'a Sealed)>,
) -> Option<(Member, &'a Sealed)> {
    let key = |sealed: &Sealed| {
        let epoch =
            if Rule::EpochBeforeLength.holds() { sealed.position.accepted } else { Epoch(0) };
        (epoch, sealed.position.lsn)
    };
    let all: Vec<_> = answers.collect();
    if Rule::LargestDonor.holds() {
        all.into_iter().max_by_key(|(member, sealed)| (key(sealed), *member))
    } else {
        all.into_iter().min_by_key(|(member, sealed)| (key(sealed), *member))
    }
}
