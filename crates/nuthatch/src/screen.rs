//! A terminal that is drawn over: its alternate screen, put back when done, whatever happens.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyCode, KeyModifiers, poll, read};
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode, size,
};
use crossterm::{cursor, execute, queue, style};

/// Key pressed by the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// End.
    Quit,
    /// Another order.
    Order,
    /// The other way round.
    Reverse,
    /// Explain the keys, or stop explaining.
    Help,
    /// So many lines further down; up when negative.
    Scroll(i32),
    /// As many lines as the window has further down, or up.
    Page(i32),
    /// Back to the first line.
    Top,
    /// The window has changed.
    Redraw,
}

/// The terminal while it is ours.
#[derive(Debug)]
pub struct Screen {
    open: bool,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// When it cannot be drawn on.
    pub fn open() -> io::Result<Self> {
        enable_raw_mode()?;
        let screen = Self { open: true };
        execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }

    /// Columns and rows of the window; nothing when it does not tell.
    pub fn size(&self) -> Option<(usize, usize)> {
        let (columns, rows) = size().ok()?;
        (columns > 0 && rows > 0).then(|| (usize::from(columns), usize::from(rows)))
    }

    /// Draws the text, cut to the window.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn draw(&mut self, text: &str) -> io::Result<()> {
        let (columns, rows) = size()?;
        let mut out = io::stdout().lock();
        queue!(out, cursor::MoveTo(0, 0))?;
        for (row, line) in text.lines().take(usize::from(rows)).enumerate() {
            let line: String = line.chars().take(usize::from(columns)).collect();
            let row = u16::try_from(row).unwrap_or(u16::MAX);
            let rest = Clear(ClearType::UntilNewLine);
            queue!(out, cursor::MoveTo(0, row), style::Print(line), rest)?;
        }
        if text.lines().count() < usize::from(rows) {
            let row = u16::try_from(text.lines().count()).unwrap_or(u16::MAX);
            queue!(out, cursor::MoveTo(0, row), Clear(ClearType::FromCursorDown))?;
        }
        out.flush()
    }

    /// Waits for a key that means something; nothing when the time is over.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn wait(&mut self, time: Duration) -> io::Result<Option<Key>> {
        let deadline = Instant::now() + time;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if !poll(left)? {
                return Ok(None);
            }
            if let Some(key) = meaning(&read()?) {
                return Ok(Some(key));
            }
        }
    }

    /// Gives the terminal back.
    ///
    /// # Errors
    /// When it is gone.
    pub fn close(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.open, false) {
            execute!(io::stdout(), cursor::Show, LeaveAlternateScreen)?;
            disable_raw_mode()?;
        }
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // On the way out of an error the terminal is put back as far as it goes.
        let _ = self.close();
    }
}

fn meaning(event: &Event) -> Option<Key> {
    let key = match event {
        Event::Key(key) => key,
        Event::Resize(_, _) => return Some(Key::Redraw),
        _ => return None,
    };
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
        KeyCode::Char('s') => Some(Key::Order),
        KeyCode::Char('r') => Some(Key::Reverse),
        KeyCode::Char('?' | 'h') => Some(Key::Help),
        KeyCode::Char('j') | KeyCode::Down => Some(Key::Scroll(1)),
        KeyCode::Char('k') | KeyCode::Up => Some(Key::Scroll(-1)),
        KeyCode::Char(' ') | KeyCode::PageDown => Some(Key::Page(1)),
        KeyCode::Char('b') | KeyCode::PageUp => Some(Key::Page(-1)),
        KeyCode::Char('g') | KeyCode::Home => Some(Key::Top),
        _ => None,
    }
}
