//! Hugepage policy, page sizes, and the system's counters of hugepages.

use std::fs;

/// Whether to use hugepages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HugepagePolicy {
    /// Use them where enough are free; otherwise fall back to small pages with one warning.
    #[default]
    Auto,
    /// Fail without them.
    Required,
    /// Small pages.
    Off,
}

/// A hugepage size that the configuration may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageSize {
    /// 2 MiB.
    Mebibytes2,
    /// 1 GiB.
    Gibibyte1,
}

impl PageSize {
    /// The size in bytes.
    pub const fn bytes(self) -> usize {
        1 << self.bits()
    }

    /// The base-two logarithm of the size.
    pub(crate) const fn bits(self) -> u8 {
        match self {
            Self::Mebibytes2 => 21,
            Self::Gibibyte1 => 30,
        }
    }
}

/// The system's default hugepage size in bytes; `None` where the kernel has no hugepages.
pub(crate) fn default_size() -> Option<usize> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    default_size_in(&text)
}

fn default_size_in(meminfo: &str) -> Option<usize> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("Hugepagesize:"))?;
    let kibibytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes
        .checked_mul(1024)
        .filter(|bytes| bytes.is_power_of_two())
}

/// Hugepages of one size, counted in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Pages {
    /// All that the system has.
    pub total: usize,
    /// Those that are neither mapped nor reserved.
    pub free: usize,
}

impl Pages {
    /// Reads the system's counters for pages of `size` bytes; zeros where it has none.
    pub fn of_size(size: usize) -> Self {
        let folder = format!("/sys/kernel/mm/hugepages/hugepages-{}kB", size >> 10);
        let read = |name: &str| -> usize {
            let text = fs::read_to_string(format!("{folder}/{name}")).unwrap_or_default();
            text.trim().parse().unwrap_or(0)
        };
        Self {
            total: read("nr_hugepages"),
            free: read("free_hugepages").saturating_sub(read("resv_hugepages")),
        }
    }

    /// The total that the system would need for `wanted` more pages.
    pub fn total_for(self, wanted: usize) -> usize {
        self.total + wanted.saturating_sub(self.free)
    }
}

/// The command that gives the system `total` hugepages of `size` bytes.
pub(crate) fn command(size: usize, total: usize) -> String {
    if default_size() == Some(size) {
        format!("sysctl vm.nr_hugepages={total}")
    } else {
        let kibibytes = size >> 10;
        format!("echo {total} > /sys/kernel/mm/hugepages/hugepages-{kibibytes}kB/nr_hugepages")
    }
}

#[cfg(test)]
mod tests {
    use super::{Pages, command, default_size, default_size_in};

    #[test]
    fn the_default_size_is_read_from_meminfo() {
        assert_eq!(
            default_size_in("A: 1 kB\nHugepagesize:       2048 kB\n"),
            Some(2 << 20)
        );
        assert_eq!(default_size_in("HugePages_Total: 3\n"), None);
        assert_eq!(default_size_in("Hugepagesize: many kB\n"), None);
        assert_eq!(default_size_in("Hugepagesize: 3 kB\n"), None);
    }

    #[test]
    fn the_command_asks_for_what_is_missing() {
        let pages = Pages { total: 10, free: 4 };
        assert_eq!(pages.total_for(4), 10);
        assert_eq!(pages.total_for(9), 15);
        if let Some(size) = default_size() {
            assert_eq!(command(size, 15), "sysctl vm.nr_hugepages=15");
            let other = if size == 1 << 30 { 2 << 20 } else { 1 << 30 };
            assert!(command(other, 15).starts_with("echo 15 > /sys/kernel/mm/hugepages/"));
        }
    }
}
