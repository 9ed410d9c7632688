//! Scripts: text files of steps, one per line. A line that starts with white space continues the
//! one above; `#` starts a comment line; `== title` starts a section, which begins with a fresh
//! connection and no streams but `KEEPER`.
//!
//! | step | does |
//! |---|---|
//! | `req SUBJECT [H: v; H: v] BODY` | request, waits for the one reply |
//! | `api REST [H: v] BODY` | the same to `$JS.API.REST` |
//! | `quiet SUBJECT [H: v] BODY` | a request that is expected to stay without reply |
//! | `pub SUBJECT [H: v] BODY` | publish and wait for the acknowledgement |
//! | `send SUBJECT [H: v] BODY` | publish without reply |
//! | `sendr SUBJECT REPLY [H: v] BODY` | publish with a reply subject |
//! | `sub NAME SUBJECT [QUEUE]`, `unsub NAME` | subscription, known as `NAME` to `get` |
//! | `get NAME COUNT [MS]` | what the subscription receives, until `COUNT` or the time is over |
//! | `pull NAME STREAM CONSUMER BODY` | pull request; its answers are read by `get NAME` |
//! | `next STREAM CONSUMER BODY` | pull request and its answers until it is served or ended |
//! | `ack INDEX BODY`, `ack- INDEX BODY` | acknowledge the INDEXth JetStream message of the section (-1: the last), with or without confirmation |
//! | `flow [H: v; H: v]` | answer the flow control request that came last |
//! | `show STREAM` | `STREAM.INFO` with deleted details and subjects |
//! | `tally STREAM` | the same without the size in bytes, where messages hold times: they are written with as many digits as they need |
//! | `each STEP` | run `STEP` after every following step of the section; alone: no more |
//! | `set NAME PATH` | keep a value of the last reply as `$NAME` |
//! | `repeat N STEP` | the step N times with `$i` from 1 |
//! | `await STREAM COUNT` | wait until a stream holds so many messages |
//! | `sleep MS`, `flush` | wait; ping and pong |
//! | `stop` | SIGTERM to the server: the last steps of a section |
//! | `conn N`, `raw N TEXT`, `read N pong/close/MS`, `drop N` | a raw connection; `TEXT` takes Rust's escapes |
//!
//! A step, or a section's title, that begins with `!NAME` is an intended difference of that name (see `compare`), and
//! `@(x*N)` in a body stands for N times `x`.

/// One step to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Line of the script, from 1.
    pub number: usize,
    /// Name of the intended difference, if one is announced.
    pub intended: Option<String>,
    /// The step's text.
    pub text: String,
}

/// One section of a script.
#[derive(Debug, Clone, Default)]
pub struct Script {
    /// File and title, for messages.
    pub name: String,
    /// Text of the configuration file; empty for none.
    pub config: String,
    /// Intended difference that all its steps are marked with.
    pub mark: Option<String>,
    /// Differences are excused by what led to them: see `defects`.
    pub recognises_defects: bool,
    /// Steps in order.
    pub lines: Vec<Line>,
}

impl Script {
    /// Reads the sections of a file. A part between `config:` and `end` is the configuration of
    /// the servers of all of them.
    pub fn parse(file: &str, text: &str) -> Vec<Self> {
        let mut sections: Vec<Self> = Vec::new();
        let mut config = String::new();
        let mut in_config = false;
        for (index, line) in text.lines().enumerate() {
            let line = line.trim_end();
            if let Some(title) = line.strip_prefix("== ") {
                let (mark, title) = marked(title);
                let (name, config) = (format!("{file} / {title}"), config.clone());
                let recognises_defects = false;
                sections.push(Self { name, config, mark, recognises_defects, lines: Vec::new() });
                continue;
            }
            match line {
                "config:" => in_config = true,
                "end" if in_config => in_config = false,
                line if in_config => config.extend([line, "\n"]),
                line if line.is_empty() || line.starts_with('#') => {}
                line => sections.last_mut().expect("a section starts").take(index + 1, line),
            }
        }
        sections
    }

    /// True if counts of pending messages are reliable: see `random`.
    pub fn pending(&self) -> bool {
        !self.name.starts_with("seed") || self.name.ends_with("calm")
    }

    fn take(&mut self, number: usize, line: &str) {
        if line.starts_with([' ', '\t']) {
            let last = self.lines.last_mut().expect("a continuation needs a step");
            last.text.push_str(line.trim_start());
        } else {
            self.push(number, line);
        }
    }

    fn push(&mut self, number: usize, text: &str) {
        let (intended, text) = marked(text);
        let (intended, text) = (intended.or_else(|| self.mark.clone()), text.to_owned());
        let Some((count, step)) = repeat(&text) else {
            self.lines.push(Line { number, intended, text });
            return;
        };
        for i in 1..=count {
            let text = step.replace("$i", &i.to_string());
            self.lines.push(Line { number, intended: intended.clone(), text });
        }
    }
}

/// Takes the `!name` from the start of a step or title.
pub fn marked(text: &str) -> (Option<String>, &str) {
    match text.strip_prefix('!').and_then(|rest| rest.split_once(' ')) {
        Some((name, rest)) => (Some(name.to_owned()), rest),
        None => (None, text),
    }
}

fn repeat(text: &str) -> Option<(u32, &str)> {
    let (count, step) = text.strip_prefix("repeat ")?.split_once(' ')?;
    Some((count.parse().expect("repeat takes a count"), step))
}

/// `subject [H: v; H: v] body` taken apart: subject, header block (empty when none), body.
pub fn message(text: &str) -> (String, Vec<u8>, Vec<u8>) {
    let (subject, rest) = text.split_once(' ').unwrap_or((text, ""));
    let (headers, body) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((headers, body)) if headers.contains(": ") => {
            (headers, body.strip_prefix(' ').unwrap_or(body))
        }
        _ => ("", rest),
    };
    (subject.to_owned(), header_block(headers), expand(body))
}

fn header_block(list: &str) -> Vec<u8> {
    if list.is_empty() {
        return Vec::new();
    }
    let mut block = b"NATS/1.0\r\n".to_vec();
    for pair in list.split("; ") {
        block.extend_from_slice(&expand(pair));
        block.extend_from_slice(b"\r\n");
    }
    block.extend_from_slice(b"\r\n");
    block
}

/// Replaces every `@(x*N)` by N times `x`.
pub fn expand(text: &str) -> Vec<u8> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("@(") {
        let (inner, tail) = after.split_once(')').expect("@( needs a closing parenthesis");
        let (what, count) = inner.rsplit_once('*').expect("@(what*count)");
        out.push_str(before);
        out.push_str(&what.repeat(count.parse().expect("@(what*count)")));
        rest = tail;
    }
    out.push_str(rest);
    out.into_bytes()
}

/// Undoes the escapes `\r \n \t \0 \\` and `\xNN`, and expands `@(x*N)`.
pub fn unescape(text: &str) -> Vec<u8> {
    let bytes = expand(text);
    let mut out = Vec::with_capacity(bytes.len());
    let mut pos = 0;
    while pos < bytes.len() {
        let (byte, used) = match (bytes[pos], bytes.get(pos + 1)) {
            (b'\\', Some(b'r')) => (b'\r', 2),
            (b'\\', Some(b'n')) => (b'\n', 2),
            (b'\\', Some(b't')) => (b'\t', 2),
            (b'\\', Some(b'0')) => (0, 2),
            (b'\\', Some(b'\\')) => (b'\\', 2),
            (b'\\', Some(b'x')) => {
                let digits = std::str::from_utf8(&bytes[pos + 2..pos + 4]).expect("two digits");
                (u8::from_str_radix(digits, 16).expect("two hexadecimal digits"), 4)
            }
            (other, _) => (other, 1),
        };
        out.push(byte);
        pos += used;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_continuations_repeats_and_marks() {
        let text = "config:\na: 1\nend\n== one\n# no\nreq a {\n  \"x\":1}\nrepeat 2 pub s.$i b\n\
                    !ver req i\n";
        let sections = Script::parse("t", text);
        let script = &sections[0];
        assert_eq!((script.name.as_str(), script.config.as_str()), ("t / one", "a: 1\n"));
        let texts: Vec<&str> = script.lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts, ["req a {\"x\":1}", "pub s.1 b", "pub s.2 b", "req i"]);
        assert_eq!(script.lines[3].intended.as_deref(), Some("ver"));
    }

    #[test]
    fn messages_take_headers_and_repetition() {
        let (subject, headers, body) = message("a.b [K: v; L: @(x*3)] {\"a\":[1]}");
        assert_eq!((subject.as_str(), body.as_slice()), ("a.b", &b"{\"a\":[1]}"[..]));
        assert_eq!(headers, b"NATS/1.0\r\nK: v\r\nL: xxx\r\n\r\n");
        assert_eq!(message("a [1,2]").2, b"[1,2]");
        assert_eq!(message("a"), ("a".to_owned(), Vec::new(), Vec::new()));
        assert_eq!(unescape("a\\r\\n\\x00@(b*2)"), b"a\r\n\0bb");
    }
}
