//! The classic text form (0.0.4), made of the OpenMetrics form.
//!
//! They differ in little: in the classic one help and type of a counter stand at the name that its
//! samples have, `x_total`; quotes in help are not escaped; and there is no end mark.

use std::fmt::Write as _;

/// The page in the classic form.
pub(super) fn of(page: &str) -> String {
    let mut text = String::with_capacity(page.len() + page.len() / 16);
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        let _ = match line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            _ if line == "# EOF" => continue,
            Some((name, help)) => {
                let suffix = match lines.peek() {
                    Some(next) if is_counter(next, name) => "_total",
                    _ => "",
                };
                writeln!(text, "# HELP {name}{suffix} {}", help.replace("\\\"", "\""))
            }
            None => {
                match line.strip_prefix("# TYPE ").and_then(|rest| rest.strip_suffix(" counter")) {
                    Some(name) => writeln!(text, "# TYPE {name}_total counter"),
                    None => writeln!(text, "{line}"),
                }
            }
        };
    }
    text
}

fn is_counter(line: &str, name: &str) -> bool {
    let rest = line.strip_prefix("# TYPE ").and_then(|rest| rest.strip_prefix(name));
    rest == Some(" counter")
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn counters_have_the_names_of_their_samples() {
        let page = "# HELP a Of \\\"a\\\".\n# TYPE a counter\na_total{x=\"# HELP\"} 1\n\
                    # HELP b Gauge.\n# TYPE b gauge\nb 2\n# EOF\n";
        let expected = "# HELP a_total Of \"a\".\n# TYPE a_total counter\na_total{x=\"# HELP\"} 1\n\
                        # HELP b Gauge.\n# TYPE b gauge\nb 2\n";
        assert_eq!(of(page), expected);
    }
}
