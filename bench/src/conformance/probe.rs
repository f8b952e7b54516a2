//! What cases work with: the server, and a directory of the probe's own on it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_gss::Protection;
use millrace_mempool::Pool;
use millrace_wire::nfs3::{
    CreateArguments, CreateHow, CreateResults, FileHandle, MkdirArguments, NameInDirectory,
    Procedure, RemoveResults, SetAttributes, Stability, WriteArguments, WriteResults,
};
use millrace_wire::xdr::{Bulk, Decode, Encode, from_bytes};

use super::message::{Caller, kind, nfs, parse, plain, results, rpc, words};
use super::peer::{Peer, ProbeOptions, Stated};
use super::verdict::{Stop, fail, skip, word};
use crate::requester::Identity;
use crate::requester::session::mount;

/// Bytes of the file that cases read.
pub(crate) const FILE_BYTES: usize = 16 << 10;
/// Names in the directory with a listing that is longer than a message.
const NAMES: usize = 60;

/// How long a server may take to be itself again after a case.
const RECOVERY_MAX: Duration = Duration::from_secs(60);

/// Where the server is.
#[derive(Clone, Debug)]
pub(crate) struct ProbeTarget {
    pub rdma: SocketAddr,
    pub mount: SocketAddr,
    /// NFS over TCP.
    pub nfs: SocketAddr,
    pub export: String,
}

/// The objects that the probe made on the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixture {
    pub root: FileHandle,
    /// Holds [`NAMES`] long names and the file.
    pub directory: FileHandle,
    /// Holds [`pattern`] of [`FILE_BYTES`].
    pub file: FileHandle,
    /// To be written to.
    pub scratch: FileHandle,
}

/// Bytes that are different everywhere.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at % 251) as u8 ^ (at >> 8) as u8)
        .collect()
}

/// The probe.
pub(crate) struct Probe {
    pub place: ProbeTarget,
    pub options: ProbeOptions,
    pub caller: Caller,
    pool: Pool,
    xid: u32,
    fixture: Option<Result<Fixture, String>>,
    versions: Option<(u32, u32)>,
    ccp: Option<bool>,
    /// The service that a ticket is for.
    pub principal: Option<String>,
    /// The context of signed calls.
    pub gss: Option<GssProbe>,
}

/// A context of RPCSEC_GSS with the server.
#[derive(Clone)]
pub(crate) struct GssProbe {
    pub handle: Vec<u8>,
    pub window: u32,
    /// Whether the server has signed the window.
    pub proved: bool,
    pub protection: Arc<Protection>,
    /// The highest number that a call had.
    pub sequence: u32,
}

impl Probe {
    pub fn new(place: ProbeTarget, options: ProbeOptions, caller: Caller, pool: Pool) -> Self {
        Self {
            place,
            options,
            caller,
            pool,
            xid: std::process::id() << 12,
            fixture: None,
            versions: None,
            ccp: None,
            principal: None,
            gss: None,
        }
    }

    /// An XID that no call had yet.
    pub fn xid(&mut self) -> u32 {
        self.xid = self.xid.wrapping_add(1);
        self.xid
    }

    /// A connection with the usual statements.
    pub fn peer(&self) -> Result<Peer, Stop> {
        self.peer_with(Stated::default())
    }

    pub fn peer_with(&self, stated: Stated) -> Result<Peer, Stop> {
        Peer::connect(self.place.rdma, &self.pool, stated, self.options)
    }

    /// An RPC call with a new XID.
    pub fn call(&mut self, procedure: Procedure, arguments: &impl Encode) -> Vec<u8> {
        let (caller, xid) = (self.caller, self.xid());
        rpc(
            caller,
            xid,
            nfs(procedure),
            &super::message::encoded(arguments),
        )
    }

    /// A NULL call with a new XID.
    pub fn null(&mut self) -> Vec<u8> {
        self.call(Procedure::Null, &())
    }

    /// Passes if a NULL call is the next thing that is answered: the connection lives, and nothing
    /// else was sent before.
    pub fn lives(&mut self, peer: &mut Peer) -> Result<(), Stop> {
        let call = self.null();
        let answer = peer.exchange(&plain(&call))?;
        let parsed = parse(&answer)?;
        if Some(parsed.xid) != word(&call, 0) {
            let stray =
                super::verdict::fail_by("nothing expected but the reply to NULL, not", &answer);
            return Err(stray);
        }
        results(&parsed.message).map(|_| ())
    }

    /// Waits until the server answers, if the last case was too much for it. Whether it does.
    pub fn recovers(&mut self) -> bool {
        let deadline = Instant::now() + RECOVERY_MAX;
        loop {
            let answered = self.peer().and_then(|mut peer| self.lives(&mut peer));
            if answered.is_ok() || Instant::now() >= deadline {
                return answered.is_ok();
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Makes the first call of a connection. Its reply grants the credits.
    pub fn warm(&mut self, peer: &mut Peer) -> Result<u32, Stop> {
        let call = self.null();
        Ok(parse(&peer.exchange(&plain(&call))?)?.credits)
    }

    /// Lowest and highest version served.
    pub fn versions(&mut self) -> Result<(u32, u32), Stop> {
        if let Some(versions) = self.versions {
            return Ok(versions);
        }
        let xid = self.xid();
        let mut peer = self.peer()?;
        let answer = peer.exchange(&words(&[xid, 9, 1, kind::MSG, 0, 0, 0]))?;
        match (
            word(&answer, 3),
            word(&answer, 4),
            word(&answer, 5),
            word(&answer, 6),
        ) {
            (Some(kind::ERROR), Some(1), Some(low), Some(high)) => {
                self.versions = Some((low, high));
                Ok((low, high))
            }
            _ => Err(super::verdict::fail_by("ERR_VERS expected, not", &answer)),
        }
    }

    /// Passes if version two is served, and skips otherwise.
    pub fn needs_two(&mut self) -> Result<(), Stop> {
        match self.versions() {
            Ok((low, high)) if low <= 2 && high >= 2 => Ok(()),
            Ok((low, high)) => Err(skip(format!("the server has versions {low} to {high}"))),
            Err(_) => Err(skip("the server does not say which versions it has")),
        }
    }

    /// Passes if the configuration protocol is served, and skips otherwise.
    pub fn needs_ccp(&mut self) -> Result<(), Stop> {
        let offered = match self.ccp {
            Some(offered) => offered,
            None => {
                let (caller, xid) = (self.caller, self.xid());
                let target = (millrace_wire::ccp::PROGRAM, millrace_wire::ccp::VERSION, 0);
                let answer = self
                    .peer()?
                    .exchange(&plain(&rpc(caller, xid, target, &[])))?;
                let parsed = parse(&answer)?;
                let offered = results(&parsed.message).is_ok();
                self.ccp = Some(offered);
                offered
            }
        };
        if offered {
            Ok(())
        } else {
            Err(skip("the server does not offer program 100417"))
        }
    }

    /// The probe's directory, made when it is needed first.
    pub fn fixture(&mut self) -> Result<Fixture, Stop> {
        if self.fixture.is_none() {
            let made = self.make().map_err(|stop| match stop {
                Stop::Skip(why) => why,
                Stop::Fail(difference) => difference.to_string(),
            });
            self.fixture = Some(made);
        }
        match &self.fixture {
            Some(Ok(fixture)) => Ok(*fixture),
            Some(Err(why)) => Err(fail(format!("no directory to work in: {why}"))),
            None => Err(fail("no directory to work in")),
        }
    }

    fn name() -> String {
        format!("millrace-conformance.{}", std::process::id())
    }

    fn make(&mut self) -> Result<Fixture, Stop> {
        let identity = Identity::system("probe", self.caller.uid, self.caller.gid, &[]);
        let timeout = self.options.timeout.max(Duration::from_secs(5));
        let root = mount(self.place.mount, &self.place.export, &identity, timeout)
            .map_err(|error| fail(format!("MOUNT of {}: {error}", self.place.export)))?;
        let mut peer = self.peer()?;
        let name = Self::name();
        let arguments = MkdirArguments {
            entry: NameInDirectory {
                directory: root,
                name: name.as_bytes(),
            },
            attributes: mode(0o755),
        };
        let made = self.run::<CreateResults>(&mut peer, Procedure::Mkdir, &arguments)?;
        let made = made.map_err(|failure| fail(format!("MKDIR: {failure:?}")))?;
        let directory = made.object.ok_or_else(|| fail("MKDIR gave no handle"))?;
        let file = self.create(&mut peer, directory, b"data")?;
        let scratch = self.create(&mut peer, directory, b"scratch")?;
        for number in 0..NAMES {
            let name = format!("{number:04}-{}", "n".repeat(90));
            self.create(&mut peer, directory, name.as_bytes())?;
        }
        let content = pattern(FILE_BYTES);
        for (index, piece) in content.chunks(512).enumerate() {
            let arguments = WriteArguments {
                file,
                offset: 512 * index as u64,
                count: 512,
                stable: Stability::Unstable,
                data: Bulk::inline(piece),
            };
            let written = self.run::<WriteResults>(&mut peer, Procedure::Write, &arguments)?;
            written.map_err(|failure| fail(format!("WRITE: {failure:?}")))?;
        }
        Ok(Fixture {
            root,
            directory,
            file,
            scratch,
        })
    }

    fn create(
        &mut self,
        peer: &mut Peer,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<FileHandle, Stop> {
        let arguments = CreateArguments {
            entry: NameInDirectory { directory, name },
            how: CreateHow::Unchecked(mode(0o644)),
        };
        let made = self.run::<CreateResults>(peer, Procedure::Create, &arguments)?;
        let made = made.map_err(|failure| fail(format!("CREATE: {failure:?}")))?;
        made.object.ok_or_else(|| fail("CREATE gave no handle"))
    }

    /// A call that fits inline both ways.
    pub fn run<T: for<'a> Decode<'a>>(
        &mut self,
        peer: &mut Peer,
        procedure: Procedure,
        arguments: &impl Encode,
    ) -> Result<T, Stop> {
        let call = self.call(procedure, arguments);
        let parsed = parse(&peer.exchange(&plain(&call))?)?;
        let results = results(&parsed.message)?;
        from_bytes(results).map_err(|_| fail(format!("{} gave no results", procedure.name())))
    }

    /// Removes the objects that the probe made.
    pub fn clean(&mut self) -> Result<(), Stop> {
        let Some(Ok(fixture)) = self.fixture else {
            return Ok(());
        };
        let mut peer = self.peer()?;
        let mut names: Vec<String> = (0..NAMES)
            .map(|number| format!("{number:04}-{}", "n".repeat(90)))
            .collect();
        names.extend(["data", "scratch"].map(str::to_owned));
        let directory = fixture.directory;
        for name in &names {
            let name = name.as_bytes();
            let call = self.call(Procedure::Remove, &NameInDirectory { directory, name });
            peer.exchange(&plain(&call))?;
        }
        let (root, name) = (fixture.root, Self::name());
        let entry = NameInDirectory {
            directory: root,
            name: name.as_bytes(),
        };
        let removed = self.run::<RemoveResults>(&mut peer, Procedure::Rmdir, &entry)?;
        removed
            .map(|_| ())
            .map_err(|failure| fail(format!("RMDIR: {failure:?}")))
    }
}

fn mode(mode: u32) -> SetAttributes {
    SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    }
}
