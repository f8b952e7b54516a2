//! Processor time of the client and the server.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use core_affinity::CoreId;

use crate::lookup::resolve;

/// Port of the service's management plane.
const ADMIN_PORT: u16 = 9620;

/// Runs this thread on one core only.
///
/// # Errors
/// If there is no such core for this process.
pub fn pin(core: usize) -> Result<()> {
    // Numbers beyond the size of the system's masks abort the process, so they are checked first;
    // and only once, as a pinned thread sees its own core only.
    static CORES: OnceLock<Vec<CoreId>> = OnceLock::new();
    let known = CORES.get_or_init(|| core_affinity::get_core_ids().unwrap_or_default());
    let Some(id) = known.iter().copied().find(|known| known.id == core) else {
        bail!("core {core} is not among those that this process may use");
    };
    if !core_affinity::set_for_current(id) {
        bail!("cannot run on core {core}");
    }
    Ok(())
}

/// Measures the processor time of the thread that created it.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    start: Option<f64>,
}

impl Stopwatch {
    /// Starts.
    #[must_use]
    pub fn start() -> Self {
        Self {
            start: thread_seconds("/proc/thread-self/schedstat"),
        }
    }

    /// Seconds since the start, if the kernel reports them.
    #[must_use]
    pub fn seconds(&self) -> Option<f64> {
        Some(thread_seconds("/proc/thread-self/schedstat")? - self.start?)
    }
}

/// The first figure of schedstat is nanoseconds on a core.
fn thread_seconds(path: &str) -> Option<f64> {
    let text = fs::read_to_string(path).ok()?;
    let nanoseconds: f64 = text.split_ascii_whitespace().next()?.parse().ok()?;
    Some(nanoseconds / 1e9)
}

/// Where the server's processor time comes from.
#[derive(Args, Clone, Debug, Default)]
pub struct ServerCpu {
    /// The server's management address: busy time, and without --server-pid processor time as
    /// well, come from its /metrics.
    #[arg(long, value_name = "HOST:PORT")]
    pub admin: Option<String>,

    /// The server's process on this machine: processor time comes from /proc.
    #[arg(long, value_name = "PID")]
    pub server_pid: Option<u32>,
}

impl ServerCpu {
    /// Seconds of processor time of the server, if known.
    #[must_use]
    pub fn seconds(&self) -> Option<f64> {
        match (self.server_pid, &self.admin) {
            (Some(pid), _) => process_seconds(pid),
            (None, Some(admin)) => {
                let text = metrics(admin)?;
                // Millrace's own name, and the one that Prometheus clients use.
                metric(&text, "millrace_process_cpu_seconds_total")
                    .or_else(|| metric(&text, "process_cpu_seconds_total"))
            }
            (None, None) => None,
        }
    }

    /// Seconds in which the server's reactors had work, if its metrics report them.
    #[must_use]
    pub fn busy_seconds(&self) -> Option<f64> {
        let text = metrics(self.admin.as_deref()?)?;
        sum_of_cores(&text, "millrace_reactor_busy_seconds_total")
    }
}

fn process_seconds(pid: u32) -> Option<f64> {
    let mut seconds = 0.0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let path = task.ok()?.path().join("schedstat");
        seconds += thread_seconds(path.to_str()?)?;
    }
    Some(seconds)
}

fn metrics(admin: &str) -> Option<String> {
    let mut stream = TcpStream::connect(resolve(admin, ADMIN_PORT).ok()?).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    // HTTP 1.0, so that the body is not chunked and the connection ends after it.
    let request = format!("GET /metrics HTTP/1.0\r\nHost: {admin}\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// The sum of a metric that has a label for each core; `None` if there is none.
fn sum_of_cores(text: &str, name: &str) -> Option<f64> {
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
    let values = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

fn metric(text: &str, name: &str) -> Option<f64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
        .and_then(|value| value.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::{metric, sum_of_cores};

    #[test]
    fn busy_time_is_that_of_all_cores() {
        let text = "# TYPE busy counter\nbusy{core=\"0\"} 1.5\nbusy{core=\"1\"} 2.25\n\
                    busy_more{core=\"1\"} 7\n";
        assert_eq!(sum_of_cores(text, "busy"), Some(3.75));
        assert_eq!(sum_of_cores(text, "idle"), None);
    }

    #[test]
    fn a_metric_is_found_by_its_whole_name() {
        let text = "# HELP process_cpu_seconds_total x\nprocess_cpu_seconds_total_more 7\n\
                    process_cpu_seconds_total 1.25\n";
        assert_eq!(metric(text, "process_cpu_seconds_total"), Some(1.25));
        assert_eq!(metric(text, "process_cpu"), None);
    }
}
