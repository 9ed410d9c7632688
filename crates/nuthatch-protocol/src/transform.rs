//! Subject transforms: from a pattern and a destination to a function on subjects.
//!
//! The grammar and every result are nats-server's, with one exception: `split` never writes an
//! empty token.

mod apply;
mod parse;
mod weighted;

use thiserror::Error;

use crate::subject::{self, ANY_TAIL, ANY_TOKEN, tokens};
pub use weighted::{Destination, Mapping, MappingError};

/// Why a destination cannot be used; the texts are nats-server's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TransformError {
    /// The source or the destination is not a valid subject, the destination has a bare `*`, or
    /// only one of the two ends in `>`.
    #[error("invalid subject")]
    BadSubject,
    /// White space in a destination token.
    #[error("invalid mapping destination: invalid transform")]
    InvalidToken {
        /// The destination token.
        token: String,
    },
    /// `{{name(…)}}` with an unknown name.
    #[error("invalid mapping destination: unknown function in {token}")]
    UnknownFunction {
        /// The destination token.
        token: String,
    },
    /// A wildcard number above the number of wildcards in the source.
    #[error("invalid mapping destination: wildcard index out of range in {token}: [{index}]")]
    IndexOutOfRange {
        /// The destination token.
        token: String,
        /// The number.
        index: i64,
    },
    /// A function of a wildcard for a source that has none.
    #[error("invalid mapping destination: wildcard index out of range in {token}")]
    NoWildcards {
        /// The destination token.
        token: String,
    },
    /// Too few arguments.
    #[error("invalid mapping destination: not enough arguments passed to the function in {token}")]
    NotEnoughArguments {
        /// The destination token.
        token: String,
    },
    /// Too many arguments.
    #[error("invalid mapping destination: too many arguments passed to the function in {token}")]
    TooManyArguments {
        /// The destination token.
        token: String,
    },
    /// Not a number where one has to be, or a delimiter with a space.
    #[error(
        "invalid mapping destination: function argument is invalid or in the wrong format in {token}"
    )]
    InvalidArgument {
        /// The destination token.
        token: String,
    },
    /// A function other than `wildcard` in an import.
    #[error(
        "invalid mapping destination: the only mapping function allowed for import transforms is \
         {{{{Wildcard()}}}} in {token}"
    )]
    NotReversible {
        /// The destination token.
        token: String,
    },
    /// An import that drops a wildcard.
    #[error("invalid mapping destination: not using all of the token wildcard(s) in {destination}")]
    WildcardUnused {
        /// The whole destination.
        destination: String,
    },
}

/// One token of a destination. `token` counts the source's tokens from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(Box<[u8]>),
    Wildcard {
        token: usize,
    },
    /// Without tokens the whole subject is hashed.
    Partition {
        count: i32,
        tokens: Vec<usize>,
    },
    Split {
        token: usize,
        delimiter: Box<[u8]>,
    },
    Cut {
        kind: Cut,
        token: usize,
        size: i32,
    },
    Random {
        count: i32,
    },
}

/// Functions of a token and a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    SplitFromLeft,
    SplitFromRight,
    SliceFromLeft,
    SliceFromRight,
    Left,
    Right,
}

/// A subject transform, ready to apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transform {
    source: Box<[u8]>,
    destination: Box<[u8]>,
    pieces: Vec<Piece>,
    /// Tokens of the source before its `>`, if it ends in one.
    tail_from: Option<usize>,
}

impl Transform {
    /// Compiles a transform of the subjects `source` selects; an empty source means `>`.
    ///
    /// An empty destination, which the incumbent takes for "no transform", is refused here: the
    /// caller knows what that means.
    ///
    /// # Errors
    /// [`TransformError`] with the destination token that is wrong.
    pub fn new(source: &str, destination: &str) -> Result<Self, TransformError> {
        let source = if source.is_empty() { ">" } else { source };
        let (src, dest) = (source.as_bytes(), destination.as_bytes());
        if !subject::is_valid_subject(src)
            || !is_destination(dest)
            || has_tail(src) != has_tail(dest)
        {
            return Err(TransformError::BadSubject);
        }
        let wildcards = Wildcards::of(src);
        let pieces: Vec<_> = destination
            .split('.')
            .filter(|token| token.as_bytes() != ANY_TAIL)
            .map(|token| parse::piece(token, &wildcards))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            source: src.into(),
            destination: dest.into(),
            pieces,
            tail_from: has_tail(src).then(|| subject::count_tokens(src) - 1),
        })
    }

    /// Compiles a transform that can be undone, as imports need: only `wildcard`, and all of them.
    ///
    /// # Errors
    /// [`TransformError`], as for [`Transform::new`], or because it cannot be undone.
    pub fn new_reversible(source: &str, destination: &str) -> Result<Self, TransformError> {
        let transform = Self::new(source, destination)?;
        let wildcards = Wildcards::of(&transform.source);
        if !wildcards.any() {
            return Ok(transform);
        }
        let mut used = 0;
        for (piece, token) in transform.pieces.iter().zip(destination.split('.')) {
            match piece {
                Piece::Literal(_) => {}
                Piece::Wildcard { .. } => used += 1,
                _ => return Err(TransformError::NotReversible { token: token.to_owned() }),
            }
        }
        if used < wildcards.places.len() {
            let destination = destination.to_owned();
            return Err(TransformError::WildcardUnused { destination });
        }
        Ok(transform)
    }

    /// The transform that leaves every subject `source` selects as it is.
    ///
    /// # Errors
    /// [`TransformError::BadSubject`] if `source` is not a valid subject.
    pub fn identity(source: &str) -> Result<Self, TransformError> {
        let mut number = 0;
        let number_wildcard = |token: &str| {
            if token.as_bytes() == ANY_TOKEN {
                number += 1;
                format!("${number}")
            } else {
                token.to_owned()
            }
        };
        let destination: Vec<_> = source.split('.').map(number_wildcard).collect();
        Self::new(source, &destination.join("."))
    }

    /// The transform that undoes this one.
    ///
    /// # Errors
    /// [`TransformError`] if this one is not [reversible](Transform::new_reversible).
    pub fn reverse(&self) -> Result<Self, TransformError> {
        let mut order = Vec::new();
        let mut source = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => source.push(String::from_utf8_lossy(text).into_owned()),
                Piece::Wildcard { token } => {
                    order.push(*token);
                    source.push("*".to_owned());
                }
                _ => {
                    let token = String::from_utf8_lossy(&self.destination).into_owned();
                    return Err(TransformError::NotReversible { token });
                }
            }
        }
        let mut destination = Vec::new();
        for (place, token) in tokens(&self.source).enumerate() {
            let number = order.iter().position(|&other| other == place);
            match (token, number) {
                (ANY_TOKEN, Some(number)) => destination.push(format!("${}", number + 1)),
                (ANY_TOKEN, None) => {
                    let destination = String::from_utf8_lossy(&self.destination).into_owned();
                    return Err(TransformError::WildcardUnused { destination });
                }
                _ => destination.push(String::from_utf8_lossy(token).into_owned()),
            }
        }
        if self.tail_from.is_some() {
            source.push(">".to_owned());
        }
        Self::new_reversible(&source.join("."), &destination.join("."))
    }

    /// True if it may give another result each time.
    #[must_use]
    pub fn is_random(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Random { .. }))
    }

    /// The pattern of the subjects it applies to.
    #[must_use]
    pub fn source(&self) -> &[u8] {
        &self.source
    }

    /// The destination as written.
    #[must_use]
    pub fn destination(&self) -> &[u8] {
        &self.destination
    }
}

/// A destination is a subject whose functions may hold spaces, and without a bare `*`.
fn is_destination(destination: &[u8]) -> bool {
    let mut ended = false;
    for token in tokens(destination) {
        if token.is_empty() || ended || token == ANY_TOKEN {
            return false;
        }
        ended = token == ANY_TAIL;
    }
    true
}

fn has_tail(pattern: &[u8]) -> bool {
    pattern == ANY_TAIL || pattern.ends_with(b".>")
}

/// Positions of a source's wildcards.
struct Wildcards {
    /// The place of each `*`, counting tokens from 0.
    places: Vec<usize>,
    tail: bool,
}

impl Wildcards {
    fn of(source: &[u8]) -> Self {
        let stars = tokens(source).enumerate().filter(|(_, token)| *token == ANY_TOKEN);
        Self { places: stars.map(|(place, _)| place).collect(), tail: has_tail(source) }
    }

    fn any(&self) -> bool {
        self.tail || !self.places.is_empty()
    }

    /// The source token that wildcard `number` stands for. Numbers below 1 mean the first token,
    /// wildcard or not: an accident of the incumbent that configurations rely on.
    fn place(&self, number: i64) -> Option<usize> {
        match usize::try_from(number) {
            Ok(0) | Err(_) => Some(0),
            Ok(number) => self.places.get(number - 1).copied(),
        }
    }
}

#[cfg(test)]
mod tests;
