//! Tables of text and numbers.

/// Rows under a heading; numbers aligned right, words left.
pub struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

/// One field.
pub enum Cell {
    /// Aligned left; control characters are shown, not sent to the terminal.
    Word(String),
    /// Aligned right.
    Number(String),
}

impl Table {
    pub fn new(headings: &[&'static str]) -> Self {
        Self {
            headings: headings.to_vec(),
            rows: Vec::new(),
        }
    }

    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// The text; `empty` instead if there are no rows.
    pub fn render(&self, empty: &str) -> String {
        if self.rows.is_empty() {
            return format!("{empty}\n");
        }
        let widths: Vec<usize> = (0..self.headings.len())
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                let widest = cells
                    .map(|cell| cell.text().chars().count())
                    .max()
                    .unwrap_or(0);
                widest.max(self.headings[column].len())
            })
            .collect();
        let right: Vec<bool> = (0..self.headings.len())
            .map(|column| matches!(self.rows[0].get(column), Some(Cell::Number(_))))
            .collect();
        let headings: Vec<&str> = self.headings.clone();
        let mut out = line(&headings, &widths, &right);
        for row in &self.rows {
            let cells: Vec<&str> = row.iter().map(Cell::text).collect();
            out.push_str(&line(&cells, &widths, &right));
        }
        out
    }
}

impl Cell {
    pub fn word(text: &str) -> Self {
        Self::Word(plain(text))
    }

    pub fn number(number: impl std::fmt::Display) -> Self {
        Self::Number(format!("{number}"))
    }

    /// A number that may be unknown.
    pub fn maybe(number: Option<impl ToString>) -> Self {
        Self::Number(number.map_or_else(|| "-".to_owned(), |number| number.to_string()))
    }

    fn text(&self) -> &str {
        match self {
            Self::Word(text) | Self::Number(text) => text,
        }
    }
}

/// A number of things, with a plural `s` except for one.
pub fn count(number: u64, thing: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{end}")
}

/// Names and values, one pair per line.
pub fn fields(list: &[(&str, String)]) -> String {
    let width = list.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, value): &(&str, String)| format!("{name:<width$}  {value}\n");
    list.iter().map(line).collect()
}

/// Text from elsewhere without control characters, which a terminal would interpret.
pub fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// A number of bytes with three or four digits and a unit.
pub fn bytes(count: u64) -> String {
    let mut scaled = count as f64;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if scaled < 1024.0 {
            let digits = usize::from(unit != "B" && scaled < 100.0);
            return format!("{scaled:.digits$}{unit}");
        }
        scaled /= 1024.0;
    }
    format!("{scaled:.0}PiB")
}

/// A time in a suitable unit.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0}us", s * 1e6),
        s if s < 1.0 => format!("{:.1}ms", s * 1e3),
        s if s < 120.0 => format!("{s:.1}s"),
        s if s < 7200.0 => format!("{:.0}min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0}h", s / 3600.0),
        s => format!("{:.0}d", s / 86_400.0),
    }
}

/// A time in UTC, from seconds since 1970.
pub fn when(seconds: f64) -> String {
    let all = seconds.max(0.0) as u64;
    let (days, rest) = (all / 86_400, all % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Year, month and day from days since 1970-01-01. Years begin in March here, so that the leap day
/// is the last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

fn line(cells: &[&str], widths: &[usize], right: &[bool]) -> String {
    let mut out = String::new();
    for ((cell, &width), &right) in cells.iter().zip(widths).zip(right) {
        let padded = if right {
            format!("{cell:>width$}")
        } else {
            format!("{cell:<width$}")
        };
        out.push_str(&padded);
        out.push_str("  ");
    }
    format!("{}\n", out.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["NAME", "N"]);
        table.row(vec![Cell::word("a"), Cell::number(1)]);
        table.row(vec![Cell::word("longer\x1b[2J"), Cell::number(12345)]);
        table.row(vec![Cell::word("c"), Cell::maybe(None::<u64>)]);
        let expected = "NAME            N\n\
                        a               1\n\
                        longer\u{fffd}[2J  12345\n\
                        c               -\n";
        assert_eq!(table.render("none"), expected);
        assert_eq!(Table::new(&["NAME"]).render("none"), "none\n");
    }

    #[test]
    fn points_in_time_are_dates() {
        let dates = [
            0.0,
            951_782_400.5,
            951_868_800.0,
            1_700_000_000.0,
            4_107_542_399.0,
        ]
        .map(when);
        assert_eq!(
            dates,
            [
                "1970-01-01 00:00:00 UTC",
                "2000-02-29 00:00:00 UTC",
                "2000-03-01 00:00:00 UTC",
                "2023-11-14 22:13:20 UTC",
                "2100-02-28 23:59:59 UTC"
            ]
        );
    }

    #[test]
    fn units_suit_the_number() {
        let sizes = [0, 1023, 1024, 1536, 200 << 20, 3 << 40, 1 << 63].map(bytes);
        assert_eq!(
            sizes,
            [
                "0B", "1023B", "1.0KiB", "1.5KiB", "200MiB", "3.0TiB", "8192PiB"
            ]
        );
        let times = [0.000_004, 0.0123, 5.0, 600.0, 10_000.0, 400_000.0].map(time);
        assert_eq!(times, ["4us", "12.3ms", "5.0s", "10min", "3h", "5d"]);
    }
}
