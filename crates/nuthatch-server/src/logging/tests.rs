//! Log lines and rotation.

use super::*;

#[test]
fn lines_have_the_incumbents_shape() {
    let options = LogOptions { logtime_utc: true, ..LogOptions::default() };
    let line = Line::new(&options, Level::Info, format_args!("Server is ready")).0;
    let rest = line.strip_prefix(&format!("[{}] ", std::process::id())).unwrap();
    let (stamp, text) = rest.split_at("2026/11/21 21:12:04.123456".len());
    assert_eq!(text, " [INF] Server is ready\n");
    let shape: String = stamp.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "0000/00/00 00:00:00.000000");
    let options = LogOptions { logtime: false, ..LogOptions::default() };
    let line = Line::new(&options, Level::Warn, format_args!("x")).0;
    assert_eq!(line, format!("[{}] [WRN] x\n", std::process::id()));
}

#[test]
fn rotates_by_size_and_keeps_a_number() {
    let directory = std::env::temp_dir().join(format!("nuthatch-log-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let options = LogOptions {
        file: Some(directory.join("a.log")),
        file_size_limit_bytes: Some(300),
        file_max_count: Some(3),
        ..LogOptions::default()
    };
    let logger = Logger::new(&options).unwrap();
    for n in 0..50 {
        logger.info(format_args!("line {n} {}", "x".repeat(50)));
    }
    let count = std::fs::read_dir(&directory).unwrap().count();
    let current = std::fs::read_to_string(directory.join("a.log")).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(count, 3);
    assert!(current.contains("Rotated log, backup saved as"));
}

#[test]
fn a_trace_shows_headers_alone_or_all_up_to_the_limit() {
    let logger = Logger::silent();
    assert_eq!(logger.traced(b"NATS/1.0", b"NATS/1.0body"), b"NATS/1.0body");
    let options = LogOptions { max_traced_msg_bytes: Some(6), ..LogOptions::default() };
    logger.reconfigure(&options).unwrap();
    assert_eq!(logger.traced(b"NATS/1.0", b"NATS/1.0body"), b"NATS/1");
    logger.reconfigure(&LogOptions { trace_headers: true, ..LogOptions::default() }).unwrap();
    assert_eq!(logger.traced(b"NATS/1.0", b"NATS/1.0body"), b"NATS/1.0");
}

#[test]
fn what_strangers_write_stays_one_line_and_steers_no_terminal() {
    let options = LogOptions { logtime: false, ..LogOptions::default() };
    let told = |text: &str| {
        let line = Line::new(&options, Level::Error, format_args!("x - {text}!")).0;
        line.split_once(" [ERR] x - ").unwrap().1.to_owned()
    };
    assert_eq!(told("a\n[1] [INF] forged\r\n"), "a\\n[1] [INF] forged\\r\\n!\n");
    assert_eq!(
        told("\x1b[2Jä\u{9b}\u{2028}\u{202e}\0"),
        "\\u{1b}[2Jä\\u{9b}\\u{2028}\\u{202e}\\u{0}!\n"
    );
    assert_eq!(told("größer, 大"), "größer, 大!\n");
}

#[test]
fn a_line_of_json_is_one_object_whatever_is_said() {
    let options = LogOptions { format: LogFormat::Json, ..LogOptions::default() };
    let said = "a \"quote\"\n[1] [INF] forged\x1b[2J\u{9b}\u{2028}\u{202e}, größer";
    let line = Line::new(&options, Level::Warn, format_args!("{said}")).0;
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(line.ends_with("}\n") && !line.trim_end().contains(steers), "{line}");
    let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&line).unwrap();
    assert_eq!(fields["message"], said);
    assert_eq!(fields["level"], "warn");
    assert_eq!(fields["pid"], std::process::id());
    let time = fields["time"].as_str().unwrap();
    let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "0000-00-00T00:00:00.000000Z");
    let without = LogOptions { logtime: false, ..options };
    let line = Line::new(&without, Level::Info, format_args!("x")).0;
    assert_eq!(
        line,
        format!("{{\"level\":\"info\",\"pid\":{},\"message\":\"x\"}}\n", std::process::id())
    );
}
