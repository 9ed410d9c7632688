//! What the standard output is: a terminal of some width, with colours or without, or none.

use std::io::{IsTerminal, stdout};

/// How text is laid out and marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Columns there are; `None` for as many as it takes.
    pub width: Option<u16>,
    /// Whether titles are marked with escape sequences.
    pub is_marked: bool,
}

impl Look {
    /// For files, pipes and tests.
    pub const PLAIN: Self = Self { width: None, is_marked: false };

    /// That of the standard output.
    pub fn of_stdout() -> Self {
        if !stdout().is_terminal() {
            return Self::PLAIN;
        }
        // A terminal that says it has no columns does not know.
        let size = crossterm::terminal::size().ok().filter(|(columns, _)| *columns > 0);
        let says = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let is_dumb = says("TERM").is_none_or(|term| term == "dumb");
        let is_marked = says("NO_COLOR").is_none() && !is_dumb;
        Self { width: size.map(|(columns, _)| columns), is_marked }
    }

    /// A title.
    pub fn title(self, text: &str) -> String {
        self.marked("1", text)
    }

    /// What only divides.
    pub fn faint(self, text: &str) -> String {
        self.marked("2", text)
    }

    fn marked(self, code: &str, text: &str) -> String {
        if self.is_marked { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Text without characters that would move the cursor or worse: names of clients and descriptions
/// are whatever strangers wrote.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_marked_has_escapes() {
        let marked = Look { width: None, is_marked: true };
        assert_eq!(marked.title("A"), "\x1b[1mA\x1b[0m");
        assert_eq!(Look::PLAIN.title("A") + &Look::PLAIN.faint("B"), "AB");
    }
}
