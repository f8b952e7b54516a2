//! The requester's own correctness cases, against any server of NFS version 3 over RDMA, and of
//! version 4.1 if it serves that.
//!
//! A case passes, fails, or is noted: where the protocol permits several answers, one that differs
//! from millraced's is noted and is not a failure.
//!
//! | server | what is noted, or taken into account |
//! | --- | --- |
//! | Linux's knfsd | A name of more than 255 bytes is answered GARBAGE_ARGS, as it cannot decode the name; RFC 1813 specifies NFS3ERR_NAMETOOLONG. |
//! | Linux's knfsd | It transfers no more than FSINFO announces (256 KiB in a guest of 1 GiB): larger chunks are answered ERR_CHUNK. Cases and copies observe FSINFO. |
//! | Linux's siw | As responder it loses a message that follows the MPA reply too closely: `--settle`. |

mod callbacks;
mod calls;
mod context;
mod data;
mod names;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::client::{Client, spoken};
use crate::spawn::Spawned;

use context::Context;

/// Run correctness cases against a server, with one line for each and a summary.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  Against a target started for it:
    millrace-bench cases --spawn build/release/millraced
  The same in RPC-over-RDMA version two:
    millrace-bench cases --spawn build/release/millraced --version-two
  Against Linux's knfsd on siw, whose mountd listens on port 20048:
    millrace-bench cases --target 10.0.0.1:20049 --mount 10.0.0.1:20048 --export /srv
")]
pub struct Cases {
    #[command(flatten)]
    client: Client,

    /// Start this `millraced` on free ports, and stop it afterwards. With --classic it runs in
    /// classic mode.
    #[arg(
        long,
        value_name = "PATH",
        conflicts_with_all = ["target", "mount", "rpcbind", "export"]
    )]
    spawn: Option<PathBuf>,

    /// Run only cases whose name contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// Print one JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

/// The outcome of a case that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As required.
    Pass,
    /// Permitted, but different.
    Note(String),
}

/// The body of a case.
type Body = Box<dyn FnOnce(&mut Context) -> Result<Outcome>>;

/// A case with its name.
pub(crate) struct Case {
    name: String,
    run: Body,
}

impl Case {
    pub(crate) fn new(
        name: impl Into<String>,
        run: impl FnOnce(&mut Context) -> Result<Outcome> + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            run: Box::new(run),
        }
    }
}

/// One line of the report.
#[derive(Clone, Debug, serde::Serialize)]
struct CaseLine {
    name: String,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

impl Cases {
    /// Runs and prints. False if a case failed.
    ///
    /// # Errors
    /// If the server cannot be reached at all.
    pub fn run(&self) -> Result<bool> {
        let spawned = match &self.spawn {
            Some(path) => {
                let options = &self.client.options;
                Some(Spawned::start(path, 0, &options.fabric, options.classic)?)
            }
            None => None,
        };
        let client = spawned.as_ref().map_or_else(
            || self.client.clone(),
            |spawned| spawned.client(&self.client),
        );
        let mut context = Context::new(client)?;
        let version = spoken(context.session.connection());
        if !self.json {
            println!("RPC-over-RDMA version {version}");
        }
        let mut cases = Vec::new();
        data::cases(&mut cases);
        names::cases(&mut cases);
        calls::cases(&mut cases);
        callbacks::cases(&mut cases);
        let mut lines = Vec::new();
        for case in cases {
            let wanted = self
                .only
                .as_ref()
                .is_none_or(|only| case.name.contains(only));
            if !wanted {
                continue;
            }
            let (verdict, detail) = match (case.run)(&mut context) {
                Ok(Outcome::Pass) => ("ok", None),
                Ok(Outcome::Note(note)) => ("note", Some(note)),
                Err(error) => {
                    context.clear()?;
                    ("FAIL", Some(format!("{error:#}")))
                }
            };
            if !self.json {
                let detail = detail
                    .as_ref()
                    .map_or(String::new(), |text| format!(": {text}"));
                println!("{verdict:<5}{}{detail}", case.name);
            }
            lines.push(CaseLine {
                name: case.name,
                verdict,
                detail,
            });
        }
        context.finish()?;
        let failed = lines.iter().filter(|line| line.verdict == "FAIL").count();
        let passed = lines.len() - failed;
        if self.json {
            let report = serde_json::json!({
                "rpcrdma_version": version,
                "passed": passed,
                "failed": failed,
                "cases": lines,
            });
            println!("{report}");
        } else {
            println!("{passed} passed, {failed} failed");
        }
        Ok(failed == 0)
    }
}
