//! Finds the commands of a Markdown file, and what the file says about each.

/// What stands before a block whose commands a test cannot run, with the reason.
const NOT_RUN: &str = "<!-- not run: ";
/// What stands before a transcript that another test writes and keeps true.
const TRANSCRIPT: &str = "<!-- transcript: written by the test ";
/// What stands before the block whose one command starts the server of the file.
const SERVER: &str = "<!-- the test starts this on a free port -->";

/// Words that begin commands: a block without a language that has such a line is an oversight.
const COMMANDS: [&str; 10] =
    ["$ ", "nuthatch ", "cargo ", "./", "go ", "docker ", "systemctl ", "ln ", "alias ", "curl "];

/// A command and what is said to come of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Line of the file, from 1.
    pub line: usize,
    /// The command, all its lines.
    pub command: String,
    /// Exit code: 0, or what a comment `# exits with N` says.
    pub exit: i32,
    /// The lines that are shown as its output, when any are.
    pub output: Option<Vec<String>>,
}

/// What a file asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The server, when the file starts one.
    pub server: Option<String>,
    /// What is run, in order.
    pub steps: Vec<Step>,
    /// Blocks that break the rules, in words.
    pub faults: Vec<String>,
    /// Blocks that are not run.
    pub skipped: usize,
}

/// Reads a file.
///
/// `is_complete` says whether text is a whole command to the shell.
pub fn parse(text: &str, is_complete: &dyn Fn(&str) -> bool) -> Page {
    let mut page = Page::default();
    let mut before = "";
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(language) = line.trim_start().strip_prefix("```") else {
            if !line.trim().is_empty() {
                before = line.trim();
            }
            continue;
        };
        let body: Vec<(usize, &str)> = lines
            .by_ref()
            .take_while(|(_, line)| line.trim() != "```")
            .map(|(number, line)| (number + 1, line))
            .collect();
        block(&mut page, (number + 1, language.trim()), before, &body, is_complete);
        before = "";
    }
    page
}

fn block(
    page: &mut Page,
    (number, language): (usize, &str),
    before: &str,
    body: &[(usize, &str)],
    is_complete: &dyn Fn(&str) -> bool,
) {
    let is_command = |line: &str| COMMANDS.iter().any(|word| line.starts_with(word));
    match language {
        "" if body.iter().any(|(_, line)| is_command(line)) => page.faults.push(format!(
            "line {number}: a block of commands needs a language: sh, console, or text"
        )),
        "sh" | "console" => {
            if let Some(reason) = before.strip_prefix(NOT_RUN) {
                page.skipped += 1;
                if reason.trim_end_matches("-->").trim().len() < 5 {
                    page.faults.push(format!("line {number}: why is this not run?"));
                }
            } else if before.starts_with(TRANSCRIPT) {
                page.skipped += 1;
            } else if before == SERVER {
                let command: Vec<&str> = body.iter().map(|(_, line)| *line).collect();
                page.server = Some(command.join("\n"));
            } else if language == "sh" {
                commands(page, body, is_complete);
            } else {
                dialogue(page, body, is_complete);
            }
        }
        _ => {}
    }
}

fn step(line: usize, command: String, output: Option<Vec<String>>) -> Step {
    let code = command.split_once("# exits with ").map(|(_, code)| code);
    let exit = code.and_then(|code| code.split_whitespace().next()?.parse().ok()).unwrap_or(0);
    Step { line, command, exit, output }
}

/// Commands only.
fn commands(page: &mut Page, body: &[(usize, &str)], is_complete: &dyn Fn(&str) -> bool) {
    let mut command = String::new();
    let mut begin = 0;
    for (number, line) in body {
        if command.is_empty() && (line.trim().is_empty() || line.trim_start().starts_with('#')) {
            continue;
        }
        if command.is_empty() {
            begin = *number;
        } else {
            command.push('\n');
        }
        command.push_str(line);
        if is_complete(&command) {
            page.steps.push(step(begin, std::mem::take(&mut command), None));
        }
    }
    if !command.is_empty() {
        page.faults.push(format!("line {begin}: this is no whole command"));
    }
}

/// Commands behind `$ `, each followed by its output.
fn dialogue(page: &mut Page, body: &[(usize, &str)], is_complete: &dyn Fn(&str) -> bool) {
    let mut whole = true;
    for (number, line) in body {
        match (line.strip_prefix("$ "), page.steps.last_mut()) {
            (Some(command), _) => {
                page.steps.push(step(*number, command.to_owned(), Some(Vec::new())));
            }
            (None, Some(last)) if !whole => {
                last.command.push('\n');
                last.command.push_str(line);
            }
            (None, Some(Step { output: Some(output), .. })) => output.push((*line).to_owned()),
            (None, _) => {
                page.faults.push(format!("line {number}: a console block begins with $ "));
                return;
            }
        }
        whole = page.steps.last().is_none_or(|last| is_complete(&last.command));
    }
}

/// True if output has the shape that is shown: numbers may differ, `…` stands for any text in a
/// line and, alone on a line, for any number of lines; spaces and lines of tables may be longer.
pub fn has_shape(shown: &[String], output: &str) -> bool {
    let shown: Vec<String> =
        shown.iter().map(|line| shape(line)).filter(|l| !l.is_empty()).collect();
    let found: Vec<String> = output.lines().map(shape).filter(|l| !l.is_empty()).collect();
    lines_match(&shown, &found)
}

fn lines_match(shown: &[String], found: &[String]) -> bool {
    match (shown.split_first(), found.split_first()) {
        (None, None) => true,
        (Some((any, rest)), _) if any == "…" => {
            (0..=found.len()).any(|skipped| lines_match(rest, &found[skipped..]))
        }
        (Some((a, shown)), Some((b, found))) => line_matches(a, b) && lines_match(shown, found),
        _ => false,
    }
}

fn line_matches(shown: &str, found: &str) -> bool {
    let Some((begin, rest)) = shown.split_once('…') else { return shown == found };
    let Some(mut found) = found.strip_prefix(begin) else { return false };
    let mut parts: Vec<&str> = rest.split('…').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        match found.find(part) {
            Some(at) => found = &found[at + part.len()..],
            None => return false,
        }
    }
    found.ends_with(end)
}

/// A line with every number as `#`, one space where there were several, and one `─` for a line.
fn shape(line: &str) -> String {
    let chars: Vec<char> = line.trim().chars().collect();
    let digit = |at: usize| chars.get(at).is_some_and(char::is_ascii_digit);
    let mut out = String::new();
    let mut at = 0;
    while let Some(c) = chars.get(at).copied() {
        at += 1;
        if c.is_ascii_digit() {
            while digit(at) || (digit(at + 1) && ".,:".contains(chars[at])) {
                at += 1;
            }
            out.push('#');
        } else if !((c == ' ' || c == '─') && out.ends_with(c)) {
            out.push(c);
        }
    }
    out
}

#[test]
fn blocks_become_steps() {
    let text = "<!-- the test starts this on a free port -->\n```sh\nnuthatch serve\n```\n\
                words\n```sh\n# a comment\na \\\n  b   # exits with 2\n\nc\n```\n\
                ```console\n$ d\nout\n…\n$ e\n```\n<!-- not run: needs Docker -->\n```sh\nx\n```\n\
                ```\nnuthatch pub\n```\n```toml\nnuthatch = 1\n```\n";
    let page = parse(text, &|command: &str| !command.ends_with('\\'));
    assert_eq!(page.server.as_deref(), Some("nuthatch serve"));
    let commands: Vec<&str> = page.steps.iter().map(|step| step.command.as_str()).collect();
    assert_eq!(commands, ["a \\\n  b   # exits with 2", "c", "d", "e"]);
    assert_eq!((page.steps[0].exit, page.steps[0].line), (2, 8));
    assert_eq!(page.steps[2].output, Some(vec!["out".to_owned(), "…".to_owned()]));
    assert_eq!((page.faults.len(), page.skipped), (1, 1), "{:?}", page.faults);
}

#[test]
fn shapes() {
    let check = |shown: &str, found: &str, expected: bool| {
        let shown: Vec<String> = shown.lines().map(str::to_owned).collect();
        assert_eq!(has_shape(&shown, found), expected, "{shown:?} {found:?}");
    };
    check("Stored as sequence 1", "Stored as sequence 4711", true);
    check("Name  Size\n────  ───\nA      1 B", "Name     Size\n────  ───────\nA     1,000 B", true);
    check("Server …: 5 trips", "Server NABC: 7 trips", true);
    check("a\n…\nz", "a\nb\nc\nz", true);
    check("a\n…", "a", true);
    check("a", "a\nb", false);
    check("id …", "id xyz", true);
    check("id … end", "id xyz", false);
}
