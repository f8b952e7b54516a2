//! Lines are written to standard error by a separate thread: its reader may stop, and neither a
//! reactor nor any other thread may wait for that.

use std::cell::Cell;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use tracing_subscriber::fmt::MakeWriter;

/// The most lines waiting to be written.
pub const LINES_MAX: usize = 4096;

/// The interval of reports of lines left out.
const REPORT_PAUSE: Duration = Duration::from_secs(10);

thread_local! {
    /// Whether this is the writing thread.
    static WRITES: Cell<bool> = const { Cell::new(false) };
}

enum Job {
    Line(Vec<u8>),
    /// Notifies when all lines before it are written.
    Flush(Sender<()>),
}

/// Accepts lines from any thread without waiting. Clones share the queue.
#[derive(Clone)]
pub struct LogQueue {
    jobs: Sender<Job>,
    dropped: Arc<AtomicU64>,
}

impl LogQueue {
    /// Starts the thread that writes lines to `sink`, with at most `lines` waiting. It calls
    /// `prepare` first, and `report` from time to time, with the number of lines dropped so far;
    /// lines logged by `report` do not wait.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        sink: impl Write + Send + 'static,
        lines: usize,
        prepare: impl FnOnce() + Send + 'static,
        report: impl FnMut(u64) + Send + 'static,
    ) -> io::Result<Self> {
        let (jobs, taken) = bounded(lines);
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&dropped);
        let thread = thread::Builder::new().name("millrace-log".to_owned());
        thread.spawn(move || {
            prepare();
            write_lines(&taken, sink, &counted, report);
        })?;
        Ok(Self { jobs, dropped })
    }

    /// Lines dropped because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Waits until the lines so far are written, with a timeout.
    pub fn flush(&self, timeout: Duration) {
        let (done, written) = bounded(1);
        if self.jobs.send_timeout(Job::Flush(done), timeout).is_ok() {
            let _ = written.recv_timeout(timeout);
        }
    }

    fn push(&self, line: &[u8]) {
        if self.jobs.try_send(Job::Line(line.to_vec())).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
    }
}

fn write_lines(
    jobs: &Receiver<Job>,
    mut sink: impl Write,
    dropped: &AtomicU64,
    mut report: impl FnMut(u64),
) {
    WRITES.set(true);
    let mut due = Instant::now() + REPORT_PAUSE;
    loop {
        let mut reports = Instant::now() >= due;
        match jobs.recv_deadline(due) {
            // There is no way to report that a line cannot be written.
            Ok(Job::Line(line)) => _ = sink.write_all(&line),
            Ok(Job::Flush(done)) => {
                report(dropped.load(Relaxed));
                _ = done.try_send(());
            }
            Err(RecvTimeoutError::Timeout) => reports = true,
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if reports {
            report(dropped.load(Relaxed));
            due = Instant::now() + REPORT_PAUSE;
        }
    }
}

/// A line being queued.
pub struct QueuedLine<'a>(&'a LogQueue);

impl Write for QueuedLine<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match WRITES.get() {
            true => StandardError.write_all(line)?,
            false => self.0.push(line),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogQueue {
    type Writer = QueuedLine<'a>;

    fn make_writer(&'a self) -> QueuedLine<'a> {
        QueuedLine(self)
    }
}

/// The descriptor itself, without the lock of [`io::stderr`], which would block other threads.
pub struct StandardError;

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(io::stderr(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Reports each line, and waits for a message before accepting it.
    struct BlockedWriter {
        came: Sender<()>,
        go_on: Receiver<()>,
        lines: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for BlockedWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.came.send(()).unwrap();
            // Ends with a message or when the other side is dropped.
            let _ = self.go_on.recv();
            self.lines.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_sink_that_takes_nothing_makes_nobody_wait_and_what_is_dropped_is_told() {
        let (came, has_come) = bounded(16);
        let (word, go_on) = bounded::<()>(0);
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = BlockedWriter {
            came,
            go_on,
            lines: Arc::clone(&lines),
        };
        let (reported, reports) = bounded(16);
        let report = move |dropped| _ = reported.try_send(dropped);
        let queue = LogQueue::start(sink, 3, || {}, report).unwrap();
        queue.make_writer().write_all(b"0\n").unwrap();
        let timeout = Duration::from_secs(60);
        has_come
            .recv_timeout(timeout)
            .expect("it comes by the thread");
        for line in 1..=8 {
            writeln!(queue.make_writer(), "{line}").unwrap();
        }
        // Numbers and line ends are written separately here, and count as lines.
        let dropped = queue.dropped();
        assert!(dropped >= 5, "{dropped}");
        drop(word);
        queue.flush(timeout);
        assert_eq!(
            reports.recv().unwrap(),
            dropped,
            "told before the flush is done"
        );
        let written = String::from_utf8(lines.lock().unwrap().clone()).unwrap();
        assert!(written.starts_with("0\n1"), "{written}");
        assert!(!written.contains('8'), "{written}");
        queue.make_writer().write_all(b"9\n").unwrap();
        queue.flush(timeout);
        assert!(lines.lock().unwrap().ends_with(b"9\n"));
        assert_eq!(queue.dropped(), dropped);
    }
}
