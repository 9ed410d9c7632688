//! Checks the subjects of permissions.

use nuthatch_protocol::subject::is_valid_subject;

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

fn is_valid(subject: &str) -> bool {
    is_valid_subject(subject.as_bytes())
}
