//! Says what is the matter with a catalog, once, and when it has passed.

use crate::catalog_error::CatalogError;
use std::time::{Duration, Instant};

/// Another text is told at most so often: a catalog that is away fails in several ways in turn.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// What was told of a catalog that does not answer as it should.
#[derive(Default)]
pub(crate) struct CatalogTrouble {
    told: Option<(String, Instant)>,
}

impl CatalogTrouble {
    /// A call had no success.
    pub(crate) fn met(&mut self, error: &CatalogError, say: impl FnOnce(&str)) {
        self.met_text(error.to_string(), say);
    }

    /// The same in words.
    pub(crate) fn met_text(&mut self, text: String, say: impl FnOnce(&str)) {
        let now = Instant::now();
        let is_known = self
            .told
            .as_ref()
            .is_some_and(|(told, at)| *told == text || now.duration_since(*at) < TOLD_EVERY);
        if !is_known {
            say(&text);
            self.told = Some((text, now));
        }
    }

    /// A call had success.
    pub(crate) fn passed(&mut self, say: impl FnOnce(&str)) {
        if self.told.take().is_some() {
            say("the catalog answers again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_told_once_and_its_end_too() {
        let (mut trouble, mut said) = (CatalogTrouble::default(), Vec::new());
        trouble.passed(|text| said.push(text.to_owned()));
        let back = |key: &str| CatalogError::SetBack { key: key.to_owned() };
        for error in [back("a"), back("a"), back("b")] {
            trouble.met(&error, |text| said.push(text.to_owned()));
        }
        trouble.passed(|text| said.push(text.to_owned()));
        trouble.passed(|text| said.push(text.to_owned()));
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].contains("went back: a,") && said[1].contains("again"), "{said:?}");
    }
}
