//! Subjects with templates, which scoped signing keys give their users: `orders.{{name()}}.>`.

use thiserror::Error;

use crate::subject::is_valid_subject;

/// Most subjects that one list of templates may become.
const EXPANSIONS_MAX: usize = 4096;
/// Most bytes that one template may become.
const EXPANDED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The user that templates refer to.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The user's name.
    pub name: &'a str,
    /// The user's public nkey.
    pub subject: &'a str,
    /// The user's tags.
    pub tags: &'a [String],
    /// The account's name.
    pub account_name: &'a str,
    /// The account's public nkey.
    pub account_subject: &'a str,
    /// The account's tags.
    pub account_tags: &'a [String],
}

/// Why templates do not make subjects.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TemplateError {
    /// No such function.
    #[error("template operation in {subject:?}: {operation:?} is not defined")]
    Unknown {
        /// The template.
        subject: String,
        /// The function.
        operation: String,
    },
    /// A denied subject that refers to a tag that is not there: it would deny nothing.
    #[error("generated invalid subject {subject:?}: {tag:?} is not defined")]
    NoTag {
        /// The template.
        subject: String,
        /// The tag.
        tag: String,
    },
    /// A denied subject that is none.
    #[error("generated invalid subject")]
    Invalid,
    /// Too many combinations of tags.
    #[error("template expansion exceeds limit: {EXPANSIONS_MAX}")]
    TooMany,
}

/// A part of a template.
enum Piece<'a> {
    Text(&'a str),
    /// Possible values.
    Values(Vec<&'a str>),
}

/// The subjects that a list of templates means for a user. Where a list holds no template it stays
/// as it is. What becomes no subject is left out or, if it is `strict`, an error: a denied subject
/// must not be lost.
///
/// # Errors
/// [`TemplateError`]
pub fn expand(
    list: &[String],
    strict: bool,
    whom: &Subject<'_>,
) -> Result<Vec<String>, TemplateError> {
    if !list.iter().any(|template| next_template(template).is_some()) {
        return Ok(list.to_vec());
    }
    let mut out = Vec::with_capacity(list.len());
    for template in list {
        let pieces = parse(template, strict, whom)?;
        for subject in combinations(&pieces, EXPANSIONS_MAX - out.len())? {
            if is_valid_subject(subject.as_bytes()) {
                out.push(subject);
            } else if strict {
                return Err(TemplateError::Invalid);
            }
        }
    }
    Ok(out)
}

/// The text before the next `{{…}}`, what is in it, and the text behind it.
fn next_template(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    while let Some(at) = text[from..].find("{{") {
        let start = from + at;
        let inner = &text[start + 2..];
        let end = inner.find('}')?;
        if end > 0 && inner[end..].starts_with("}}") {
            return Some((&text[..start], &inner[..end], &inner[end + 2..]));
        }
        from = start + 1;
    }
    None
}

fn parse<'a>(
    template: &'a str,
    strict: bool,
    whom: &Subject<'a>,
) -> Result<Vec<Piece<'a>>, TemplateError> {
    let mut pieces = Vec::new();
    let mut rest = template;
    while let Some((before, operation, after)) = next_template(rest) {
        pieces.push(Piece::Text(before));
        let operation = operation.trim();
        let values = values(operation, whom).ok_or_else(|| TemplateError::Unknown {
            subject: template.to_owned(),
            operation: operation.to_owned(),
        })?;
        if values.is_empty() {
            if strict {
                let (subject, tag) = (template.to_owned(), operation.to_owned());
                return Err(TemplateError::NoTag { subject, tag });
            }
            // Without a value there is no subject.
            return Ok(vec![Piece::Values(Vec::new())]);
        }
        pieces.push(Piece::Values(values));
        rest = after;
    }
    pieces.push(Piece::Text(rest));
    Ok(pieces)
}

/// Values of a function; `None`: there is no such function.
fn values<'a>(operation: &str, whom: &Subject<'a>) -> Option<Vec<&'a str>> {
    let one = match operation.to_ascii_lowercase().as_str() {
        "name()" => Some(whom.name),
        "subject()" => Some(whom.subject),
        "account-name()" => Some(whom.account_name),
        "account-subject()" => Some(whom.account_subject),
        _ => None,
    };
    if let Some(one) = one {
        return Some(vec![one]);
    }
    let (tags, name) = match (argument(operation, "tag("), argument(operation, "account-tag(")) {
        (Some(name), _) => (whom.tags, name),
        (None, Some(name)) => (whom.account_tags, name),
        (None, None) => return None,
    };
    let prefix = format!("{}:", name.to_lowercase());
    Some(tags.iter().filter_map(|tag| tag.strip_prefix(&prefix)).collect())
}

fn argument<'a>(operation: &'a str, function: &str) -> Option<&'a str> {
    let head = operation.get(..function.len())?;
    let rest = operation.get(function.len()..)?;
    if head.eq_ignore_ascii_case(function) { rest.strip_suffix(')') } else { None }
}

/// Every choice of values, at most `max`.
fn combinations(pieces: &[Piece<'_>], max: usize) -> Result<Vec<String>, TemplateError> {
    let (mut count, mut longest) = (1_usize, 0_usize);
    for piece in pieces {
        match piece {
            Piece::Text(text) => longest += text.len(),
            Piece::Values(values) => {
                count = count.checked_mul(values.len()).ok_or(TemplateError::TooMany)?;
                longest += values.iter().map(|value| value.len()).max().unwrap_or_default();
            }
        }
    }
    if count > max || count.saturating_mul(longest) > EXPANDED_BYTES_MAX {
        return Err(TemplateError::TooMany);
    }
    let mut out: Vec<String> = vec![String::new()];
    for piece in pieces {
        match piece {
            Piece::Text(text) => out.iter_mut().for_each(|subject| subject.push_str(text)),
            Piece::Values(values) => {
                let longer = |subject: &String| -> Vec<String> {
                    values.iter().map(|value| format!("{subject}{value}")).collect()
                };
                out = out.iter().flat_map(longer).collect();
            }
        }
    }
    Ok(out)
}
