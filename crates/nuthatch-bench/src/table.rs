//! Tables for people, which are Markdown too.

use std::fmt;

/// A table with a head.
#[derive(Debug, Clone)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty one with these columns.
    pub fn new<T: ToString>(columns: &[T]) -> Self {
        Self { rows: vec![columns.iter().map(ToString::to_string).collect()] }
    }

    /// Adds a row. A `|` in a cell would end it, so it is replaced.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.into_iter().map(|cell| cell.replace('|', "¦")).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (number, row) in self.rows.iter().enumerate() {
            for (column, width) in widths.iter().enumerate() {
                let cell = row.get(column).map_or("", String::as_str);
                let pad = width - cell.chars().count();
                // Words left, numbers right, as the first body cell of the column has it.
                let numeric = self
                    .rows
                    .get(1)
                    .and_then(|row| row.get(column))
                    .is_some_and(|cell| number_like(cell));
                match numeric {
                    true => write!(f, "| {:pad$}{cell} ", "")?,
                    false => write!(f, "| {cell}{:pad$} ", "")?,
                }
            }
            writeln!(f, "|")?;
            if number == 0 {
                for width in &widths {
                    write!(f, "|{}", "-".repeat(width + 2))?;
                }
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}

fn number_like(cell: &str) -> bool {
    cell.chars().next().is_some_and(|c| c.is_ascii_digit()) && !cell.contains("bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["what", "n"]);
        table.row(vec!["a|b".into(), "1".into()]);
        table.row(vec!["long one".into(), "1,000".into()]);
        let expected = "| what     |     n |\n|----------|-------|\n| a¦b      |     1 |\n| long one | 1,000 |\n";
        assert_eq!(table.to_string(), expected);
    }
}
