//! Destination tokens: plain text, `$1`, `{{function(arguments)}}`.

use super::{Cut, Piece, TransformError, Wildcards};

/// Functions of `{{…}}`.
#[derive(Clone, Copy)]
enum Function {
    Wildcard,
    Partition,
    Split,
    Random,
    Cut(Cut),
}

/// Names in their canonical case: each word's first letter may be written in either.
const FUNCTIONS: [(&str, Function); 10] = [
    ("Wildcard", Function::Wildcard),
    ("Partition", Function::Partition),
    ("Split", Function::Split),
    ("Random", Function::Random),
    ("SplitFromLeft", Function::Cut(Cut::SplitFromLeft)),
    ("SplitFromRight", Function::Cut(Cut::SplitFromRight)),
    ("SliceFromLeft", Function::Cut(Cut::SliceFromLeft)),
    ("SliceFromRight", Function::Cut(Cut::SliceFromRight)),
    ("Left", Function::Cut(Cut::Left)),
    ("Right", Function::Cut(Cut::Right)),
];

/// Parses one token of a destination.
pub(super) fn piece(token: &str, wildcards: &Wildcards) -> Result<Piece, TransformError> {
    // Other subjects begin with `$` too, so what is no number is no error.
    if let Some(number) = token.strip_prefix('$').and_then(|digits| digits.parse::<i64>().ok()) {
        return Call { token, wildcards }.wildcard(number);
    }
    let call = token.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
    match call.filter(|body| !body.is_empty()) {
        Some(body) => function(token, body, wildcards),
        None if token.bytes().any(|byte| byte.is_ascii_whitespace()) => {
            Err(TransformError::InvalidToken { token: token.to_owned() })
        }
        None => Ok(Piece::Literal(token.as_bytes().into())),
    }
}

/// `name(arguments)`, with spaces around either.
fn function(token: &str, body: &str, wildcards: &Wildcards) -> Result<Piece, TransformError> {
    let unknown = || TransformError::UnknownFunction { token: token.to_owned() };
    let (name, rest) = body.split_once('(').ok_or_else(unknown)?;
    let arguments = rest.trim_end().strip_suffix(')').ok_or_else(unknown)?;
    let name = name.trim();
    let known = FUNCTIONS.iter().find(|(canonical, _)| is_name(canonical, name));
    let (_, function) = known.ok_or_else(unknown)?;
    let arguments: Vec<_> =
        arguments.split(',').enumerate().map(|(i, text)| skip_spaces(i, text)).collect();
    let call = Call { token, wildcards };
    match *function {
        Function::Wildcard => call.wildcard_function(&arguments),
        Function::Partition => call.partition(&arguments),
        Function::Random => call.random(&arguments),
        Function::Split => call.split(&arguments),
        Function::Cut(kind) => call.cut(kind, &arguments),
    }
}

/// White space behind a comma belongs to the comma.
fn skip_spaces(position: usize, text: &str) -> &str {
    if position == 0 { text } else { text.trim_start() }
}

fn is_name(canonical: &str, name: &str) -> bool {
    canonical.len() == name.len()
        && canonical.bytes().zip(name.bytes()).all(|(wanted, byte)| {
            wanted == byte || (wanted.is_ascii_uppercase() && wanted.eq_ignore_ascii_case(&byte))
        })
}

/// A function call in the making.
struct Call<'a> {
    token: &'a str,
    wildcards: &'a Wildcards,
}

impl Call<'_> {
    fn invalid(&self) -> TransformError {
        TransformError::InvalidArgument { token: self.token.to_owned() }
    }

    fn expect_count(&self, arguments: &[&str], count: usize) -> Result<(), TransformError> {
        let token = || self.token.to_owned();
        match arguments.len() {
            given if given < count => Err(TransformError::NotEnoughArguments { token: token() }),
            given if given > count => Err(TransformError::TooManyArguments { token: token() }),
            _ => Ok(()),
        }
    }

    fn number(&self, argument: &str) -> Result<i64, TransformError> {
        argument.trim_matches(' ').parse().map_err(|_| self.invalid())
    }

    fn small(&self, argument: &str) -> Result<i32, TransformError> {
        i32::try_from(self.number(argument)?).map_err(|_| self.invalid())
    }

    /// The source token of wildcard `number`. Without wildcards in the source there is none.
    fn place(&self, number: i64) -> Result<usize, TransformError> {
        let token = || self.token.to_owned();
        if !self.wildcards.any() {
            return Err(TransformError::NoWildcards { token: token() });
        }
        let out_of_range = || TransformError::IndexOutOfRange { token: token(), index: number };
        self.wildcards.place(number).ok_or_else(out_of_range)
    }

    fn wildcard(&self, number: i64) -> Result<Piece, TransformError> {
        Ok(Piece::Wildcard { token: self.place(number)? })
    }

    fn wildcard_function(&self, arguments: &[&str]) -> Result<Piece, TransformError> {
        if arguments == [""] {
            return Err(TransformError::NotEnoughArguments { token: self.token.to_owned() });
        }
        self.expect_count(arguments, 1)?;
        self.wildcard(self.number(arguments[0])?)
    }

    fn partition(&self, arguments: &[&str]) -> Result<Piece, TransformError> {
        let count = self.small(arguments[0])?;
        let numbers: Vec<_> =
            arguments[1..].iter().map(|text| self.number(text)).collect::<Result<_, _>>()?;
        // A literal source has one subject, and the incumbent then ignores which tokens to hash.
        let tokens = if self.wildcards.any() {
            numbers.into_iter().map(|number| self.place(number)).collect::<Result<_, _>>()?
        } else {
            Vec::new()
        };
        Ok(Piece::Partition { count, tokens })
    }

    fn random(&self, arguments: &[&str]) -> Result<Piece, TransformError> {
        if arguments.len() != 1 {
            return Err(TransformError::NotEnoughArguments { token: self.token.to_owned() });
        }
        Ok(Piece::Random { count: self.small(arguments[0])? })
    }

    fn split(&self, arguments: &[&str]) -> Result<Piece, TransformError> {
        self.expect_count(arguments, 2)?;
        let number = self.number(arguments[0])?;
        let delimiter = arguments[1];
        if delimiter.contains([' ', '.']) {
            return Err(self.invalid());
        }
        let token = self.place(number)?;
        Ok(Piece::Split { token, delimiter: delimiter.as_bytes().into() })
    }

    fn cut(&self, kind: Cut, arguments: &[&str]) -> Result<Piece, TransformError> {
        self.expect_count(arguments, 2)?;
        let number = self.number(arguments[0])?;
        let size = self.small(arguments[1])?;
        Ok(Piece::Cut { kind, token: self.place(number)?, size })
    }
}
