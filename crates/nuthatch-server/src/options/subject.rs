//! Checks the subjects of permissions.

/// Checks a subject or, if `queues`, `"subject queue"`. The error is the bad part and what it
/// should have been.
pub(super) fn check_permission(text: &str, queues: bool) -> Result<(), (&str, &'static str)> {
    if is_valid(text) {
        return Ok(());
    }
    let mut parts = text.split_ascii_whitespace();
    match (parts.next(), parts.next(), parts.next()) {
        (Some(subject), Some(queue), None) if queues => {
            if !is_valid(subject) {
                Err((subject, "subject"))
            } else if !is_valid(queue) {
                Err((queue, "queue name"))
            } else {
                Ok(())
            }
        }
        _ => Err((text, "subject")),
    }
}

/// A subject with or without wildcards: no empty token, no blanks, `>` only as the last token.
fn is_valid(subject: &str) -> bool {
    let mut after_end = false;
    subject.split('.').all(|token| {
        let fine = !after_end && !token.is_empty() && !token.contains(char::is_whitespace);
        after_end = token == ">";
        fine
    })
}
