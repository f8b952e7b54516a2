//! Samples of the server's state, and differences between two of them.

use std::time::Duration;

use millrace_admin::status::{
    ClientStatus, ConnectionStatus, ExportStatus, OperationStatus, ReactorStatus, Readiness,
};

/// One sample.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Its time, from the start of the program.
    pub at: Duration,
    /// Name and version.
    pub program: String,
    pub readiness: Readiness,
    pub reactors: Vec<ReactorStatus>,
    pub clients: Vec<ClientStatus>,
    pub operations: Vec<OperationStatus>,
    /// `None` if not queried.
    pub connections: Option<Vec<ConnectionStatus>>,
    pub exports: Option<Vec<ExportStatus>>,
}

/// Two samples, the later of which is shown.
pub struct Span<'a> {
    pub now: &'a Sample,
    pub before: Option<&'a Sample>,
}

impl Span<'_> {
    /// The growth of a counter per second; `None` if unknown: there is only one sample, or the
    /// server was restarted.
    pub fn rate(&self, now: f64, before: Option<f64>) -> Option<f64> {
        let seconds = (self.now.at.checked_sub(self.before?.at)?).as_secs_f64();
        let grown = now - before?;
        (seconds > 0.0 && grown >= 0.0).then(|| grown / seconds)
    }

    /// Requests, bytes read and bytes written per second, over all clients.
    pub fn totals(&self) -> [Option<f64>; 3] {
        let now = self.now.moved();
        let before = self.before.map(Sample::moved);
        [0, 1, 2].map(|at| self.rate(now[at] as f64, before.map(|before| before[at] as f64)))
    }
}

impl Sample {
    /// Requests, bytes of READ and bytes of WRITE since the server's start.
    fn moved(&self) -> [u64; 3] {
        let mut sums = [0; 3];
        for one in &self.operations {
            sums[0] += one.requests;
            match (one.program.as_str(), one.procedure.as_str()) {
                ("nfs", "read") => sums[1] += one.bytes,
                ("nfs", "write") => sums[2] += one.bytes,
                _ => {}
            }
        }
        sums
    }
}
