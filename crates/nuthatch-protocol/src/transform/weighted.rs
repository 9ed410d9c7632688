//! Account mappings: one source, several destinations with weights in percent.

use thiserror::Error;

use super::{Transform, TransformError};

/// All of it, in percent.
const WHOLE: u8 = 100;

/// One destination of a [`Mapping`] as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// The destination subject, with functions.
    pub subject: String,
    /// Share of the messages in percent, at most 100.
    pub weight: u8,
    /// Only in this cluster; empty for everywhere.
    pub cluster: String,
}

/// Why a mapping cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MappingError {
    /// A destination given twice.
    #[error("duplicate entry for {subject:?}")]
    Duplicate {
        /// The destination.
        subject: String,
    },
    /// A weight above 100.
    #[error("individual weights need to be <= 100")]
    WeightTooLarge,
    /// Weights of one cluster that sum up to more than 100.
    #[error("total weight needs to be <= 100")]
    TotalTooLarge,
    /// A source or destination that is no transform.
    #[error(transparent)]
    Transform(#[from] TransformError),
}

/// A destination with the upper bound (exclusive) of the percentages that choose it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Choice {
    below: u8,
    transform: Transform,
}

/// A compiled mapping. What the weights leave over stays on the original subject, unless the
/// source is itself listed; then it is dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    source: Box<[u8]>,
    choices: Vec<Choice>,
}

impl Mapping {
    /// Compiles the mapping as it is in force in `cluster`: the destinations of that cluster if it
    /// has any, else those without a cluster.
    ///
    /// # Errors
    /// [`MappingError`] for any destination, also one of another cluster.
    pub fn new(
        source: &str,
        destinations: &[Destination],
        cluster: &str,
    ) -> Result<Self, MappingError> {
        check(source, destinations)?;
        let scoped = !cluster.is_empty() && destinations.iter().any(|d| d.cluster == cluster);
        let wanted = if scoped { cluster } else { "" };
        let mut chosen: Vec<_> = destinations.iter().filter(|d| d.cluster == wanted).collect();
        chosen.sort_by_key(|destination| destination.weight);
        let mut choices = Vec::with_capacity(chosen.len() + 1);
        let mut below = 0;
        for destination in chosen {
            below += destination.weight;
            let transform = Transform::new(source, &destination.subject)?;
            choices.push(Choice { below, transform });
        }
        if below < WHOLE && !destinations.iter().any(|d| d.subject == source) {
            choices.push(Choice { below: WHOLE, transform: Transform::identity(source)? });
        }
        Ok(Self { source: source.as_bytes().into(), choices })
    }

    /// The pattern of the subjects it maps.
    #[must_use]
    pub fn source(&self) -> &[u8] {
        &self.source
    }

    /// The transform of every message, if there is but one and nothing is dropped.
    #[must_use]
    pub fn only(&self) -> Option<&Transform> {
        match &self.choices[..] {
            [only] if only.below == WHOLE => Some(&only.transform),
            _ => None,
        }
    }

    /// Chooses the transform for one message; `None` means that the message is dropped.
    /// `entropy` is a fresh random number.
    #[must_use]
    pub fn choose(&self, entropy: u32) -> Option<&Transform> {
        let percent = (entropy % u32::from(WHOLE)) as u8;
        self.choices.iter().find(|choice| percent < choice.below).map(|choice| &choice.transform)
    }
}

fn check(source: &str, destinations: &[Destination]) -> Result<(), MappingError> {
    for (number, destination) in destinations.iter().enumerate() {
        let earlier = &destinations[..number];
        if earlier.iter().any(|other| other.subject == destination.subject) {
            return Err(MappingError::Duplicate { subject: destination.subject.clone() });
        }
        if destination.weight > WHOLE {
            return Err(MappingError::WeightTooLarge);
        }
        let same = earlier.iter().filter(|other| other.cluster == destination.cluster);
        let total: u32 = same.map(|other| u32::from(other.weight)).sum();
        if total + u32::from(destination.weight) > u32::from(WHOLE) {
            return Err(MappingError::TotalTooLarge);
        }
        Transform::new(source, &destination.subject)?;
    }
    Ok(())
}
