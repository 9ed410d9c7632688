//! The view on a terminal: charts above, tables that are scrolled below, and a page about the keys.

use crate::chart::History;
use crate::error::CliError;
use crate::screen::{Key, Screen};

use super::sample::{Rates, Sampler};
use super::{Order, TopArgs, view};

/// Window of a terminal that does not tell.
const DEFAULT_WINDOW: (usize, usize) = (80, 24);

const KEYS: &str = "\
Keys

  q, Esc, Ctrl-C        end
  s                     sort by something else: rate, messages, bytes, subscriptions, name
  r                     turn the order round
  j, k, arrows          scroll by a line
  space, b, PgDn, PgUp  scroll by a page
  g, Home               back to the first line
  ?, h                  show this, or go back

Rates are those of the last interval; charts show the intervals before it, the newest to the right.
";

/// What is on the screen.
#[derive(Debug)]
struct State {
    order: Order,
    reverse: bool,
    shows_keys: bool,
    /// Lines that are scrolled past.
    offset: usize,
    charts: Charts,
}

/// Rates of all streams, and of all servers.
#[derive(Debug, Default)]
struct Charts {
    stored: History,
    received: History,
    sent: History,
}

impl Charts {
    fn add(&mut self, rates: &Rates) {
        self.stored.push(rates.streams.iter().map(|row| row.in_rate).sum());
        self.received.push(rates.servers.iter().map(|row| row.in_rate).sum());
        self.sent.push(rates.servers.iter().map(|row| row.out_rate).sum());
    }

    fn draw(&self, columns: usize, has_servers: bool) -> String {
        let width = columns.saturating_sub(40).clamp(10, 120);
        let line = |name: &str, chart: &History| {
            let most = view::rate(chart.max());
            format!("{name:>10}  {}  at most {most}/s\n", chart.columns(width))
        };
        let mut out = line("stored", &self.stored);
        if has_servers {
            out += &line("received", &self.received);
            out += &line("sent", &self.sent);
        }
        out
    }
}

/// Redraws until the user has seen enough.
pub fn watch(args: &TopArgs, sampler: &mut Sampler, screen: &mut Screen) -> Result<(), CliError> {
    let mut state = State {
        order: args.sort,
        reverse: false,
        shows_keys: false,
        offset: 0,
        charts: Charts::default(),
    };
    let mut before = sampler.take()?;
    let mut rates = before.since(&before);
    let mut number = 0;
    loop {
        let (columns, rows) = screen.size().unwrap_or(DEFAULT_WINDOW);
        screen.draw(&page(&mut state, &rates, args.conns, columns, rows))?;
        match screen.wait(args.interval)? {
            Some(Key::Quit) => return Ok(()),
            Some(key) => press(&mut state, key, rows),
            None => {
                number += 1;
                if args.max_refresh.is_some_and(|most| number > most) {
                    return Ok(());
                }
                let now = sampler.take()?;
                rates = now.since(&before);
                state.charts.add(&rates);
                before = now;
            }
        }
    }
}

fn press(state: &mut State, key: Key, rows: usize) {
    let page = i32::try_from(rows / 2).unwrap_or(i32::MAX).max(1);
    let scrolled = |lines: i32| state.offset.saturating_add_signed(lines as isize);
    match key {
        Key::Order => state.order = state.order.next(),
        Key::Reverse => state.reverse = !state.reverse,
        Key::Help => state.shows_keys = !state.shows_keys,
        Key::Scroll(lines) => state.offset = scrolled(lines),
        Key::Page(pages) => state.offset = scrolled(pages.saturating_mul(page)),
        Key::Top => state.offset = 0,
        Key::Quit | Key::Redraw => {}
    }
}

/// The text of the whole window. What is scrolled too far comes back to the last line.
fn page(
    state: &mut State,
    rates: &Rates,
    most: Option<usize>,
    columns: usize,
    rows: usize,
) -> String {
    if state.shows_keys {
        return KEYS.to_owned();
    }
    let direction = if state.reverse { "least" } else { "most" };
    let order = format!("{:?}", state.order).to_lowercase();
    let head = format!("sorted by {order}, {direction} first; ? keys, q end\n")
        + &state.charts.draw(columns, rates.has_servers);
    let body = view::render(rates, state.order, state.reverse, most.unwrap_or(usize::MAX));
    let lines: Vec<&str> = body.lines().collect();
    let room = rows.saturating_sub(head.lines().count()).max(1);
    state.offset = state.offset.min(lines.len().saturating_sub(room));
    let shown: Vec<&str> = lines.into_iter().skip(state.offset).take(room).collect();
    head + &shown.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::sample::Row;
    use serde_json::{Value, json};

    fn many_streams() -> Rates {
        let row = |number: u32| {
            let facts = json!({ "config": { "name": format!("S{number:03}") }, "state": {} });
            Row { facts, in_rate: 1.0, ..Row::default() }
        };
        Rates {
            account: Value::Null,
            servers: Vec::new(),
            streams: (0..100).map(row).collect(),
            connections: Vec::new(),
            has_servers: false,
        }
    }

    #[test]
    fn what_does_not_fit_is_scrolled_to() {
        let rates = many_streams();
        let mut state = State {
            order: Order::Name,
            reverse: false,
            shows_keys: false,
            offset: 0,
            charts: Charts::default(),
        };
        state.charts.add(&rates);
        let first = page(&mut state, &rates, None, 80, 20);
        assert!(first.contains("S000") && !first.contains("S099"), "{first}");
        assert!(first.contains('█') && first.contains("100/s"), "{first}");
        press(&mut state, Key::Scroll(1), 20);
        assert_eq!(state.offset, 1);
        press(&mut state, Key::Page(1), 20);
        assert_eq!(state.offset, 11);
        (0..50).for_each(|_| press(&mut state, Key::Page(1), 20));
        let last = page(&mut state, &rates, None, 80, 20);
        assert!(last.contains("S099") && last.lines().count() <= 20, "{last}");
        press(&mut state, Key::Top, 20);
        assert!(page(&mut state, &rates, None, 80, 20).contains("S000"));
        press(&mut state, Key::Help, 20);
        assert!(page(&mut state, &rates, None, 80, 20).contains("turn the order round"));
    }
}
