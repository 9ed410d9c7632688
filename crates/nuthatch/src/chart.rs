//! Small charts out of characters.

use std::collections::VecDeque;

/// Heights of a column.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Most values that are kept for a chart: terminals are not wider.
const MAX_VALUES: usize = 512;

/// The newest values of something that is measured again and again.
#[derive(Debug, Clone, Default)]
pub struct History {
    values: VecDeque<f64>,
}

impl History {
    /// Adds the newest value.
    pub fn push(&mut self, value: f64) {
        if self.values.len() == MAX_VALUES {
            self.values.pop_front();
        }
        self.values.push_back(value.max(0.0));
    }

    /// The largest value that is kept.
    pub fn max(&self) -> f64 {
        self.values.iter().copied().fold(0.0, f64::max)
    }

    /// The newest values as columns, the newest to the right, as high as their share of the largest.
    pub fn columns(&self, width: usize) -> String {
        let shown = self.values.iter().skip(self.values.len().saturating_sub(width));
        let most = shown.clone().copied().fold(0.0, f64::max);
        let bar = |value: &f64| match most {
            most if most > 0.0 && *value > 0.0 => {
                let height = (value / most * (BARS.len() - 1) as f64).round() as usize;
                BARS[height.min(BARS.len() - 1)]
            }
            _ => ' ',
        };
        let drawn: String = shown.map(bar).collect();
        format!("{drawn:>width$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_shares_of_the_largest() {
        let mut history = History::default();
        assert_eq!(history.columns(3), "   ");
        for value in [9.0, 0.0, 1.0, 4.0, 8.0] {
            history.push(value);
        }
        assert_eq!(history.columns(4), " ▂▅█");
        assert_eq!(history.columns(7), "  █ ▂▄▇");
        assert_eq!(history.max(), 9.0);
        (0..2000).for_each(|_| history.push(1.0));
        assert_eq!(history.values.len(), MAX_VALUES);
    }
}
