//! Whether there is memory for a change, before any of it is taken: memory that a process touches
//! and that is not there ends the process.

use std::fs;

use millrace_admin::config::{ByteSize, Config, KeyPath, Problem, Store};

/// What keeps the memory of a change from being had: the key that asks for most of it.
///
/// # Errors
/// The system has not so much memory left. Where it does not say how much it has, nothing is
/// refused.
pub fn check(before: &Config, next: &Config, reactors: usize) -> Result<(), Problem> {
    let Some(available) = available() else {
        return Ok(());
    };
    let mut asked = Vec::new();
    let [size, was] = [next, before].map(|config| config.mempool.size.bytes());
    let more = size.saturating_sub(was).saturating_mul(reactors as u64);
    let root = KeyPath::root();
    asked.push((more, root.key("mempool").key("size")));
    for (index, export) in next.exports.iter().enumerate() {
        let known = before.exports.iter().any(|one| one.path == export.path);
        if let (false, Store::Memory { size }) = (known, &export.store) {
            let path = root.key("exports").index(index).key("store").key("size");
            asked.push((size.bytes(), path));
        }
    }
    let sum = asked
        .iter()
        .fold(0, |sum: u64, (bytes, _)| sum.saturating_add(*bytes));
    if sum <= available {
        return Ok(());
    }
    let most = asked.into_iter().max_by_key(|(bytes, _)| *bytes);
    let (_, path) = most.unwrap_or_default();
    let (sum, available) = (whole(sum), whole(available));
    let reason = format!("the change takes {sum} more, and the system has {available} left");
    Err(Problem::new(path, reason))
}

/// In whole MiB, as people read it.
fn whole(bytes: u64) -> ByteSize {
    ByteSize(bytes >> 20 << 20)
}

/// Bytes that can be had without taking them from others, huge pages included.
fn available() -> Option<u64> {
    parse(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse(text: &str) -> Option<u64> {
    let number = |key: &str| {
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        value.split_whitespace().next()?.parse::<u64>().ok()
    };
    let small = number("MemAvailable")?;
    let huge = number("HugePages_Free").zip(number("Hugepagesize"));
    let huge = huge.map_or(0, |(pages, size)| pages * size);
    Some((small + huge) << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_is_available_and_free_huge_pages() {
        let text = "MemTotal: 9 kB\nMemAvailable:    1024 kB\nHugePages_Free:  2\n\
                    Hugepagesize:  2048 kB\n";
        assert_eq!(parse(text), Some(5 << 20));
        assert_eq!(parse("MemAvailable: 4 kB\n"), Some(4096));
        assert_eq!(parse("MemTotal: 4 kB\n"), None);
    }

    #[test]
    fn what_cannot_be_had_is_told_with_the_key_that_asks_for_most() {
        let before = Config::default();
        assert_eq!(check(&before, &before, 2), Ok(()));
        let mut next = before.clone();
        next.mempool.size = ByteSize::gib(1 << 20);
        let refused = check(&before, &next, 2).expect_err("nobody has so much");
        assert_eq!(refused.path.to_string(), "mempool.size");
        assert!(refused.message.contains("left"), "{}", refused.message);
    }
}
