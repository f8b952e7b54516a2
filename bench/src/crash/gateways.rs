//! The servers of a run about opens and locks: one that is started again, or two gateways to the
//! same files, of which one takes the place of the other.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::server::{Own, OwnPlan, PAUSE};

/// The two names.
const NAMES: [&str; 2] = ["a", "b"];

/// What serves, and what comes after its end: the same server in the same place, or another
/// gateway.
pub struct StateServers {
    /// One, or the two gateways.
    members: Vec<Own>,
    /// The one that ends next, or that has taken the place of the one that ended.
    serving: usize,
    /// The folder of each one's records of clients.
    records: Vec<PathBuf>,
    gateways: Option<GatewayControl>,
}

/// How one gateway takes the place of another one.
struct GatewayControl {
    /// The program `millracectl`.
    program: PathBuf,
    /// Whether clients can reclaim after a kill. Without it servers are stopped in order instead.
    survives_kill: bool,
}

impl StateServers {
    /// One server, which is started.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn alone(plan: &OwnPlan<'_>) -> Result<Self> {
        let mut server = Own::new(plan)?;
        server.start()?;
        Ok(Self {
            members: vec![server],
            serving: 0,
            records: vec![plan.folder.join("state/clients")],
            gateways: None,
        })
    }

    /// Two gateways, which are started. `survives_kill` is whether locks outlive the process.
    ///
    /// # Errors
    /// If they do not come up.
    pub fn gateways(plan: &OwnPlan<'_>, survives_kill: bool) -> Result<Self> {
        let program = plan.program.with_file_name("millracectl");
        ensure!(
            program.exists(),
            "--gateways needs millracectl beside {}",
            plan.program.display()
        );
        let shared = plan.folder.join("gateways");
        fs::create_dir(&shared)?;
        let secret = plan.folder.join("handle-secret");
        fs::write(&secret, "00112233445566778899aabbccddeeff\n")?;
        let mut members = Vec::new();
        for name in NAMES {
            let folder = &plan.folder.join(name);
            fs::create_dir(folder)?;
            let keys = &format!(
                "{}handle_secret: {}\ngateways: {{ name: {name}, directory: {} }}\n",
                plan.keys,
                secret.display(),
                shared.display()
            );
            let mut member = Own::new(&OwnPlan {
                folder,
                keys,
                ..*plan
            })?;
            member.start()?;
            members.push(member);
        }
        let records = NAMES.map(|name| shared.join(name).join("clients"));
        Ok(Self {
            members,
            serving: 0,
            records: records.into(),
            gateways: Some(GatewayControl {
                program,
                survives_kill,
            }),
        })
    }

    /// All, whether they run or not.
    pub fn all(&self) -> &[Own] {
        &self.members
    }

    /// The number of the server that ends next, or that has taken the place of the one that ended.
    pub fn serving(&self) -> usize {
        self.serving
    }

    /// The number of the other one.
    pub fn other(&self) -> Option<usize> {
        (self.members.len() > 1).then_some(1 - self.serving)
    }

    /// The folder with the records of the clients of the former.
    pub fn records(&self) -> &Path {
        &self.records[self.serving]
    }

    /// Chooses the one that ends next.
    pub fn choose(&mut self, serving: usize) {
        self.serving = serving;
    }

    /// Fails if one has ended by itself.
    ///
    /// # Errors
    /// That it has.
    pub fn check(&mut self) -> Result<()> {
        self.members.iter_mut().try_for_each(Own::check)
    }

    /// Ends one.
    ///
    /// # Errors
    /// If it has ended before, or does not end in order.
    pub fn end(&mut self) -> Result<()> {
        let serving = &mut self.members[self.serving];
        match &self.gateways {
            Some(gateways) if !gateways.survives_kill => stop(serving),
            _ => serving.kill(),
        }
    }

    /// Has clients served again: where they were, or by the other gateway, beside which the one
    /// that has ended is started again.
    ///
    /// # Errors
    /// If that fails, or clients may not reclaim.
    pub fn come_back(&mut self) -> Result<()> {
        let ended = self.serving;
        if let Some(gateways) = &self.gateways {
            self.serving = 1 - ended;
            gateways.take_over(&self.members[self.serving], NAMES[ended])?;
        }
        self.members[ended].start()
    }

    /// Ends all.
    ///
    /// # Errors
    /// If one has ended by itself.
    pub fn finish(&mut self) -> Result<()> {
        self.members.iter_mut().try_for_each(Own::kill)
    }
}

impl GatewayControl {
    /// Has a gateway take the place of another one, as an operator would.
    fn take_over(&self, by: &Own, name: &str) -> Result<()> {
        let mut command = Command::new(&self.program);
        command
            .arg("--address")
            .arg(by.admin())
            .args(["--json", "--timeout", "60s", "gateways", "take-over", name])
            .stdin(Stdio::null());
        if !self.survives_kill {
            command.arg("--fenced");
        }
        let done = command.output().context("cannot run millracectl")?;
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        ensure!(
            done.status.success(),
            "gateways take-over {name}: {said}{}",
            String::from_utf8_lossy(&done.stderr)
        );
        let taken: serde_json::Value = serde_json::from_str(&said)?;
        ensure!(
            taken["may_reclaim"] == true,
            "clients may not reclaim at the other gateway: {said}"
        );
        Ok(())
    }
}

/// Stops a server in order.
fn stop(server: &mut Own) -> Result<()> {
    server.check()?;
    server.ask_to_end();
    let start = Instant::now();
    while !server.has_ended()? {
        ensure!(
            start.elapsed() < server.timeout(),
            "the server does not end in order"
        );
        thread::sleep(PAUSE);
    }
    Ok(())
}
