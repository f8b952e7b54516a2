//! Results that were recorded before, to compare a run with.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use super::report::Report;

/// Verdicts by row and case, as a table of `--markdown` has them. A row may have several cases.
#[derive(Debug)]
pub(crate) struct Expected {
    verdicts: BTreeMap<(String, String), String>,
}

impl Expected {
    /// Reads such a table.
    pub fn parse(text: &str) -> Result<Self> {
        let mut verdicts = BTreeMap::new();
        for line in text.lines() {
            let cells: Vec<&str> = line.split(" | ").collect();
            let [row, case, result, ..] = cells.as_slice() else {
                continue;
            };
            let row = row.trim_start_matches("| ");
            if !row.contains('-') || row.starts_with("---") {
                continue;
            }
            let result = result.trim_end_matches(" |");
            let key = (row.to_owned(), (*case).to_owned());
            let twice = verdicts.insert(key, comparable(result));
            ensure!(twice.is_none(), "{row}: {case}: twice");
        }
        ensure!(!verdicts.is_empty(), "no table of results");
        Ok(Self { verdicts })
    }

    /// The differences between the recorded results and a run of the rows that begin with `only`.
    pub fn differences(&self, report: &Report, only: &str) -> Vec<String> {
        let mut differences = Vec::new();
        let mut missing = self.verdicts.clone();
        missing.retain(|(row, _), _| row.starts_with(only));
        for line in &report.lines {
            let (row, case, result) = line.cells();
            let found = comparable(&result);
            match missing.remove(&(row.to_owned(), case.to_owned())) {
                Some(expected) if expected == found => {}
                Some(expected) => {
                    differences.push(format!("{row}: {case}: {expected} expected, {found} found"));
                }
                None => differences.push(format!("{row}: {case}: not recorded, {found} found")),
            }
        }
        for ((row, case), expected) in missing {
            differences.push(format!("{row}: {case}: {expected} expected, not run"));
        }
        differences
    }
}

/// What has to be the same: pass or fail, and why a case was skipped. Ports and the like in the
/// reason differ from run to run.
fn comparable(result: &str) -> String {
    if result.starts_with("**fail**") {
        return "fail".to_owned();
    }
    result.chars().filter(|c| !c.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::report::ReportLine;
    use super::super::verdict::{Done, fail, skip};
    use super::*;

    fn report(third: Done) -> Report {
        let time = Duration::ZERO;
        Report {
            lines: vec![
                ReportLine::new("RR1-HDR-01", "one", Ok(()), time),
                ReportLine::new("RR1-HDR-02", "two", Err(fail("a | b")), time),
                ReportLine::new("RR2-HDR-03", "three", third, time),
            ],
        }
    }

    #[test]
    fn the_same_results_do_not_differ() {
        let recorded = report(Err(skip("sent to port 1234")));
        let expected = Expected::parse(&recorded.markdown()).unwrap();
        assert_eq!(expected.verdicts.len(), 3);
        let found = report(Err(skip("sent to port 99")));
        assert_eq!(expected.differences(&found, ""), [""; 0]);
    }

    #[test]
    fn every_other_result_is_a_difference() {
        let recorded = report(Err(skip("not offered")));
        let expected = Expected::parse(&recorded.markdown()).unwrap();
        for other in [Ok(()), Err(fail("no")), Err(skip("no directory"))] {
            let differences = expected.differences(&report(other), "");
            assert_eq!(differences.len(), 1, "{differences:?}");
            assert!(differences[0].starts_with("RR2-HDR-03: three: skip: not offered expected"));
        }
    }

    #[test]
    fn cases_that_are_missing_or_new_are_differences() {
        let mut less = report(Ok(()));
        let expected = Expected::parse(&less.markdown()).unwrap();
        less.lines.remove(0);
        let missing = "RR1-HDR-01: one: pass expected, not run";
        let new = "RR2-HDR-03: three: not recorded, pass found";
        assert_eq!(expected.differences(&less, ""), [missing]);
        assert_eq!(expected.differences(&less, "RR1"), [new, missing]);
        less.lines.remove(0);
        assert_eq!(expected.differences(&less, "RR2"), [""; 0]);
        let expected = Expected::parse(&less.markdown()).unwrap();
        let more = report(Ok(()));
        assert_eq!(expected.differences(&more, "").len(), 2);
    }

    #[test]
    fn what_is_no_table_is_refused() {
        for text in [
            "",
            "135 passed, 0 failed",
            "| row | case | result |\n| --- | --- | --- |\n",
        ] {
            Expected::parse(text).unwrap_err();
        }
    }

    #[test]
    fn the_record_of_millraced_has_every_case_and_no_failure() {
        let recorded = include_str!("../../conformance/millraced.md");
        let expected = Expected::parse(recorded).unwrap();
        let cases = super::super::cases::all();
        assert_eq!(expected.verdicts.len(), cases.len());
        for case in cases {
            let key = (case.row.to_owned(), case.title.to_owned());
            let verdict = expected.verdicts.get(&key).map(String::as_str);
            assert!(
                verdict.is_some_and(|verdict| verdict != "fail"),
                "{key:?}: {verdict:?}"
            );
        }
    }
}
