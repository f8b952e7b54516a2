//! Rows that can be sorted and filtered, with as many columns as fit.

use std::cmp::Ordering;

use crate::table::plain;

/// Columns between two columns.
const GAP: usize = 2;

/// A column.
pub struct Column {
    pub title: &'static str,
    /// Aligned right, and sorted from the largest.
    pub number: bool,
    /// Columns of the highest rank are dropped first if not all fit.
    pub rank: u8,
}

/// A field, with its text and its sort value.
pub struct GridCell {
    pub text: String,
    number: Option<f64>,
}

impl GridCell {
    pub fn word(text: &str) -> Self {
        Self {
            text: plain(text),
            number: None,
        }
    }

    /// A number and its text; `-` if unknown.
    pub fn number(number: Option<f64>, show: impl Fn(f64) -> String) -> Self {
        Self {
            text: number.map_or_else(|| "-".to_owned(), show),
            number: Some(number.unwrap_or(-1.0)),
        }
    }

    fn compare(&self, other: &Self) -> Ordering {
        match (self.number, other.number) {
            (Some(one), Some(other)) => one.total_cmp(&other),
            _ => self.text.cmp(&other.text),
        }
    }
}

/// One row.
pub struct Row {
    pub cells: Vec<GridCell>,
    /// A warning is shown.
    pub warns: bool,
}

/// The whole table.
pub struct Grid {
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
    /// The default sort column.
    pub usual: usize,
    /// The text without rows.
    pub empty: &'static str,
}

impl Grid {
    /// Keeps only rows with the word in some field, ignoring case.
    pub fn filter(&mut self, word: &str) {
        let word = word.to_lowercase();
        let has = |cell: &GridCell| cell.text.to_lowercase().contains(&word);
        self.rows
            .retain(|row| word.is_empty() || row.cells.iter().any(has));
    }

    /// Sorts rows: words ascending, numbers descending, or reversed. The sort is stable. Returns
    /// the column.
    pub fn sort(&mut self, column: usize, round: bool) -> usize {
        let column = if column < self.columns.len() {
            column
        } else {
            self.usual
        };
        let descends = self.columns[column].number != round;
        self.rows.sort_by(|one, other| {
            let (one, other) = (&one.cells[column], &other.cells[column]);
            match descends {
                true => other.compare(one),
                false => one.compare(other),
            }
        });
        column
    }

    /// The columns that fit, each with its width. The first is always included.
    pub fn fit(&self, room: usize) -> Vec<(usize, usize)> {
        let mut fitting: Vec<(usize, usize)> = (0..self.columns.len())
            .map(|column| (column, self.width(column)))
            .collect();
        let total = |fitting: &[(usize, usize)]| {
            let widths: usize = fitting.iter().map(|(_, width)| width).sum();
            widths + GAP * fitting.len().saturating_sub(1)
        };
        while total(&fitting) > room && fitting.len() > 1 {
            let least = (1..fitting.len()).rev().max_by_key(|&at| {
                // Among equal ranks the rightmost is dropped first.
                (self.columns[fitting[at].0].rank, at)
            });
            match least {
                Some(at) => drop(fitting.remove(at)),
                None => break,
            }
        }
        if let [only] = fitting.as_mut_slice() {
            only.1 = only.1.min(room);
        }
        fitting
    }

    /// A line of some fields.
    pub fn line<'a>(
        &self,
        fitting: &[(usize, usize)],
        field: impl Fn(usize) -> &'a str,
    ) -> Vec<(usize, String)> {
        let pad = |&(column, width): &(usize, usize)| {
            let text: String = field(column).chars().take(width).collect();
            let padded = match self.columns[column].number {
                true => format!("{text:>width$}"),
                false => format!("{text:<width$}"),
            };
            (column, padded)
        };
        fitting.iter().map(pad).collect()
    }

    fn width(&self, column: usize) -> usize {
        let cells = self
            .rows
            .iter()
            .map(|row| row.cells[column].text.chars().count());
        let title = self.columns[column].title.chars().count();
        cells.max().unwrap_or(0).max(title)
    }
}

/// The space between two columns.
pub fn gap() -> String {
    " ".repeat(GAP)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        let column = |title, number, rank| Column {
            title,
            number,
            rank,
        };
        let row = |name: &str, count: Option<f64>| Row {
            cells: vec![
                GridCell::word(name),
                GridCell::number(count, |count| format!("{count:.0}")),
                GridCell::word("x"),
            ],
            warns: false,
        };
        Grid {
            columns: vec![
                column("NAME", false, 0),
                column("N", true, 1),
                column("LEAST", false, 2),
            ],
            rows: vec![
                row("beta", Some(10.0)),
                row("Alpha", Some(9.0)),
                row("gamma", None),
            ],
            usual: 1,
            empty: "none",
        }
    }

    fn names(grid: &Grid) -> Vec<&str> {
        grid.rows
            .iter()
            .map(|row| row.cells[0].text.as_str())
            .collect()
    }

    #[test]
    fn rows_are_ordered_by_words_and_numbers() {
        let mut grid = grid();
        assert_eq!(grid.sort(usize::MAX, false), 1);
        assert_eq!(names(&grid), ["beta", "Alpha", "gamma"]);
        grid.sort(1, true);
        assert_eq!(names(&grid), ["gamma", "Alpha", "beta"]);
        grid.sort(0, false);
        assert_eq!(names(&grid), ["Alpha", "beta", "gamma"]);
    }

    #[test]
    fn rows_without_the_word_are_left_out() {
        let mut grid = grid();
        grid.filter("ALP");
        assert_eq!(names(&grid), ["Alpha"]);
        grid.filter("nothing");
        assert!(names(&grid).is_empty());
    }

    #[test]
    fn columns_give_way_by_rank() {
        let grid = grid();
        let shown = |room| {
            grid.fit(room)
                .iter()
                .map(|(column, _)| *column)
                .collect::<Vec<_>>()
        };
        assert_eq!(shown(16), [0, 1, 2]);
        assert_eq!(shown(15), [0, 1]);
        assert_eq!(shown(8), [0]);
        assert_eq!(grid.fit(3), [(0, 3)]);
        let line = grid.line(&grid.fit(15), |column| &grid.rows[1].cells[column].text);
        assert_eq!(line, [(0, "Alpha".to_owned()), (1, " 9".to_owned())]);
    }
}
