//! Finds the known word that a mistyped one was probably meant to be.

/// Longest word that is compared; longer ones are not typing mistakes.
const MAX_WORD_BYTES: usize = 64;

/// The candidate with the fewest edits to `word`, if they are few enough for a typing mistake.
pub(super) fn nearest(
    word: &str,
    candidates: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    if word.len() > MAX_WORD_BYTES {
        return None;
    }
    let word = word.to_ascii_lowercase();
    let tolerated = (word.len() / 3).clamp(1, 4);
    candidates
        .map(|c| (edits(word.as_bytes(), c.to_ascii_lowercase().as_bytes()), c))
        .min_by_key(|&(edits, _)| edits)
        .filter(|&(edits, _)| edits <= tolerated)
        .map(|(_, c)| c)
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
fn edits(a: &[u8], b: &[u8]) -> usize {
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_mistakes_are_found_and_nonsense_is_not() {
        let known = || ["port", "max_payload", "max_pending", "authorization", "tls"].into_iter();
        assert_eq!(nearest("prot", known()), Some("port"));
        assert_eq!(nearest("max_paylaod", known()), Some("max_payload"));
        assert_eq!(nearest("Authorisation", known()), Some("authorization"));
        assert_eq!(nearest("tsl", known()), Some("tls"));
        assert_eq!(nearest("database", known()), None);
        assert_eq!(nearest(&"x".repeat(1000), known()), None);
        assert_eq!(nearest("", known()), None);
    }
}
