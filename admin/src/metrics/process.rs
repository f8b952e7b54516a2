//! The kernel's figures of the process.

use std::fs;
use std::time::Duration;

use super::{Families, MetricsSource, catalogue};

/// Ticks per second of /proc, fixed by the kernel's interface to user space (USER_HZ).
const TICKS_PER_SECOND: u64 = 100;

/// Processor time, memory, descriptors, threads, start and version. Samples that the kernel does
/// not provide are left out.
pub(super) struct Process;

impl MetricsSource for Process {
    fn collect(&self, out: &mut Families) {
        let build = [
            env!("CARGO_PKG_VERSION"),
            env!("MILLRACE_PROFILE"),
            env!("MILLRACE_RUSTC"),
        ];
        out.number(&catalogue::BUILD_INFO, &build, 1);
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let stat = read("/proc/self/stat");
        if let Some(ticks) = cpu_ticks(&stat) {
            out.seconds(&catalogue::PROCESS_CPU, &[], ticks_to_time(ticks));
        }
        if let (Some(ticks), Some(boot)) = (start_ticks(&stat), boot_time(&read("/proc/stat"))) {
            let since_1970 = Duration::from_secs(boot) + ticks_to_time(ticks);
            out.seconds(&catalogue::PROCESS_START, &[], since_1970);
        }
        let status = read("/proc/self/status");
        if let Some(bytes) = status_bytes(&status, "VmRSS:") {
            out.number(&catalogue::PROCESS_MEMORY, &[], bytes);
        }
        if let Some(bytes) = status_bytes(&status, "HugetlbPages:") {
            out.number(&catalogue::PROCESS_HUGETLB, &[], bytes);
        }
        if let Some(threads) = status_number(&status, "Threads:") {
            out.number(&catalogue::PROCESS_THREADS, &[], threads);
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            // One of them is reading the folder.
            let open = open.count().saturating_sub(1) as u64;
            out.number(&catalogue::PROCESS_FDS, &[], open);
        }
        if let Some(most) = most_files(&read("/proc/self/limits")) {
            out.number(&catalogue::PROCESS_FDS_MAX, &[], most);
        }
    }
}

fn ticks_to_time(ticks: u64) -> Duration {
    Duration::from_millis(ticks.saturating_mul(1000 / TICKS_PER_SECOND))
}

/// A field of /proc/self/stat by its number in proc(5). The second field, the name, may itself
/// have spaces and brackets; the last bracket ends it.
fn stat_field(stat: &str, number: usize) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name
        .split_ascii_whitespace()
        .nth(number.checked_sub(3)?)?
        .parse()
        .ok()
}

fn cpu_ticks(stat: &str) -> Option<u64> {
    stat_field(stat, 14)?.checked_add(stat_field(stat, 15)?)
}

fn start_ticks(stat: &str) -> Option<u64> {
    stat_field(stat, 22)
}

fn boot_time(stat: &str) -> Option<u64> {
    stat.lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()
}

fn status_number(status: &str, key: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(key))?;
    value.trim().parse().ok()
}

/// The soft limit of descriptors; none if there is no limit.
fn most_files(limits: &str) -> Option<u64> {
    let found = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    found.split_ascii_whitespace().next()?.parse().ok()
}

fn status_bytes(status: &str, key: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(key))?;
    value
        .trim()
        .strip_suffix(" kB")?
        .trim()
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_texts_are_read() {
        let stat = "42 (a) (b) S 1 2 3 4 5 6 7 8 9 10 700 55 0 0 20 0 1 0 123456 1 2";
        assert_eq!(cpu_ticks(stat), Some(755));
        assert_eq!(start_ticks(stat), Some(123_456));
        assert_eq!(ticks_to_time(755), Duration::from_millis(7550));
        assert_eq!(
            boot_time("cpu 1 2\nbtime 1700000000\nx 1\n"),
            Some(1_700_000_000)
        );
        let status = "Name:\tx\nVmRSS:\t    2048 kB\nHugetlbPages:\t 0 kB\n";
        assert_eq!(status_bytes(status, "VmRSS:"), Some(2_097_152));
        assert_eq!(status_bytes(status, "HugetlbPages:"), Some(0));
        assert_eq!(status_bytes(status, "VmSwap:"), None);
        assert_eq!(
            status_number("Name:\tx\nThreads:\t12\n", "Threads:"),
            Some(12)
        );
        let limits =
            |soft: &str| format!("Limit  Soft  Hard\nMax open files  {soft}  4096  files\n");
        assert_eq!(most_files(&limits("1024")), Some(1024));
        assert_eq!(most_files(&limits("unlimited")), None);
    }

    #[test]
    fn odd_texts_give_nothing() {
        for text in [
            "",
            ")",
            "1 (x) S",
            "1 (x) S a b c d e f g h i j k l m n o p q r s t u v",
        ] {
            assert_eq!(
                (cpu_ticks(text), start_ticks(text), boot_time(text)),
                (None, None, None)
            );
            assert_eq!(
                (status_number(text, "Threads:"), most_files(text)),
                (None, None)
            );
        }
    }
}
