//! The recursive-descent parser.

use std::sync::Arc;

use super::cursor::{Cursor, describe};
use super::error::{SyntaxError, SyntaxErrorKind as Kind};
use super::units::suffix_factor;
use super::value::{Entry, Map, Node, Position, Value, measure};
use super::{Loader, MAX_INCLUDE_DEPTH, MAX_NESTING, MAX_TOTAL_BYTES};

/// Share of [`MAX_TOTAL_BYTES`] that a file costs beyond its text, so that many empty files have an
/// end.
const FILE_OVERHEAD_BYTES: usize = 1024;

/// State shared by the parsers of a file, of its includes and of environment variables.
struct ParserShared<'l> {
    loader: &'l mut dyn Loader,
    bytes_left: usize,
    /// Files being read, outermost first.
    files: Vec<String>,
    /// Environment variables being resolved, outermost first.
    variables: Vec<String>,
}

impl ParserShared<'_> {
    fn spend(&mut self, bytes: usize, pos: &Position) -> Result<(), SyntaxError> {
        match self.bytes_left.checked_sub(bytes) {
            Some(left) => {
                self.bytes_left = left;
                Ok(())
            }
            None => Err(error(pos, Kind::TooLarge)),
        }
    }
}

pub(super) fn parse_file(
    name: Arc<str>,
    text: &str,
    loader: &mut dyn Loader,
) -> Result<Map, SyntaxError> {
    let mut shared = ParserShared {
        loader,
        bytes_left: MAX_TOTAL_BYTES,
        files: vec![name.to_string()],
        variables: Vec::new(),
    };
    Parser::new(name, text, &mut shared).document()
}

fn error(pos: &Position, kind: Kind) -> SyntaxError {
    SyntaxError { pos: pos.clone(), kind }
}

/// The end of the entries being parsed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    File,
    Brace,
}

struct Parser<'a, 's, 'l> {
    cur: Cursor<'a>,
    shared: &'s mut ParserShared<'l>,
    /// The maps around the current place, outermost first; variables are looked up here.
    scopes: Vec<Map>,
    depth: usize,
}

impl<'a, 's, 'l> Parser<'a, 's, 'l> {
    fn new(name: Arc<str>, text: &'a str, shared: &'s mut ParserShared<'l>) -> Self {
        Self { cur: Cursor::new(name, text), shared, scopes: Vec::new(), depth: 0 }
    }

    fn fail<T>(&self, kind: Kind) -> Result<T, SyntaxError> {
        Err(error(&self.cur.pos(), kind))
    }

    /// A whole file.
    fn document(mut self) -> Result<Map, SyntaxError> {
        let start = self.cur.pos();
        self.shared.spend(FILE_OVERHEAD_BYTES + self.cur.rest().len(), &start)?;
        self.scopes.push(Map::default());
        self.entries(End::File, &start)?;
        Ok(self.scopes.pop().unwrap_or_default())
    }

    /// The entries up to `end` go into the innermost scope. `open` is where the map began.
    fn entries(&mut self, end: End, open: &Position) -> Result<(), SyntaxError> {
        loop {
            self.cur.skip_space_and_comments(true);
            match self.cur.peek() {
                None if end == End::File => return Ok(()),
                None => return Err(error(open, Kind::UnclosedMap)),
                Some('}') if end == End::Brace => {
                    self.cur.bump();
                    return Ok(());
                }
                Some('}') => return self.last_brace(),
                Some('{') if self.scopes.len() == 1 => self.nested(Self::top_level_braces)?,
                Some(_) => self.entry()?,
            }
        }
    }

    /// Top-level keys may be in braces, as JSON has them.
    fn top_level_braces(&mut self) -> Result<(), SyntaxError> {
        let open = self.cur.pos();
        self.cur.bump();
        self.entries(End::Brace, &open)?;
        self.cur.skip_space_and_comments(true);
        self.cur.eat(',');
        Ok(())
    }

    /// A `}` too many is accepted as the very last thing in a file, as nats-server does.
    fn last_brace(&mut self) -> Result<(), SyntaxError> {
        let pos = self.cur.pos();
        self.cur.bump();
        self.cur.skip_space_and_comments(true);
        match self.cur.peek() {
            None => Ok(()),
            Some(_) => Err(error(&pos, Kind::UnmatchedBrace)),
        }
    }

    fn entry(&mut self) -> Result<(), SyntaxError> {
        let key_pos = self.cur.pos();
        let (key, quoted) = self.key()?;
        if !quoted && key.eq_ignore_ascii_case("include") && self.at_include_path() {
            self.include()?;
            return self.end_of_entry("include");
        }
        self.before_value(&key)?;
        let value = self.value(&key)?;
        let name = key.clone();
        if let Some(scope) = self.scopes.last_mut() {
            scope.push(Entry { key, key_pos, value, used_as_variable: false });
        }
        self.end_of_entry(&name)
    }

    /// A key and whether it was quoted.
    fn key(&mut self) -> Result<(String, bool), SyntaxError> {
        let pos = self.cur.pos();
        match self.cur.peek() {
            Some(quote @ ('"' | '\'')) => {
                let key = self.verbatim(quote)?;
                if key.is_empty() {
                    return Err(error(&pos, Kind::EmptyKey));
                }
                Ok((key, true))
            }
            None | Some('=' | ':' | '[' | ']' | '{' | '(' | ')' | ',' | ';') => {
                self.fail(Kind::ExpectedKey { found: self.cur.found() })
            }
            Some(_) => {
                let bare = |c: char| !c.is_whitespace() && !matches!(c, '=' | ':' | '{');
                Ok((self.cur.take_while(bare).to_owned(), false))
            }
        }
    }

    /// True if the word `include` is followed by a space and not by `=` or `:`.
    fn at_include_path(&self) -> bool {
        let rest = self.cur.rest();
        rest.starts_with(char::is_whitespace) && !rest.trim_start().starts_with(['=', ':'])
    }

    /// Moves from a key to its value.
    fn before_value(&mut self, key: &str) -> Result<(), SyntaxError> {
        let pos = self.cur.pos();
        let mut new_line = self.cur.skip_space(true);
        if self.cur.eat('=') || self.cur.eat(':') {
            new_line = self.cur.skip_space(true);
        }
        let opens = matches!(self.cur.peek(), Some('{' | '[' | '(' | '"' | '\''));
        let nothing = matches!(self.cur.peek(), None | Some(',' | ';' | '}' | ']'));
        if nothing || (new_line && !opens) {
            return Err(error(&pos, Kind::NoValue { key: key.to_owned() }));
        }
        Ok(())
    }

    /// After a value: a line end, a separator or the end of what is around it.
    fn end_of_entry(&mut self, key: &str) -> Result<(), SyntaxError> {
        let new_line = self.cur.skip_space_and_comments(true);
        if self.cur.eat(',') || self.cur.eat(';') || new_line {
            return Ok(());
        }
        match self.cur.peek() {
            None | Some('}') => Ok(()),
            Some(_) => {
                self.fail(Kind::TrailingText { key: key.to_owned(), found: self.cur.found() })
            }
        }
    }

    fn value(&mut self, key: &str) -> Result<Value, SyntaxError> {
        let pos = self.cur.pos();
        let node = match self.cur.peek() {
            Some('[') => self.nested(|p| p.array(key))?,
            Some('{') => self.nested(Self::map)?,
            Some('\'') => self.verbatim('\'').map(Node::Str)?,
            Some('"') => self.escaped_string()?,
            Some('(') => self.block()?,
            _ => return self.bare(pos),
        };
        Ok(Value { pos, node, written: None })
    }

    /// Bounds the recursion: every map and array passes through here.
    fn nested<T>(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<T, SyntaxError>,
    ) -> Result<T, SyntaxError> {
        if self.depth == MAX_NESTING {
            return self.fail(Kind::TooDeep);
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    fn map(&mut self) -> Result<Node, SyntaxError> {
        let open = self.cur.pos();
        self.cur.bump();
        self.scopes.push(Map::default());
        let parsed = self.entries(End::Brace, &open);
        let map = self.scopes.pop().unwrap_or_default();
        parsed.map(|()| Node::Map(map))
    }

    fn array(&mut self, key: &str) -> Result<Node, SyntaxError> {
        let open = self.cur.pos();
        self.cur.bump();
        let mut items = Vec::new();
        loop {
            self.cur.skip_space_and_comments(true);
            match self.cur.peek() {
                None => return Err(error(&open, Kind::UnclosedArray)),
                Some(']') => {
                    self.cur.bump();
                    return Ok(Node::Array(items));
                }
                Some(',') => return self.fail(Kind::EmptyElement),
                Some('}' | ';') => return self.fail(Kind::BadArray { found: self.cur.found() }),
                Some(_) => items.push(self.value(key)?),
            }
            let new_line = self.cur.skip_space_and_comments(true);
            let done = self.cur.eat(',') || new_line;
            match self.cur.peek() {
                None => return Err(error(&open, Kind::UnclosedArray)),
                Some(']') => {}
                Some(_) if done => {}
                Some(_) => return self.fail(Kind::BadArray { found: self.cur.found() }),
            }
        }
    }

    /// A text in quotes without escapes: keys, paths and single-quoted strings.
    fn verbatim(&mut self, quote: char) -> Result<String, SyntaxError> {
        let open = self.cur.pos();
        self.cur.bump();
        let text = self.cur.take_while(|c| c != quote).to_owned();
        if !self.cur.eat(quote) {
            return Err(error(&open, Kind::UnclosedString { quote }));
        }
        Ok(text)
    }

    fn escaped_string(&mut self) -> Result<Node, SyntaxError> {
        let open = self.cur.pos();
        self.cur.bump();
        let mut bytes = Vec::new();
        loop {
            bytes.extend(self.cur.take_while(|c| c != '"' && c != '\\').as_bytes());
            match self.cur.peek() {
                None => return Err(error(&open, Kind::UnclosedString { quote: '"' })),
                Some('\\') => self.escape(&mut bytes)?,
                Some(_) => {
                    self.cur.bump();
                    return utf8(bytes, &open).map(Node::Str);
                }
            }
        }
    }

    /// A backslash and what it stands for.
    fn escape(&mut self, out: &mut Vec<u8>) -> Result<(), SyntaxError> {
        let pos = self.cur.pos();
        self.cur.bump();
        let escaped = self.cur.bump();
        out.push(match escaped {
            Some('t') => b'\t',
            Some('n') => b'\n',
            Some('r') => b'\r',
            Some('"') => b'"',
            Some('\\') => b'\\',
            Some('x') => {
                let mut digit = || {
                    let hex = self.cur.peek().and_then(|c| c.to_digit(16));
                    if hex.is_some() {
                        self.cur.bump();
                    }
                    hex.ok_or_else(|| error(&pos, Kind::BadHex))
                };
                // Two hexadecimal digits are at most 255.
                (digit()? * 16 + digit()?) as u8
            }
            other => return Err(error(&pos, Kind::BadEscape { found: describe(other) })),
        });
        Ok(())
    }

    /// `(`, any text, and `)` on a line of its own.
    fn block(&mut self) -> Result<Node, SyntaxError> {
        let open = self.cur.pos();
        self.cur.bump();
        let mut text = String::new();
        loop {
            text.push_str(self.cur.take_while(|c| c != '\n'));
            if !self.cur.eat('\n') {
                return Err(error(&open, Kind::UnclosedBlock));
            }
            text.push('\n');
            if let Some(after) = self.cur.rest().strip_prefix(')') {
                let line = after.split('\n').next().unwrap_or_default();
                if line.trim().is_empty() {
                    self.cur.bump();
                    return Ok(Node::Str(text));
                }
            }
        }
    }

    /// A value without quotes: what it looks like decides what it is.
    fn bare(&mut self, pos: Position) -> Result<Value, SyntaxError> {
        let ends = |c: char| matches!(c, '\n' | '\r' | ' ' | '\t' | ',' | ';' | ']' | '}');
        let text = self.cur.take_while(|c| !ends(c) && c != '\\');
        if self.cur.peek() == Some('\\') {
            let mut bytes = text.as_bytes().to_vec();
            while let Some(c) = self.cur.peek().filter(|&c| !ends(c)) {
                if c == '\\' {
                    self.escape(&mut bytes)?;
                } else {
                    bytes.extend(self.cur.take_while(|c| !ends(c) && c != '\\').as_bytes());
                }
            }
            let node = Node::Str(utf8(bytes, &pos)?);
            return Ok(Value { pos, node, written: None });
        }
        if text.starts_with('$') && !is_bcrypt_prefix(text) {
            return self.variable(&text[1..], pos);
        }
        let node = classify(text).map_err(|kind| error(&pos, kind))?;
        let written = (!matches!(node, Node::Str(_))).then(|| text.into());
        Ok(Value { pos, node, written })
    }

    /// The value of `$name`: from the maps around it, innermost first, else from the environment.
    fn variable(&mut self, name: &str, pos: Position) -> Result<Value, SyntaxError> {
        let defined = self.scopes.iter_mut().rev().find_map(|map| map.get_mut(name));
        let Some(entry) = defined else { return self.environment(name, pos) };
        let extent = measure(&entry.value);
        if self.depth + extent.depth > MAX_NESTING {
            return Err(error(&pos, Kind::TooDeep));
        }
        self.shared.spend(extent.bytes, &pos)?;
        entry.used_as_variable = true;
        let mut value = entry.value.clone();
        value.pos = pos;
        Ok(value)
    }

    fn environment(&mut self, name: &str, pos: Position) -> Result<Value, SyntaxError> {
        if self.shared.variables.iter().any(|v| v == name) {
            return Err(error(&pos, Kind::VariableCycle { name: name.to_owned() }));
        }
        let Some(text) = self.shared.loader.env(name) else {
            return Err(error(&pos, Kind::UnknownVariable { name: name.to_owned() }));
        };
        self.shared.spend(text.len(), &pos)?;
        self.shared.variables.push(name.to_owned());
        let file = Arc::from(format!("${name}"));
        let mut inner = Parser::new(file, text.trim(), self.shared);
        inner.depth = self.depth;
        let parsed = inner.only_value(name);
        self.shared.variables.pop();
        let mut value = parsed.map_err(|e| match e.kind {
            kind @ (Kind::VariableCycle { .. } | Kind::TooLarge | Kind::TooDeep) => {
                error(&pos, kind)
            }
            kind => {
                let why = kind.to_string();
                error(&pos, Kind::BadVariable { name: name.to_owned(), why })
            }
        })?;
        value.pos = pos;
        Ok(value)
    }

    /// A text that is one value and nothing else.
    fn only_value(mut self, name: &str) -> Result<Value, SyntaxError> {
        if self.cur.peek().is_none() {
            return self.fail(Kind::NoValue { key: name.to_owned() });
        }
        let value = self.value(name)?;
        self.cur.skip_space_and_comments(true);
        if self.cur.peek().is_some() {
            let found = self.cur.found();
            return self.fail(Kind::TrailingText { key: name.to_owned(), found });
        }
        Ok(value)
    }

    /// The path after `include`, and the keys of that file into the innermost scope.
    fn include(&mut self) -> Result<(), SyntaxError> {
        self.cur.skip_space(false);
        let pos = self.cur.pos();
        let path = match self.cur.peek() {
            Some(quote @ ('"' | '\'')) => self.verbatim(quote)?,
            _ => {
                let ends = |c: char| c.is_whitespace() || matches!(c, ';' | ',' | '}' | '{' | '[');
                self.cur.take_while(|c| !ends(c)).to_owned()
            }
        };
        if path.is_empty() {
            return self.fail(Kind::IncludeWithoutPath { found: self.cur.found() });
        }
        let map = self.included(&path, &pos)?;
        if let Some(scope) = self.scopes.last_mut() {
            scope.extend(map);
        }
        Ok(())
    }

    /// Parses an included file. It sees the environment but not our variables.
    fn included(&mut self, path: &str, pos: &Position) -> Result<Map, SyntaxError> {
        if self.shared.files.len() > MAX_INCLUDE_DEPTH {
            return Err(error(pos, Kind::IncludeDepth));
        }
        let from = Arc::clone(self.cur.file());
        let source = self
            .shared
            .loader
            .load(path, &from)
            .map_err(|why| error(pos, Kind::Include { path: path.to_owned(), why }))?;
        if self.shared.files.contains(&source.name) {
            return Err(error(pos, Kind::IncludeCycle { path: path.to_owned() }));
        }
        self.shared.files.push(source.name.clone());
        let name = Arc::from(source.name);
        let mut inner = Parser::new(name, &source.text, self.shared);
        inner.depth = self.depth;
        let map = inner.document();
        self.shared.files.pop();
        map
    }
}

fn utf8(bytes: Vec<u8>, pos: &Position) -> Result<String, SyntaxError> {
    String::from_utf8(bytes).map_err(|_| error(pos, Kind::NotUtf8))
}

/// `$2a$…` and its kin are bcrypt hashes, which need no quotes.
fn is_bcrypt_prefix(text: &str) -> bool {
    ["$2a$", "$2b$", "$2x$", "$2y$"].iter().any(|prefix| text.starts_with(prefix))
}

/// Decides what a bare word is.
fn classify(text: &str) -> Result<Node, Kind> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" => return Ok(Node::Bool(true)),
        "false" | "no" | "off" => return Ok(Node::Bool(false)),
        _ => {}
    }
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let digits = unsigned.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return Ok(Node::Str(text.to_owned()));
    }
    let (number, suffix) = text.split_at(text.len() - unsigned.len() + digits);
    if let Some(factor) = suffix_factor(suffix) {
        let value = number.parse::<i64>().ok().and_then(|n| n.checked_mul(factor));
        return value.map(Node::Int).ok_or_else(|| Kind::IntegerRange { text: text.to_owned() });
    }
    if is_fraction(suffix) {
        let value = text.parse::<f64>().ok().filter(|f| f.is_finite());
        return value.map(Node::Float).ok_or_else(|| Kind::FloatRange { text: text.to_owned() });
    }
    if is_zulu_time(text) {
        return Ok(Node::DateTime(text.to_owned()));
    }
    Ok(Node::Str(text.to_owned()))
}

fn is_fraction(suffix: &str) -> bool {
    let digits = suffix.strip_prefix('.').unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

fn is_zulu_time(text: &str) -> bool {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00Z";
    text.len() == SHAPE.len()
        && text
            .bytes()
            .zip(SHAPE)
            .all(|(b, &s)| if s == b'0' { b.is_ascii_digit() } else { b == s })
}
