//! Log lines in the shape of nats-server, `[pid] 2026/11/21 21:12:04.123456 [INF] text`, or as JSON.

use crate::options::{LogFormat, LogOptions};
use crate::private_files::{LOG_MODE, permit};
use parking_lot::Mutex;
use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

mod json;

/// Kind of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// `[INF]`
    Info,
    /// `[WRN]`
    Warn,
    /// `[ERR]`
    Error,
    /// `[FTL]`
    Fatal,
    /// `[DBG]`
    Debug,
    /// `[TRC]`
    Trace,
}

impl Level {
    const fn label(self) -> &'static str {
        match self {
            Self::Info => "[INF]",
            Self::Warn => "[WRN]",
            Self::Error => "[ERR]",
            Self::Fatal => "[FTL]",
            Self::Debug => "[DBG]",
            Self::Trace => "[TRC]",
        }
    }

    /// Its name in JSON.
    const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Fatal => "fatal",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

enum Target {
    Stderr,
    File {
        file: File,
        path: PathBuf,
        size: u64,
    },
    /// For tests.
    Silent,
}

/// Writes log lines; shared by all threads.
pub struct Logger {
    debug: AtomicBool,
    trace: AtomicBool,
    state: Mutex<State>,
}

struct State {
    options: LogOptions,
    target: Target,
}

impl Logger {
    /// A logger as configured.
    ///
    /// # Errors
    /// The log file cannot be opened.
    pub fn new(options: &LogOptions) -> io::Result<Self> {
        let target = open_target(options)?;
        Ok(Self::with_target(options, target))
    }

    /// A logger that writes nothing.
    #[must_use]
    pub fn silent() -> Self {
        Self::with_target(&LogOptions::default(), Target::Silent)
    }

    fn with_target(options: &LogOptions, target: Target) -> Self {
        Self {
            debug: AtomicBool::new(options.debug),
            trace: AtomicBool::new(options.trace),
            state: Mutex::new(State { options: options.clone(), target }),
        }
    }

    /// Adopts changed options.
    ///
    /// # Errors
    /// The new log file cannot be opened; the old one stays in use.
    pub fn reconfigure(&self, options: &LogOptions) -> io::Result<()> {
        let mut state = self.state.lock();
        if options.file != state.options.file {
            state.target = open_target(options)?;
        }
        state.options = options.clone();
        self.debug.store(options.debug, Ordering::Relaxed);
        self.trace.store(options.trace, Ordering::Relaxed);
        Ok(())
    }

    /// Opens the log file anew (after it has been moved away).
    ///
    /// # Errors
    /// It cannot be opened; the old one stays in use.
    pub fn reopen(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.options.file.is_some() {
            state.target = open_target(&state.options)?;
        }
        Ok(())
    }

    /// True if debug lines are written.
    pub fn is_debug(&self) -> bool {
        self.debug.load(Ordering::Relaxed)
    }

    /// True if trace lines are written.
    pub fn is_trace(&self) -> bool {
        self.trace.load(Ordering::Relaxed)
    }

    /// The part of a published message that a trace shows: its headers alone with `trace_headers`,
    /// else all of it, cut at `max_traced_msg_len`.
    pub fn traced<'a>(&self, headers: &'a [u8], message: &'a [u8]) -> &'a [u8] {
        let state = self.state.lock();
        let shown = if state.options.trace_headers { headers } else { message };
        let limit = state.options.max_traced_msg_bytes.unwrap_or(usize::MAX);
        &shown[..shown.len().min(limit)]
    }

    /// True if the system account's connections are traced too.
    pub fn traces_system(&self) -> bool {
        self.state.lock().options.trace_verbose
    }

    /// Writes one line; characters that would end it or steer a terminal are escaped. A failure to
    /// write is ignored: there is no better place to report it.
    pub fn log(&self, level: Level, text: fmt::Arguments<'_>) {
        match level {
            Level::Debug if !self.is_debug() => return,
            Level::Trace if !self.is_trace() => return,
            _ => {}
        }
        let mut state = self.state.lock();
        let line = Line::new(&state.options, level, text);
        let _ = state.write(&line);
    }

    /// Writes an `[INF]` line.
    pub fn info(&self, text: fmt::Arguments<'_>) {
        self.log(Level::Info, text);
    }

    /// Writes a `[WRN]` line.
    pub fn warn(&self, text: fmt::Arguments<'_>) {
        self.log(Level::Warn, text);
    }

    /// Writes an `[ERR]` line.
    pub fn error(&self, text: fmt::Arguments<'_>) {
        self.log(Level::Error, text);
    }

    /// Writes a `[DBG]` line.
    pub fn debug(&self, text: fmt::Arguments<'_>) {
        self.log(Level::Debug, text);
    }
}

impl State {
    fn write(&mut self, line: &Line) -> io::Result<()> {
        let line = line.0.as_bytes();
        match &mut self.target {
            Target::Silent => Ok(()),
            Target::Stderr => io::stderr().lock().write_all(line),
            Target::File { file, size, .. } => {
                file.write_all(line)?;
                *size += line.len() as u64;
                let limit = self.options.file_size_limit_bytes;
                if limit.is_some_and(|limit| *size > limit) {
                    self.rotate()?;
                }
                Ok(())
            }
        }
    }

    /// Moves the full file aside as `<file>.<date>` and goes on in a new one.
    fn rotate(&mut self) -> io::Result<()> {
        let Target::File { path, .. } = &self.target else { return Ok(()) };
        let path = path.clone();
        let stamp = Calendar::now(self.options.logtime_utc);
        let mut name = path.as_os_str().to_owned();
        name.push(stamp.as_suffix());
        let backup = PathBuf::from(name);
        std::fs::rename(&path, &backup)?;
        self.target = open_target(&self.options)?;
        let text = format_args!("Rotated log, backup saved as \"{}\"", backup.display());
        let line = Line::new(&self.options, Level::Info, text).0;
        if let Target::File { file, size, .. } = &mut self.target {
            file.write_all(line.as_bytes())?;
            *size += line.len() as u64;
        }
        if let Some(count) = self.options.file_max_count {
            remove_old(&path, (count as usize).saturating_sub(1))?;
        }
        Ok(())
    }
}

fn open_target(options: &LogOptions) -> io::Result<Target> {
    let Some(path) = &options.file else { return Ok(Target::Stderr) };
    let is_new = !path.exists();
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    if is_new {
        permit(&file, LOG_MODE)?;
    }
    let size = file.metadata()?.len();
    Ok(Target::File { file, path: path.clone(), size })
}

/// Keeps the newest `keep` rotated files beside `path`. Their names sort by age.
fn remove_old(path: &Path, keep: usize) -> io::Result<()> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Ok(()) };
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut backups = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let file_name = entry.file_name();
        let is_backup = file_name.to_str().is_some_and(|other| {
            let rest = other.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
            rest.is_some_and(|rest| rest.len() >= 26 && rest.as_bytes()[4] == b'.')
        });
        if is_backup {
            backups.push(entry.path());
        }
    }
    backups.sort();
    let excess = backups.len().saturating_sub(keep);
    backups[..excess].iter().try_for_each(std::fs::remove_file)
}

/// A line of the log: one line, whatever is written into it. Much of what is logged comes from
/// strangers (subjects, names, tokens, greetings), so that nothing in it may begin a line of its own
/// or steer a terminal.
struct Line(String);

impl Line {
    fn new(options: &LogOptions, level: Level, text: fmt::Arguments<'_>) -> Self {
        if options.format == LogFormat::Json {
            return Self(json::line(options, level, &text.to_string()));
        }
        let (pid, label) = (std::process::id(), level.label());
        let stamp = options.logtime.then(|| Calendar::now(options.logtime_utc));
        let mut line = Self(String::new());
        // A type whose `Display` fails has written what it could.
        let _ = match stamp {
            Some(now) => write!(line, "[{pid}] {now} {label} {text}"),
            None => write!(line, "[{pid}] {label} {text}"),
        };
        line.0.push('\n');
        line
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(steers) {
            match part.chars().next_back().filter(|&last| steers(last)) {
                Some(last) => {
                    self.0.push_str(&part[..part.len() - last.len_utf8()]);
                    self.0.extend(last.escape_default());
                }
                None => self.0.push_str(part),
            }
        }
        Ok(())
    }
}

/// True if a reader of the log would not see this character but what it does: controls, further ends
/// of lines, and what turns the direction of writing.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{061c}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A moment in the calendar of the log: local time or UTC.
struct Calendar {
    year: i32,
    month: i32,
    day: i32,
    hour: i32,
    minute: i32,
    second: i32,
    nanos: u32,
}

impl Calendar {
    fn now(utc: bool) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = since.as_secs() as _;
        // SAFETY: `tm` is plain data, and both functions only write to the one we own.
        let tm = unsafe {
            let mut tm: libc::tm = std::mem::zeroed();
            if utc {
                libc::gmtime_r(&raw const seconds, &raw mut tm);
            } else {
                libc::localtime_r(&raw const seconds, &raw mut tm);
            }
            tm
        };
        Self {
            year: tm.tm_year + 1900,
            month: tm.tm_mon + 1,
            day: tm.tm_mday,
            hour: tm.tm_hour,
            minute: tm.tm_min,
            second: tm.tm_sec,
            nanos: since.subsec_nanos(),
        }
    }

    /// `2026-11-21T21:12:04.123456Z`, of a moment in UTC.
    fn as_rfc3339(&self) -> String {
        let Self { year, month, day, hour, minute, second, nanos } = self;
        let micros = nanos / 1000;
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
    }

    /// `.2026.11.21.21.12.04.123456789`, the suffix of rotated files.
    fn as_suffix(&self) -> String {
        let Self { year, month, day, hour, minute, second, nanos } = self;
        format!(".{year:04}.{month:02}.{day:02}.{hour:02}.{minute:02}.{second:02}.{nanos:09}")
    }
}

impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { year, month, day, hour, minute, second, nanos } = self;
        let micros = nanos / 1000;
        write!(f, "{year:04}/{month:02}/{day:02} {hour:02}:{minute:02}:{second:02}.{micros:06}")
    }
}

#[cfg(test)]
mod tests;
