//! How tests say that this machine cannot try what they are for, and how they count allocations.
//! Only tests depend on this crate.
//!
//! A test that cannot be tried passes for the test harness. [`skip!`] prints the reason and records the test in the
//! file that the environment variable `MILLRACE_SKIPPED` names. `deploy/check` reads that file with
//! `deploy/skipped`, names the tests as skipped, and fails if one of them may not be.

pub mod allocation;

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;

/// The environment variable with the name of the file that skipped tests are recorded in.
pub const RECORD: &str = "MILLRACE_SKIPPED";

/// Reports that the running test, or the rest of it, cannot be tried here. Takes the reason as
/// `format!` does. The test itself has to return.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {{
        fn here() {}
        $crate::report(
            concat!(env!("CARGO_PKG_NAME"), "::", env!("CARGO_CRATE_NAME")),
            std::any::type_name_of_val(&here),
            &format_args!($($reason)+),
        )
    }};
}

/// What [`skip!`] calls: with the package and crate of the test, and the path of a function within
/// the one that skips.
///
/// # Panics
///
/// If the record cannot be written, since the test would then pass without a word.
pub fn report(place: &str, function: &str, reason: &dyn Display) {
    let thread = std::thread::current();
    // The harness names a test's thread after the test. Without threads, the function has to do;
    // its path begins with the crate.
    let test = match thread.name() {
        Some(name) if name != "main" => name,
        _ => function
            .trim_end_matches("::here")
            .split_once("::")
            .map_or(function, |(_, path)| path),
    };
    let line = record_line(place, test, reason);
    eprint!("skipped: {line}");
    if let Some(path) = std::env::var_os(RECORD) {
        append(path.as_ref(), &line).expect("the record of skipped tests");
    }
}

/// `package::crate::test: reason`, without line breaks but the last one.
fn record_line(place: &str, test: &str, reason: &dyn Display) -> String {
    let reason = reason.to_string();
    let words: Vec<_> = reason.split_whitespace().collect();
    format!("{place}::{test}: {}\n", words.join(" "))
}

/// One write, so that lines of concurrent tests do not mix.
fn append(path: &Path, line: &str) -> io::Result<()> {
    let mut file = File::options().append(true).create(true).open(path)?;
    file.write_all(line.as_bytes())
}

/// The address of the RDMA device that tests use: the one in `MILLRACE_TEST_FABRIC`
/// (`verbs:ADDRESS`), or 10.0.2.15, that of the guests of `bench/kernel-client/in-guest`, where
/// there are RDMA devices and this address is here. The error is a reason for [`skip!`].
///
/// # Errors
///
/// Where this machine has no such device.
///
/// # Panics
///
/// If the variable holds something else.
pub fn rdma_device() -> Result<IpAddr, String> {
    let fabric = std::env::var("MILLRACE_TEST_FABRIC").unwrap_or_default();
    if let Some(address) = fabric.strip_prefix("verbs:") {
        return Ok(address.parse().expect("verbs:ADDRESS"));
    }
    let devices = std::fs::read_dir("/sys/class/infiniband");
    if devices.map_or(0, Iterator::count) == 0 {
        return Err("this machine has no RDMA device".to_owned());
    }
    let address = Ipv4Addr::new(10, 0, 2, 15);
    match UdpSocket::bind((address, 0)) {
        Ok(_) => Ok(address.into()),
        Err(_) => Err(format!(
            "MILLRACE_TEST_FABRIC=verbs:ADDRESS is not set, and no RDMA device has {address}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_test_and_holds_the_reason_in_one_piece() {
        let reason = "mkfs.xfs:\n  No such file\n";
        assert_eq!(
            record_line("package::suite", "xfs::names", &reason),
            "package::suite::xfs::names: mkfs.xfs: No such file\n"
        );
    }

    #[test]
    fn lines_are_appended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record");
        append(&path, "one\n").unwrap();
        append(&path, "two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
    }

    /// Run by the next test, in a process that has the variable.
    #[test]
    fn a_test_that_skips() {
        if std::env::var_os("MILLRACE_TEST_SKIPS").is_some() {
            skip!("this {} has\nno leg", "machine");
        }
    }

    #[test]
    fn a_skipped_test_is_recorded_by_its_name_with_and_without_threads() {
        let folder = tempfile::tempdir().unwrap();
        for threads in ["1", "2"] {
            let path = folder.path().join(threads);
            let run = std::process::Command::new(std::env::current_exe().unwrap())
                .args([
                    "tests::a_test_that_skips",
                    "--exact",
                    "--test-threads",
                    threads,
                ])
                .env("MILLRACE_TEST_SKIPS", "yes")
                .env(RECORD, &path)
                .output()
                .unwrap();
            assert!(run.status.success());
            assert!(String::from_utf8_lossy(&run.stdout).contains("1 passed"));
            let record = std::fs::read_to_string(&path).unwrap();
            assert_eq!(
                record,
                "millrace-testing::millrace_testing::tests::a_test_that_skips: \
                 this machine has no leg\n"
            );
        }
    }

    #[test]
    fn a_record_that_cannot_be_written_fails_the_test() {
        let folder = tempfile::tempdir().unwrap();
        append(folder.path(), "line\n").unwrap_err();
    }
}
