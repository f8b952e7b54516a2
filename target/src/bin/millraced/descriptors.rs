//! The file descriptors of the process.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that the kernel's table has room for from the start.
const TABLE: u64 = 1 << 16;

/// Raises the limit of descriptors to the highest allowed one, and has the kernel make its table
/// large. `main` calls this before there is another thread: later, the kernel makes the table larger
/// only after a grace period of all processors, and a reactor that opens a file would wait for it.
pub fn prepare() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let limit = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => raised.current,
        Err(_) => limit.current,
    };
    let last = limit
        .map_or(TABLE, |limit| limit.min(TABLE))
        .saturating_sub(1);
    if let (Ok(any), Ok(last)) = (eventfd(0, EventfdFlags::CLOEXEC), i32::try_from(last)) {
        // Only the table stays. Without it, the process is slower at times.
        let _ = fcntl_dupfd_cloexec(any, last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_highest_and_the_table_is_large() {
        let limit = getrlimit(Resource::Nofile);
        let low = Rlimit {
            current: Some(1024),
            ..limit
        };
        setrlimit(Resource::Nofile, low).unwrap();
        prepare();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let mut lines = status.lines();
        let size = lines.find_map(|line| line.strip_prefix("FDSize:"));
        let size: u64 = size.unwrap().trim().parse().unwrap();
        assert!(size >= limit.current.map_or(TABLE, |limit| limit.min(TABLE)));
    }
}
