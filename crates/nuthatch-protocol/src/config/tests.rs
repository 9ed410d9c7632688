//! Texts and what becomes of them: values, errors with their exact words, and random input.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::*;

/// Files and variables in memory.
#[derive(Default)]
struct Fake {
    files: HashMap<&'static str, &'static str>,
    env: HashMap<&'static str, &'static str>,
}

impl Loader for Fake {
    fn load(&mut self, path: &str, from: &str) -> Result<Source, String> {
        let dir = from.rsplit_once('/').map_or("", |(dir, _)| dir);
        let name = if dir.is_empty() { path.to_owned() } else { format!("{dir}/{path}") };
        let text = *self.files.get(name.as_str()).ok_or("no such file")?;
        Ok(Source { name, text: text.to_owned() })
    }

    fn env(&self, name: &str) -> Option<String> {
        self.env.get(name).map(|&v| v.to_owned())
    }
}

fn show(node: &Node, out: &mut String) {
    match node {
        Node::Bool(b) => write!(out, "{b}").unwrap(),
        Node::Int(n) => write!(out, "{n}").unwrap(),
        Node::Float(f) => write!(out, "{f:?}").unwrap(),
        Node::Str(s) => write!(out, "{s:?}").unwrap(),
        Node::DateTime(s) => write!(out, "@{s}").unwrap(),
        Node::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { " " });
                show(&item.node, out);
            }
            out.push(']');
        }
        Node::Map(map) => {
            out.push('{');
            show_map(map, out);
            out.push('}');
        }
    }
}

fn show_map(map: &Map, out: &mut String) {
    for (i, entry) in map.entries().iter().enumerate() {
        out.push_str(if i == 0 { "" } else { " " });
        write!(out, "{}=", entry.key).unwrap();
        show(&entry.value.node, out);
    }
}

fn outcome(fake: &mut Fake, text: &str) -> String {
    match parse("t.conf", text, fake) {
        Ok(map) => {
            let mut out = String::new();
            show_map(&map, &mut out);
            out
        }
        Err(e) => format!("ERR {e}"),
    }
}

#[track_caller]
fn check(text: &str, expect: &str) {
    let mut fake = Fake::default();
    fake.env.extend([
        ("PORT", "4333"),
        ("NAME", "xyz"),
        ("QUOTED", "'3xyz'"),
        ("HASH", "$2a$11$ooo"),
        ("INDIRECT", "$NAME"),
        ("LOOP", "$LOOP"),
        ("TWO", "a b"),
        ("EMPTY", ""),
        ("LIST", "[1, 2]"),
    ]);
    fake.files.extend([
        ("users.conf", "users = [a, b]"),
        ("sub/one.conf", "x: 1\ninclude two.conf"),
        ("sub/two.conf", "y: 2"),
        ("self.conf", "include self.conf"),
        ("bad.conf", "ok: 1\n  oops"),
        ("vars.conf", "P = secret\nQ = $P\nR = $outer"),
        ("json.conf", "{ \"a\": 1 }"),
        ("empty.conf", "  # nothing\n"),
    ]);
    assert_eq!(outcome(&mut fake, text), expect, "input: {text:?}");
}

#[test]
fn assignments_separators_and_comments() {
    check("", "");
    check("  # only\n // comments", "");
    check("foo='1'; bar=2.2; baz=true; boo=22", r#"foo="1" bar=2.2 baz=true boo=22"#);
    check("a = 1\nb: 2\nc 3, d=4", "a=1 b=2 c=3 d=4");
    check("a = 1 # one\nb = 2 // two\n", "a=1 b=2");
    check("a:1\r\nb:2\r\n", "a=1 b=2");
    check("\u{feff}a: 1", "a=1");
    check("a\n{ b 1 }", "a={b=1}");
    check("a =\n[1]", "a=[1]");
    check("'k 1': 1, \"k.2\": 2", "k 1=1 k.2=2");
    check("a{b:1}", "a={b=1}");
    check(
        "a { b: 1; c: [x y], }",
        "ERR t.conf:1:17: expected ',' or ']' after an array element, found 'y'",
    );
    check("a 1\na 2", "a=1 a=2");
    check("listen: 127.0.0.1:-1", r#"listen="127.0.0.1:-1""#);
    check("include: x", r#"include="x""#);
    check("include = x", r#"include="x""#);
}

#[test]
fn braces_around_everything() {
    check("{}", "");
    check("{ listen: 0.0.0.0:4222 }", r#"listen="0.0.0.0:4222""#);
    check("{\n {\n a: 1 // x\n }\n # y\n}\n# z", "a=1");
    check("{ \"a\": { \"b\": [ \"c\", \"d\" ] }, \"e\": 1 }", r#"a={b=["c" "d"]} e=1"#);
    check("a { b = [{}]}\n }", "a={b=[{}]}");
    check("{ a: 1 }, b: 2", "a=1 b=2");
}

#[test]
fn numbers_booleans_and_dates() {
    check("a on; b OFF; c Yes; d nO; e True", "a=true b=false c=true d=false e=true");
    check("a 8k; b 4kb; c 3Ki; d 4KiB", "a=8000 b=4096 c=3072 d=4096");
    check(
        "a 1m; b 2MB; c 2g; d 2GiB; e 1t; f 1TB",
        "a=1000000 b=2097152 c=2000000000 d=2147483648 e=1000000000000 f=1099511627776",
    );
    check("a 1p; b 1e; c 1EiB", "a=1000000000000000 b=1000000000000000000 c=1152921504606846976");
    check("a -1; b -2.5; c -1k", "a=-1 b=-2.5 c=-1000");
    check("a 2026-01-02T03:04:05Z", "a=@2026-01-02T03:04:05Z");
    check("a [1,2,3]", "a=[1 2 3]");
    check(
        "a 0K1abc; b 5e7bcd-abc10; c -1k2abc; d 1bib; e 10.0.0.1; f 2026-01-02",
        r#"a="0K1abc" b="5e7bcd-abc10" c="-1k2abc" d="1bib" e="10.0.0.1" f="2026-01-02""#,
    );
}

#[test]
fn strings() {
    check(r#"a "x\t\"\\\n\x41\xc3\xbc""#, r#"a="x\t\"\\\nAü""#);
    check(r"a 'raw \t $x'", r#"a="raw \\t $x""#);
    check("a './rel'; b ./rel", r#"a="./rel" b="./rel""#);
    check(r"a x\ty", r#"a="x\ty""#);
    check("a b#c; d //e", r#"a="b#c" d="//e""#);
    check("a \"two\nlines\"", r#"a="two\nlines""#);
    check("a (\n  12(34)\n  )\n)\nb 1", r#"a="\n  12(34)\n  )\n" b=1"#);
    check("a (\nx\n)", r#"a="\nx\n""#);
    check("p $2a$11$ooo; q $2y$10$x", r#"p="$2a$11$ooo" q="$2y$10$x""#);
    check("url \"nats://u:p@h:1\"", r#"url="nats://u:p@h:1""#);
}

#[test]
fn variables() {
    check("i = 22\nfoo = $i", "i=22 foo=22");
    check("i 22\nn { i 11, f $i }\nb $i", "i=22 n={i=11 f=11} b=22");
    check("P { allow: [a] }\nu [{p: $P}]", r#"P={allow=["a"]} u=[{p={allow=["a"]}}]"#);
    check(
        "p $PORT; n $NAME; q $QUOTED; h $HASH; i $INDIRECT; l $LIST",
        r#"p=4333 n="xyz" q="3xyz" h="$2a$11$ooo" i="xyz" l=[1 2]"#,
    );
    let mut fake = Fake::default();
    let map = parse("t", "v 1\nw 2\nx $v", &mut fake).unwrap();
    let used: Vec<_> = map.entries().iter().map(|e| e.used_as_variable).collect();
    assert_eq!(used, [true, false, false]);
    assert_eq!(map.get("x").unwrap().value.pos.to_string(), "t:3:3");
}

#[test]
fn includes() {
    check("include users.conf\na 1", r#"users=["a" "b"] a=1"#);
    check("auth { include 'users.conf' }", r#"auth={users=["a" "b"]}"#);
    check("INCLUDE \"sub/one.conf\"; z 3", "x=1 y=2 z=3");
    check("a { include json.conf }\nb { include empty.conf}", "a={a=1} b={}");
    check(
        "outer 1\ninclude vars.conf",
        "ERR vars.conf:3:5: variable 'outer' is not defined: set it above, in this or an enclosing map, or in the environment (a string that begins with '$' needs quotes)",
    );
    check(
        "include bad.conf",
        "ERR bad.conf:2:7: key 'oops' has no value: write it on the same line (\"\" for an empty string)",
    );
    check("\n include nix.conf", "ERR t.conf:2:10: cannot include 'nix.conf': no such file");
    check("include self.conf", "ERR self.conf:1:9: 'self.conf' includes itself");
    check("include t.conf", "ERR t.conf:1:9: cannot include 't.conf': no such file");
    check(
        "include ",
        "ERR t.conf:1:9: expected a file name after 'include', found the end of the file",
    );
    check("include {", "ERR t.conf:1:9: expected a file name after 'include', found '{'");
}

#[test]
fn mistakes_have_a_place_and_advice() {
    let no_value = |key: &str| {
        format!("key '{key}' has no value: write it on the same line (\"\" for an empty string)")
    };
    check("aaaa", &format!("ERR t.conf:1:5: {}", no_value("aaaa")));
    check("a,a,a", &format!("ERR t.conf:1:6: {}", no_value("a,a,a")));
    check("x: 1\ndebug:\ntrace: true", &format!("ERR t.conf:2:6: {}", no_value("debug")));
    check("a { b: }", &format!("ERR t.conf:1:6: {}", no_value("b")));
    check("= 1", "ERR t.conf:1:1: expected a key, found '='");
    check(
        "a: 1\n  , b",
        "ERR t.conf:2:6: key 'b' has no value: write it on the same line (\"\" for an empty string)",
    );
    check("[1]", "ERR t.conf:1:1: expected a key, found '['");
    check("\"\": 1", "ERR t.conf:1:1: a key cannot be empty");
    check(
        "name: my server",
        "ERR t.conf:1:10: expected the end of the value of 'name' (a new line, ',' or ';'), found 's': a value with spaces or separators needs quotes",
    );
    check("a [1 2]", "ERR t.conf:1:6: expected ',' or ']' after an array element, found '2'");
    check("a [,1]", "ERR t.conf:1:4: an array element is missing before ','");
    check("a [1}", "ERR t.conf:1:5: expected ',' or ']' after an array element, found '}'");
    check("a 1\n}\nb 2", "ERR t.conf:2:1: '}' closes nothing: remove it or look for a missing '{'");
    check("a {\n b 1\n", "ERR t.conf:1:3: '{' is never closed: add '}'");
    check("a [\n 1\n", "ERR t.conf:1:3: '[' is never closed: add ']'");
    check("a 'x", "ERR t.conf:1:3: the string is never closed: add '");
    check("a \"x", "ERR t.conf:1:3: the string is never closed: add \"");
    check(
        "a (\nx )\n",
        "ERR t.conf:1:3: the block is never closed: end it with ')' on a line of its own",
    );
    check(
        r#"a "\q""#,
        "ERR t.conf:1:4: unknown escape 'q': use \\xXX, \\t, \\n, \\r, \\\" or \\\\, or single quotes",
    );
    check(r#"a "\x4""#, "ERR t.conf:1:4: expected two hexadecimal digits after \\x");
    check(r#"a "\xff""#, "ERR t.conf:1:3: the escapes of this string do not make valid UTF-8");
    check(
        "a 9223372036854775808",
        "ERR t.conf:1:3: integer '9223372036854775808' is out of range: the largest is 9223372036854775807",
    );
    check(
        "a 10e",
        "ERR t.conf:1:3: integer '10e' is out of range: the largest is 9223372036854775807",
    );
    check(
        "ü: $nix",
        "ERR t.conf:1:4: variable 'nix' is not defined: set it above, in this or an enclosing map, or in the environment (a string that begins with '$' needs quotes)",
    );
    check("a $LOOP", "ERR t.conf:1:3: variable 'LOOP' refers to itself");
    check(
        "a $TWO",
        "ERR t.conf:1:3: environment variable 'TWO' does not hold one value (expected the end of the value of 'TWO' (a new line, ',' or ';'), found 'b': a value with spaces or separators needs quotes): quote it",
    );
    check(
        "a $EMPTY",
        "ERR t.conf:1:3: environment variable 'EMPTY' does not hold one value (key 'EMPTY' has no value: write it on the same line (\"\" for an empty string)): quote it",
    );
}

#[test]
fn nesting_and_growth_are_bounded() {
    let deep = format!("a {}{}", "[".repeat(65), "]".repeat(65));
    check(&deep, "ERR t.conf:1:67: maps and arrays nest deeper than 64");
    let fine = format!("a {}{}", "[".repeat(64), "]".repeat(64));
    assert!(parse("t", &fine, &mut NoLoader).is_ok());

    let mut chain = "v0 [1]\n".to_owned();
    (1..100).for_each(|i| writeln!(chain, "v{i} [$v{}]", i - 1).unwrap());
    let e = parse("t", &chain, &mut NoLoader).unwrap_err();
    assert_eq!(e.kind, SyntaxErrorKind::TooDeep);

    let mut bomb = "v0 [1,1,1,1,1,1,1,1,1,1]\n".to_owned();
    (1..20).for_each(|i| {
        let refs = vec![format!("$v{}", i - 1); 10].join(",");
        writeln!(bomb, "v{i} [{refs}]").unwrap();
    });
    let e = parse("t", &bomb, &mut NoLoader).unwrap_err();
    assert_eq!(e.kind, SyntaxErrorKind::TooLarge);
}

#[test]
fn durations_and_sizes() {
    let ns = |text| parse_duration_ns(text).map_err(|e| e.to_string());
    assert_eq!(ns("1h30m"), Ok(5_400_000_000_000));
    assert_eq!(ns("-1.5s"), Ok(-1_500_000_000));
    assert_eq!(ns(".5ms"), Ok(500_000));
    assert_eq!(ns("2us3ns"), Ok(2_003));
    assert_eq!(ns("1µs"), Ok(1_000));
    assert_eq!(ns("0"), Ok(0));
    assert_eq!(
        ns("10"),
        Err("'10' lacks a unit: write such as \"10s\" (ns, us, ms, s, m, h)".into())
    );
    assert_eq!(ns("2d"), Err("unknown unit 'd' in '2d': use ns, us, ms, s, m or h".into()));
    assert_eq!(
        ns("x"),
        Err("'x' is not a duration: write such as \"10s\", \"1h30m\" or \"250ms\"".into())
    );
    assert_eq!(
        ns(""),
        Err("'' is not a duration: write such as \"10s\", \"1h30m\" or \"250ms\"".into())
    );
    assert_eq!(
        ns("300000h500000h9000000h"),
        Err("'300000h500000h9000000h' is too long: the longest duration is about 292 years".into())
    );

    let size = |text| parse_size(text).map_err(|e| e.to_string());
    assert_eq!(size("10G"), Ok(10 << 30));
    assert_eq!(size("1k"), Ok(1024));
    assert_eq!(size("5"), Ok(5));
    assert_eq!(size("-1"), Ok(-1));
    assert_eq!(size(""), Ok(0));
    assert_eq!(
        size("G"),
        Err("'G' is not a size: write such as 10GB, or \"10G\" for 10 GiB".into())
    );
    assert_eq!(size("9999999999T"), Err("size '9999999999T' is out of range".into()));
}

/// A small generator of texts that are nearly configurations; the seed makes failures repeatable.
struct Babble(u64);

impl Babble {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }

    fn text(&mut self) -> String {
        const PIECES: &[&str] = &[
            "a",
            "b",
            "include ",
            "users.conf",
            "$a",
            "$PORT",
            "$",
            "{",
            "}",
            "[",
            "]",
            "(",
            ")",
            "\n",
            "\n)\n",
            " ",
            "\t",
            "=",
            ":",
            ",",
            ";",
            "'",
            "\"",
            "\\",
            "\\x4",
            "\\t",
            "#",
            "//",
            "1",
            "-",
            "1.5",
            "9999999999999999999",
            "10k",
            "true",
            "2026-01-02T03:04:05Z",
            "ü",
            "€",
            "\u{feff}",
            "\r\n",
            "\0",
            "127.0.0.1:4222",
            "$2a$",
            "0.",
            "1e400.5",
            "{{",
            "}}",
        ];
        let pieces = self.next(40);
        (0..pieces).map(|_| PIECES[self.next(PIECES.len())]).collect()
    }
}

#[test]
fn never_panics_on_nonsense() {
    let mut fake = Fake::default();
    fake.files.insert("users.conf", "users = [a, b");
    fake.env.insert("PORT", "{ x: [1");
    for seed in 1..30_000_u64 {
        let text = Babble(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)).text();
        let first = outcome(&mut fake, &text);
        assert!(!first.is_empty() || text.len() < 1000, "{text:?}");
    }
}

#[test]
fn a_cut_configuration_never_panics() {
    let text = "a { b: [1, 'x', \"y\\x41\"], include 'users.conf' }\np $2a$11$ooo\nq (\nz\n)\nr $a";
    for cut in (0..=text.len()).filter(|&i| text.is_char_boundary(i)) {
        let mut fake = Fake::default();
        fake.files.insert("users.conf", "users = [a, b]");
        let _ = outcome(&mut fake, &text[..cut]);
    }
}
