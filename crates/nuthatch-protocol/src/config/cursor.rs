//! A place in a text that moves forward and knows its line and column.

use std::sync::Arc;

use super::value::Position;

/// Reading position in one text.
pub(super) struct Cursor<'a> {
    text: &'a str,
    file: Arc<str>,
    at: usize,
    line: u32,
    column: u32,
}

impl<'a> Cursor<'a> {
    pub fn new(file: Arc<str>, text: &'a str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self { text, file, at: 0, line: 1, column: 1 }
    }

    pub fn file(&self) -> &Arc<str> {
        &self.file
    }

    pub fn pos(&self) -> Position {
        Position { file: Arc::clone(&self.file), line: self.line, column: self.column }
    }

    /// The text that is still ahead.
    pub fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub fn peek(&self) -> Option<char> {
        // Nearly all of a configuration is ASCII; decoding is for the rest.
        match self.text.as_bytes().get(self.at) {
            Some(&b) if b.is_ascii() => Some(char::from(b)),
            Some(_) => self.rest().chars().next(),
            None => None,
        }
    }

    pub fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        if c == '\n' {
            self.line += 1;
            self.column = 1;
        } else {
            self.column += 1;
        }
        Some(c)
    }

    /// Moves over `wanted` if it is next.
    pub fn eat(&mut self, wanted: char) -> bool {
        let hit = self.peek() == Some(wanted);
        if hit {
            self.bump();
        }
        hit
    }

    /// Moves over characters while `go_on` holds and returns them.
    pub fn take_while(&mut self, mut go_on: impl FnMut(char) -> bool) -> &'a str {
        let start = self.at;
        while self.peek().is_some_and(&mut go_on) {
            self.bump();
        }
        &self.text[start..self.at]
    }

    /// Moves over spaces, tabs and, if `newlines`, line ends; tells whether a line ended.
    pub fn skip_space(&mut self, newlines: bool) -> bool {
        let space =
            |c: char| c == ' ' || c == '\t' || (newlines && (c == '\n' || c.is_whitespace()));
        self.take_while(space).contains(['\n', '\r'])
    }

    /// Moves over blank space and comments; tells whether a line ended.
    pub fn skip_space_and_comments(&mut self, newlines: bool) -> bool {
        let mut ended = false;
        loop {
            ended |= self.skip_space(newlines);
            if !self.at_comment() {
                return ended;
            }
            self.take_while(|c| c != '\n' && c != '\r');
        }
    }

    fn at_comment(&self) -> bool {
        self.rest().starts_with('#') || self.rest().starts_with("//")
    }

    /// The next token, for messages.
    pub fn found(&self) -> String {
        describe(self.peek())
    }
}

/// A character as messages show it.
pub(super) fn describe(c: Option<char>) -> String {
    match c {
        None => "the end of the file".to_owned(),
        Some('\n' | '\r') => "the end of the line".to_owned(),
        Some(c) => format!("'{}'", c.escape_debug()),
    }
}
