//! "Did you mean …?": the name that a mistyped one was probably meant to be.

/// Longest name that is compared; longer ones are not typing mistakes.
const MAX_NAME_BYTES: usize = 64;
/// Most names that are compared.
pub const MAX_NAMES: usize = 10_000;

/// The candidate with the fewest edits to `name`, if they are few enough for a typing mistake.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > MAX_NAME_BYTES {
        return None;
    }
    let lower = name.to_ascii_lowercase();
    let tolerated = (name.chars().count() / 3).clamp(1, 3);
    candidates
        .take(MAX_NAMES)
        .filter(|candidate| candidate.len() <= MAX_NAME_BYTES && *candidate != name)
        .map(|candidate| (strsim::osa_distance(&lower, &candidate.to_ascii_lowercase()), candidate))
        .min()
        .filter(|(edits, candidate)| *edits <= tolerated && *edits < candidate.chars().count())
        .map(|(_, candidate)| candidate)
}

/// The question behind an error; empty when nothing is similar.
pub fn question(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean {name}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_mistakes_are_found_and_nonsense_is_not() {
        let known = || ["ORDERS", "RETURNS", "KV_CONFIG", "A"].into_iter();
        for (name, meant) in [
            ("ORDER", Some("ORDERS")),
            ("orders", Some("ORDERS")),
            ("ODRERS", Some("ORDERS")),
            ("RETRUN", Some("RETURNS")),
            ("BILLING", None),
            ("B", None),
            ("ORDERS-OF-LAST-YEAR", None),
        ] {
            assert_eq!(nearest(name, known()), meant, "{name}");
        }
        assert_eq!(nearest(&"x".repeat(1000), known()), None);
        assert_eq!(question(Some("A")) + &question(None), "; did you mean A?");
    }
}
