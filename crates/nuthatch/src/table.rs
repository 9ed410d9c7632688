//! Tables for people: as wide as their content, or wrapped to the terminal.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, TableComponent};

use crate::terminal::{Look, printable};

/// Columns between two cells.
const GAP: usize = 2;
/// A column of text is not made narrower than this; a terminal too narrow for it gets long lines.
const LEAST_TEXT_WIDTH: usize = 8;

/// A table of left-aligned columns; columns of numbers are aligned to the right.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column titles.
    pub fn new(titles: &[&str]) -> Self {
        Self { rows: vec![titles.iter().map(|title| (*title).to_owned()).collect()] }
    }

    /// Adds a row with as many cells as there are titles.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| printable(cell)).collect());
    }

    /// The finished table for the standard output, with a line under the titles.
    pub fn render(&self) -> String {
        self.render_for(Look::of_stdout())
    }

    /// The finished table.
    pub fn render_for(&self, look: Look) -> String {
        let columns = self.rows[0].len();
        let numeric: Vec<bool> = (0..columns).map(|column| self.is_numeric(column)).collect();
        let mut table = comfy_table::Table::new();
        table.load_preset(comfy_table::presets::NOTHING);
        table.set_style(TableComponent::HeaderLines, '─');
        table.set_style(TableComponent::VerticalLines, ' ');
        table.set_style(TableComponent::MiddleHeaderIntersections, ' ');
        table.set_header(&self.rows[0]);
        table.add_rows(&self.rows[1..]);
        let width = look.width.map(usize::from).filter(|width| self.fits(*width, &numeric));
        table.set_content_arrangement(match width {
            Some(_) => ContentArrangement::Dynamic,
            None => ContentArrangement::Disabled,
        });
        // The padding behind the last column is cut off again.
        width.map(|width| table.set_width(u16::try_from(width + 1).unwrap_or(u16::MAX)));
        for (column, is_number) in table.column_iter_mut().zip(&numeric) {
            column.set_padding((0, 1));
            if *is_number {
                column.set_cell_alignment(CellAlignment::Right);
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        finish(&table.to_string(), look)
    }

    /// True if a terminal of this width has room for the numbers and some for each text.
    fn fits(&self, width: usize, numeric: &[bool]) -> bool {
        let least = |(column, is_number): (usize, &bool)| {
            let longest = self.cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0);
            if *is_number { longest } else { longest.min(LEAST_TEXT_WIDTH) }
        };
        let gaps = numeric.len().saturating_sub(1) * GAP;
        numeric.iter().enumerate().map(least).sum::<usize>() + gaps <= width
    }

    fn cells(&self, column: usize) -> impl Iterator<Item = &String> {
        self.rows.iter().filter_map(move |row| row.get(column))
    }

    fn is_numeric(&self, column: usize) -> bool {
        let starts_with_digit = |cell: &String| cell.starts_with(|c: char| c.is_ascii_digit());
        self.cells(column).skip(1).all(|cell| starts_with_digit(cell) && !cell.contains(['-', ':']))
    }
}

/// Cuts what is behind the last cell of a line, and marks titles and the line below them.
fn finish(text: &str, look: Look) -> String {
    let mut out = String::with_capacity(text.len());
    let mut is_title = true;
    for line in text.lines() {
        let line = line.trim_end();
        if is_title && line.starts_with('─') {
            is_title = false;
            // As wide as the cells, not as their padding.
            let ruler = line.replace("─ ", "  ");
            let ruler = ruler.strip_suffix('─').unwrap_or(&ruler);
            out.push_str(&look.faint(ruler));
        } else if is_title {
            out.push_str(&look.title(line));
        } else {
            out.push_str(line);
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_rows() -> Table {
        let mut table = Table::new(&["Name", "Messages"]);
        table.row(vec!["ORDERS".into(), "5".into()]);
        table.row(vec!["A".into(), "1,000".into()]);
        table
    }

    #[test]
    fn as_wide_as_the_content() {
        let expected = "Name    Messages\n──────  ────────\nORDERS         5\nA          1,000\n";
        assert_eq!(two_rows().render_for(Look::PLAIN), expected);
    }

    #[test]
    fn titles_are_marked_on_a_terminal() {
        let text = two_rows().render_for(Look { width: Some(80), is_marked: true });
        assert!(
            text.starts_with("\x1b[1mName    Messages\x1b[0m\n\x1b[2m──────  ────────"),
            "{text:?}"
        );
        assert_eq!(text.matches('\x1b').count(), 4, "{text:?}");
    }

    #[test]
    fn long_texts_are_wrapped_and_numbers_are_not() {
        let mut table = Table::new(&["Name", "Messages", "Words"]);
        let words = "many words that do not fit beside the numbers of a narrow terminal";
        table.row(vec!["ORDERS".into(), "1,000,000".into(), words.into()]);
        let text = table.render_for(Look { width: Some(40), is_marked: false });
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        assert!(text.contains("1,000,000") && text.lines().count() > 4, "{text}");
        let long: Vec<&str> = text.split_whitespace().collect();
        assert!(words.split(' ').all(|word| long.contains(&word)), "{text}");
        // No room for anything: long lines rather than one letter below the other.
        let narrow = table.render_for(Look { width: Some(20), is_marked: false });
        assert_eq!(narrow, table.render_for(Look::PLAIN));
    }
}
