//! Which cores the threads of `millraced` run on.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use millrace_reactor::allowed_cores;
use rustix::process::{Pid, getpriority_process};

const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Ended with its owner.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts it with reactors on these cores, and waits until everything runs.
fn start(name: &str, cores: &[usize]) -> Server {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.yaml"));
    let text = format!(
        "reactors: {{ cores: {cores:?}, poll: adaptive }}\n\
         mempool: {{ hugepages: off, size: 16MiB }}\n\
         fabric: [{{ provider: iwarp, listen: \"127.0.0.1:0\" }}]\n\
         rpc: {{ listen: \"127.0.0.1:0\" }}\n\
         flow: {{ credits: 16 }}\n\
         admin: {{ listen: \"127.0.0.1:0\" }}\n"
    );
    fs::write(&file, text).expect("a folder for tests");
    let child = Command::new(env!("CARGO_BIN_EXE_millraced"))
        .arg("--config")
        .arg(&file)
        .stderr(Stdio::piped())
        .spawn();
    let mut server = Server(child.expect("starts"));
    let log = BufReader::new(server.0.stderr.take().expect("piped"));
    let mut lines = log.lines().map_while(Result::ok);
    let served = lines.find(|line| line.contains("admin plane at"));
    served.expect("it serves");
    // A log that nobody reads must not end it.
    std::thread::spawn(move || lines.count());
    server
}

/// Waits until the threads are as they are to stay, a moment after it serves.
fn settled(server: &Server, is_settled: impl Fn(&[Thread]) -> bool) {
    let start = Instant::now();
    loop {
        let threads = threads(server);
        if is_settled(&threads) {
            return;
        }
        assert!(start.elapsed() < TEST_TIMEOUT, "still {threads:?}");
        std::thread::yield_now();
    }
}

/// Name, number and cores.
type Thread = (String, i32, Vec<usize>);

fn threads(server: &Server) -> Vec<Thread> {
    let folder = format!("/proc/{}/task", server.0.id());
    let mut threads = Vec::new();
    for entry in fs::read_dir(folder).expect("it runs") {
        let entry = entry.expect("readable");
        // A thread may end meanwhile.
        let Ok(status) = fs::read_to_string(entry.path().join("status")) else {
            continue;
        };
        let value = |key: &str| {
            let mut lines = status.lines();
            let line = lines.find_map(|line| line.strip_prefix(key));
            line.expect("known to the kernel").trim().to_owned()
        };
        let number = value("Pid:").parse().expect("a number");
        threads.push((value("Name:"), number, cores(&value("Cpus_allowed_list:"))));
    }
    threads
}

/// The numbers of a list such as `0,2-4`.
fn cores(list: &str) -> Vec<usize> {
    let number = |text: &str| text.parse::<usize>().expect("a number");
    let ranges = list.split(',').map(|range| match range.split_once('-') {
        Some((first, last)) => number(first)..=number(last),
        None => number(range)..=number(range),
    });
    ranges.flatten().collect()
}

#[test]
fn nothing_but_reactors_runs_on_their_cores() {
    let allowed = allowed_cores();
    let core = *allowed.first().expect("a core");
    let server = start("threads-aside", &[core]);
    settled(&server, |threads| {
        let wanted = ["millraced", "millrace-admin", "watchdog", "reactor-"];
        let has = |wanted: &str| threads.iter().any(|(name, ..)| name.starts_with(wanted));
        let aside = |(name, _, cores): &Thread| match name.starts_with("reactor-") {
            true => *cores == [core],
            false => allowed.len() == 1 || !cores.contains(&core),
        };
        wanted.into_iter().all(has) && threads.iter().all(aside)
    });
}

#[test]
fn threads_beside_reactors_on_all_cores_yield_to_them() {
    let server = start("threads-yield", &allowed_cores());
    let ours = getpriority_process(None).expect("allowed");
    settled(&server, |threads| {
        threads.iter().all(|(name, number, _)| {
            // A thread may end meanwhile.
            let nice = getpriority_process(Pid::from_raw(*number)).unwrap_or_default();
            nice == match name.starts_with("reactor-") {
                true => ours,
                false => ours.max(10),
            }
        })
    });
}
