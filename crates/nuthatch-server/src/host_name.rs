//! What the operating system calls this machine.

/// Its name, if it is one that a server can have.
pub(crate) fn host_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    as_name(&text)
}

fn as_name(text: &str) -> Option<String> {
    let name = text.trim();
    let fits = !name.is_empty() && name != "(none)" && name.chars().all(|c| c.is_ascii_graphic());
    fits.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_a_name() {
        let cases = [("birds\n", Some("birds")), ("(none)\n", None), ("\n", None), ("a b", None)];
        for (text, expected) in cases {
            assert_eq!(as_name(text).as_deref(), expected, "{text:?}");
        }
    }
}
