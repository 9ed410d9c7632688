//! Values of the parser, which know where they were written.

use std::fmt;
use std::sync::Arc;

/// A place in a configuration file. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// Name of the file.
    pub file: Arc<str>,
    /// Line.
    pub line: u32,
    /// Column.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// A value and where it begins. A variable's value is where the variable is used.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// Its position.
    pub pos: Position,
    /// The value itself.
    pub node: Node,
    /// The text as written, of bare numbers and booleans: `2m`, `0600`, `yes`.
    pub written: Option<Box<str>>,
}

/// A value of one of the types of the syntax.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// `true`, `yes`, `on`, `false`, `no`, `off`.
    Bool(bool),
    /// An integer, its size suffix applied.
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// Any kind of string.
    Str(String),
    /// `2026-01-02T03:04:05Z`, as written.
    DateTime(String),
    /// `[…]`.
    Array(Vec<Value>),
    /// `{…}`.
    Map(Map),
}

impl Node {
    /// Name of the type with its article, for messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Node::Bool(_) => "a boolean",
            Node::Int(_) => "an integer",
            Node::Float(_) => "a number",
            Node::Str(_) => "a string",
            Node::DateTime(_) => "a date",
            Node::Array(_) => "an array",
            Node::Map(_) => "a map",
        }
    }
}

/// The keys of one `{}` or of a file, in their order. A key may occur twice: the last one counts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Map {
    entries: Vec<Entry>,
}

/// One key of a map with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key as written, without quotes.
    pub key: String,
    /// Position of the key.
    pub key_pos: Position,
    /// The value.
    pub value: Value,
    /// A later `$key` took this value, so the key may be unknown and yet have a purpose.
    pub used_as_variable: bool,
}

impl Map {
    /// The entries in the order of the file.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The last entry with this very key.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().rev().find(|e| e.key == key)
    }

    /// True if there is no key.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of entries, keys that occur twice counted twice.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    pub(super) fn extend(&mut self, other: Map) {
        self.entries.extend(other.entries);
    }

    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut Entry> {
        self.entries.iter_mut().rev().find(|e| e.key == key)
    }
}

/// Size of a value: how deep it nests and about how many bytes a copy of it takes.
pub(super) struct Extent {
    pub depth: usize,
    pub bytes: usize,
}

/// Measures a value, so that a copy can be refused before it is made.
pub(super) fn measure(value: &Value) -> Extent {
    const FIXED_BYTES: usize = 64;
    let children = |values: &mut dyn Iterator<Item = (usize, &Value)>| {
        let mut sum = Extent { depth: 1, bytes: FIXED_BYTES };
        for (key_bytes, child) in values {
            let inner = measure(child);
            sum.depth = sum.depth.max(inner.depth + 1);
            sum.bytes = sum.bytes.saturating_add(inner.bytes).saturating_add(key_bytes);
        }
        sum
    };
    match &value.node {
        Node::Array(items) => children(&mut items.iter().map(|v| (0, v))),
        Node::Map(map) => children(&mut map.entries.iter().map(|e| (e.key.len(), &e.value))),
        Node::Str(s) | Node::DateTime(s) => Extent { depth: 0, bytes: FIXED_BYTES + s.len() },
        Node::Bool(_) | Node::Int(_) | Node::Float(_) => Extent { depth: 0, bytes: FIXED_BYTES },
    }
}
