//! Requirements that a peer can observe, tested against any NFS/RDMA server on iWARP.
//!
//! Each case is named by its row in the conformance matrix (`target/wire/CONFORMANCE.md`, and
//! `target/wire/GSS.md` for RPCSEC_GSS), has a connection of its own, and composes its own bytes: a
//! server that hangs or closes ends that case only. Where a rule requires silence, the case sends an
//! ordinary call next, whose reply must be the first message to arrive.
//!
//! Cases change nothing but a directory of their own, which they make in the export and remove.

mod cases;
mod exchanges;
mod expected;
mod fpdu;
mod message;
mod peer;
mod probe;
mod report;
mod stream;
mod verdict;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::client::pool;
use crate::fabric::Fabric;
use crate::lookup::resolve;
use crate::spawn::Spawned;
use crate::units::duration;

use cases::Question;
use expected::Expected;
use message::Caller;
use peer::ProbeOptions;
use probe::{Probe, ProbeTarget};
use report::{Report, ReportLine};
use verdict::{Done, Stop};

/// NFS over RDMA (RFC 5666 section 12).
const PORT: u16 = 20049;

/// Test which requirements a server meets, row by row of the conformance matrix.
///
/// The probe composes iWARP frames itself, including malformed ones, so it uses TCP and never an
/// RDMA device: the server must use iWARP, in software or on an adapter.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Each line is a row of the conformance matrix: pass, FAIL with the field and the bytes that differ, or
skip with the reason (a feature that is not offered is no failure). The exit status is 0 if nothing
failed; with --expect, if the result of each row is as recorded. Rows that test file content need
a writable export; without, they fail. Nothing is changed but a directory that the probe
makes and removes.

Examples:
  A millraced started for it:
    millrace-bench conformance --spawn build/release/millraced
  A server at the default ports (NFS over RDMA 20049, MOUNT 2049):
    millrace-bench conformance filer.example --export /scratch
  Linux's knfsd on siw, with mountd on another port (see rpcinfo -p):
    millrace-bench conformance 10.0.0.1 --export /srv --mount-port 20048
  With a ticket, rows about Kerberos too:
    millrace-bench conformance filer.example --export /secure --principal nfs@filer.example
  Only chunks; the list of rows; a table for a document:
    millrace-bench conformance filer.example --only RR1-CHUNK
    millrace-bench conformance --list
    millrace-bench conformance --spawn build/release/millraced --markdown
  Compare with results recorded by --markdown:
    millrace-bench conformance --spawn build/release/millraced --expect bench/conformance/millraced.md
")]
pub struct Conformance {
    /// The server, and the port of NFS over RDMA (default 20049).
    #[arg(value_name = "HOST[:PORT]", required_unless_present_any = ["spawn", "list"])]
    server: Option<String>,

    /// Start this `millraced` on free ports instead, and end it afterwards.
    #[arg(long, value_name = "PATH", conflicts_with = "server")]
    spawn: Option<PathBuf>,

    /// The export to work in.
    #[arg(long, value_name = "PATH", default_value = "/scratch")]
    export: String,

    /// Port of MOUNT over TCP at the same host.
    #[arg(long, value_name = "PORT", default_value_t = 2049)]
    mount_port: u16,

    /// Port of NFS over TCP at the same host.
    #[arg(long, value_name = "PORT", default_value_t = 2049)]
    nfs_port: u16,

    /// User number of the calls.
    #[arg(long, value_name = "UID", default_value_t = 0)]
    uid: u32,

    /// Group number of the calls.
    #[arg(long, value_name = "GID", default_value_t = 0)]
    gid: u32,

    /// The server's service, as SERVICE@HOST or a principal's name: rows about signed calls need a
    /// Kerberos ticket for it, from the cache that KRB5CCNAME names or the default one (`kinit`).
    #[arg(long, value_name = "NAME")]
    principal: Option<String>,

    /// Run only rows whose name begins with this.
    #[arg(long, value_name = "ROW")]
    only: Option<String>,

    /// List the rows, without a server.
    #[arg(long)]
    list: bool,

    /// Print one JSON object instead of lines.
    #[arg(long, conflicts_with = "markdown")]
    json: bool,

    /// Print a table for a document instead of lines.
    #[arg(long)]
    markdown: bool,

    /// Compare with the table in this file, printed earlier by --markdown: the status is 0 if the
    /// result of each row is as recorded.
    #[arg(long, value_name = "FILE")]
    expect: Option<PathBuf>,

    /// Timeout of connecting, and of each answer.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    timeout: Duration,

    /// How long to wait on a new connection before the first message: Linux's siw as responder
    /// loses a message that follows too closely.
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = duration)]
    settle: Duration,
}

impl Conformance {
    /// Runs and prints. False if a row failed, or differs from the recorded result.
    ///
    /// # Errors
    /// If the server cannot be reached at all, or what is expected cannot be read.
    pub fn run(&self) -> Result<bool> {
        let only = self.only.as_deref().unwrap_or_default();
        let mut cases = cases::all();
        cases.retain(|case| case.row.starts_with(only));
        if cases.is_empty() {
            bail!("no row begins with `{only}`: see --list");
        }
        if self.list {
            for case in cases {
                println!("{:<16}{}", case.row, case.title);
            }
            return Ok(true);
        }
        let expected = match &self.expect {
            Some(path) => Some(
                std::fs::read_to_string(path)
                    .map_err(anyhow::Error::from)
                    .and_then(|text| Expected::parse(&text))
                    .with_context(|| path.display().to_string())?,
            ),
            None => None,
        };
        let spawned = match &self.spawn {
            Some(path) => Some(Spawned::start(path, 0, &Fabric::default(), false)?),
            None => None,
        };
        let options = ProbeOptions {
            timeout: self.timeout,
            settle: self.settle,
        };
        let caller = Caller {
            uid: self.uid,
            gid: self.gid,
        };
        let place = self.place(spawned.as_ref())?;
        let mut probe = Probe::new(place, options, caller, pool(64 << 20)?);
        probe.principal.clone_from(&self.principal);
        probe
            .peer()
            .map_err(|stop| match stop {
                Stop::Fail(difference) => anyhow::anyhow!("{difference}"),
                Stop::Skip(why) => anyhow::anyhow!("{why}"),
            })
            .with_context(|| format!("no NFS over RDMA at {}", probe.place.rdma))?;
        let mut report = Report::default();
        let mut lost = None;
        for case in cases {
            let line = match lost {
                Some(row) => {
                    ReportLine::new(case.row, case.title, Err(lost_after(row)), Duration::ZERO)
                }
                None => judge(&case, &mut probe),
            };
            if !self.json && !self.markdown {
                println!("{line}");
            }
            if line.failed() && !probe.recovers() {
                lost = Some(case.row);
            }
            report.lines.push(line);
        }
        let mut clean = true;
        if lost.is_none()
            && let Err(Stop::Fail(difference)) = probe.clean()
        {
            clean = false;
            eprintln!("cannot remove the probe's directory: {difference}");
        }
        if self.json {
            println!("{}", report.json());
        } else if self.markdown {
            print!("{}", report.markdown());
        } else {
            println!("{}", report.sum());
        }
        let Some(expected) = expected else {
            return Ok(clean && report.failed() == 0);
        };
        let differences = expected.differences(&report, only);
        for difference in &differences {
            eprintln!("not as recorded: {difference}");
        }
        Ok(clean && differences.is_empty())
    }

    /// Where the server is.
    fn place(&self, spawned: Option<&Spawned>) -> Result<ProbeTarget> {
        if let Some(spawned) = spawned {
            let [rdma, rpc] = spawned.addresses();
            return Ok(ProbeTarget {
                rdma,
                mount: rpc,
                nfs: rpc,
                export: spawned.export().to_owned(),
            });
        }
        let rdma = resolve(self.server.as_deref().unwrap_or_default(), PORT)?;
        Ok(ProbeTarget {
            rdma,
            mount: SocketAddr::new(rdma.ip(), self.mount_port),
            nfs: SocketAddr::new(rdma.ip(), self.nfs_port),
            export: self.export.clone(),
        })
    }
}

/// The reason to skip all rows after the server stopped answering.
fn lost_after(row: &str) -> Stop {
    Stop::Skip(format!("the server has not answered any more since {row}"))
}

/// Runs one case.
fn judge(case: &Question, probe: &mut Probe) -> ReportLine {
    let start = Instant::now();
    let done: Done = case.run(probe);
    ReportLine::new(case.row, case.title, done, start.elapsed())
}

#[cfg(test)]
mod faulty;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_row_of_the_matrix_and_a_title_of_its_own() {
        let matrix = [
            include_str!("../../../target/wire/CONFORMANCE.md"),
            include_str!("../../../target/wire/GSS.md"),
        ]
        .concat();
        let cases = cases::all();
        assert!(cases.len() >= 60);
        let mut titles = std::collections::HashSet::new();
        for case in &cases {
            let row = format!("| {} |", case.row);
            assert!(matrix.contains(&row), "{} is no row", case.row);
            assert!(titles.insert(case.title), "{} twice", case.title);
        }
    }
}
