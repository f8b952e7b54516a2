//! The report to print.

use std::fmt::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::verdict::{Difference, Done, Stop};

/// One case's result.
#[derive(Clone, Debug)]
pub(crate) struct ReportLine {
    row: &'static str,
    title: &'static str,
    verdict: Verdict,
    time: Duration,
}

#[derive(Clone, Debug)]
enum Verdict {
    Pass,
    Fail(Difference),
    Skip(String),
}

impl ReportLine {
    pub fn new(row: &'static str, title: &'static str, done: Done, time: Duration) -> Self {
        let verdict = match done {
            Ok(()) => Verdict::Pass,
            Err(Stop::Fail(difference)) => Verdict::Fail(difference),
            Err(Stop::Skip(why)) => Verdict::Skip(why),
        };
        Self {
            row,
            title,
            verdict,
            time,
        }
    }

    pub fn failed(&self) -> bool {
        matches!(self.verdict, Verdict::Fail(_))
    }

    fn json(&self) -> Value {
        let milliseconds = u64::try_from(self.time.as_millis()).unwrap_or(u64::MAX);
        let mut value = json!({
            "row": self.row,
            "title": self.title,
            "verdict": self.word(),
            "milliseconds": milliseconds,
        });
        match &self.verdict {
            Verdict::Pass => {}
            Verdict::Fail(difference) => value["difference"] = json!(difference),
            Verdict::Skip(why) => value["reason"] = json!(why),
        }
        value
    }

    /// The cells of a table: the row, the case, and the result.
    pub fn cells(&self) -> (&'static str, &'static str, String) {
        let result = match &self.verdict {
            Verdict::Pass => "pass".to_owned(),
            Verdict::Fail(difference) => {
                let words = difference.to_string();
                let lines: Vec<String> = words.lines().map(one_line).collect();
                format!("**fail**: {}", lines.join("; "))
            }
            Verdict::Skip(why) => {
                let lines: Vec<String> = why.lines().map(one_line).collect();
                format!("skip: {}", lines.join("; "))
            }
        };
        (self.row, self.title, result.replace('|', "\\|"))
    }

    fn word(&self) -> &'static str {
        match self.verdict {
            Verdict::Pass => "pass",
            Verdict::Fail(_) => "fail",
            Verdict::Skip(_) => "skip",
        }
    }
}

impl fmt::Display for ReportLine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (row, title) = (self.row, self.title);
        match &self.verdict {
            Verdict::Pass => write!(out, "pass  {row:<15} {title}"),
            Verdict::Fail(difference) => {
                write!(out, "FAIL  {row:<15} {title}\n      {difference}")
            }
            Verdict::Skip(why) => write!(out, "skip  {row:<15} {title}: {why}"),
        }
    }
}

/// All results.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub lines: Vec<ReportLine>,
}

impl Report {
    fn count(&self, word: &str) -> usize {
        self.lines.iter().filter(|line| line.word() == word).count()
    }

    pub fn failed(&self) -> usize {
        self.count("fail")
    }

    pub fn sum(&self) -> String {
        let (passed, failed) = (self.count("pass"), self.failed());
        format!(
            "{passed} passed, {failed} failed, {} skipped",
            self.count("skip")
        )
    }

    pub fn json(&self) -> Value {
        let cases: Vec<Value> = self.lines.iter().map(ReportLine::json).collect();
        json!({
            "passed": self.count("pass"),
            "failed": self.failed(),
            "skipped": self.count("skip"),
            "cases": cases,
        })
    }

    pub fn markdown(&self) -> String {
        let mut text = String::from("| row | case | result |\n| --- | --- | --- |\n");
        for line in &self.lines {
            let (row, case, result) = line.cells();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| {row} | {case} | {result} |");
        }
        let _ = writeln!(text, "\n{}.", self.sum());
        text
    }
}

/// A line with single blanks.
fn one_line(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::verdict::{fail, skip};

    fn report() -> Report {
        let time = Duration::from_millis(7);
        Report {
            lines: vec![
                ReportLine::new("RR1-HDR-01", "one", Ok(()), time),
                ReportLine::new("RR1-HDR-02", "two", Err(fail("a | b")), time),
                ReportLine::new("RR1-HDR-03", "three", Err(skip("not offered")), time),
            ],
        }
    }

    #[test]
    fn all_forms_tell_the_same() {
        let report = report();
        assert_eq!(report.failed(), 1);
        assert_eq!(report.sum(), "1 passed, 1 failed, 1 skipped");
        let json = report.json();
        assert_eq!(json["cases"][1]["difference"]["what"], "a | b");
        assert_eq!(json["cases"][2]["reason"], "not offered");
        let table = report.markdown();
        assert!(table.contains("| RR1-HDR-02 | two | **fail**: a \\| b |\n"));
        assert!(table.contains("| RR1-HDR-03 | three | skip: not offered |\n"));
        assert_eq!(report.lines[0].to_string(), "pass  RR1-HDR-01      one");
    }
}
