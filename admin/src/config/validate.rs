//! The rules of a configuration beyond its form.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::locate::Point as LocatePoint;
use super::{
    Bandwidth, ByteSize, ClientLimits, Config, Cores, Export, Flow, KeyPath, Provider, Reactors,
    Rpcrdma, Store, access, ceph, format_duration, gateways, gss, hardening, log, nfs4, posix, tls,
};

/// Programs other than the configuration protocol: rpcbind, NFS and MOUNT.
const SERVED_PROGRAMS: [u32; 3] = [100_000, 100_003, 100_005];

/// The limit of core numbers, that of a CPU set.
const CORES_MAX: usize = 1024;
const LISTENERS_MAX: usize = 16;
const EXPORTS_MAX: usize = 256;
const CLIENTS_MAX: usize = 1024;
const LIMITS_MAX: usize = 256;
/// The longest path of MOUNT (RFC 1813 section 5.1.2, MNTPATHLEN).
const EXPORT_PATH_MAX: usize = 1024;
/// The longest name of MOUNT (MNTNAMLEN).
const EXPORT_NAME_MAX: usize = 255;
const CREDITS_MAX: u32 = 4096;
const EXPOSURES_MAX: u32 = 1024;
const EXPOSURES_TOTAL_MAX: u32 = 1 << 20;
/// The data of one READ of the largest size and its buffer need this much.
const EXPOSED_MIN: ByteSize = ByteSize::mib(2);
/// The smallest number of bytes that a client must receive or send in one window.
const TRANSFER_LEAST_MIN: ByteSize = ByteSize::kib(1);
const TRANSFER_LEAST_MAX: ByteSize = ByteSize::gib(1);
const INLINE_STEP: u64 = 1024;
const INLINE_MAX: u64 = 256 * 1024;
const POOL_MIN: ByteSize = ByteSize::mib(8);
const POOL_MAX: ByteSize = ByteSize::gib(1024);
const MEMORY_STORE_MIN: ByteSize = ByteSize::mib(1);
const LOG_FILTER_MAX: usize = 1024;

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The key that breaks it.
    pub path: KeyPath,
    /// The error and the accepted values.
    pub message: String,
    pub(super) point: LocatePoint,
}

impl ConfigProblem {
    /// A rule violated by the value of `path`.
    pub fn new(path: KeyPath, message: impl Into<String>) -> Self {
        Self {
            path,
            message: message.into(),
            point: LocatePoint::Value,
        }
    }
}

/// The most clients with series of their own: each has about ten lines of every scrape.
const CLIENT_SERIES_MAX: u32 = 1024;

/// All violated rules of `config`, in the order of its sections; empty for a valid one.
pub fn validate(config: &Config) -> Vec<ConfigProblem> {
    let mut problems = Problems::default();
    let root = KeyPath::root();
    problems.reactors(&root.key("reactors"), &config.reactors);
    problems.pool(&root.key("mempool"), config);
    problems.fabric(&root.key("fabric"), config);
    problems.listeners(config);
    problems.rpcrdma(&root.key("rpcrdma"), &config.rpcrdma);
    nfs4::check(&mut problems, &root.key("nfs4"), &config.nfs4, config.nfs3);
    gss::check(&mut problems, &root, config);
    problems.flow(&root.key("flow"), &config.flow);
    problems.exports(&root.key("exports"), &config.exports);
    posix::check(&mut problems, &root.key("exports"), config);
    ceph::check(&mut problems, &root.key("exports"), config);
    problems.client_limits(&root.key("limits"), &config.limits);
    if let Some(file) = &config.admin.token_file {
        problems.absolute(&root.key("admin").key("token_file"), file);
    }
    if let Some(file) = &config.admin.roles_file {
        problems.absolute(&root.key("admin").key("roles_file"), file);
    }
    if let Some(file) = &config.admin.audit_file {
        problems.absolute(&root.key("admin").key("audit_file"), file);
    }
    let series = config.admin.client_series;
    if series > CLIENT_SERIES_MAX {
        problems.add(
            &root.key("admin").key("client_series"),
            format!("{series} is out of range; accepted are 0 to {CLIENT_SERIES_MAX}"),
        );
    }
    tls::check(&mut problems, &root.key("admin"), &config.admin);
    access::check(&mut problems, &root.key("admin"), config);
    hardening::check(&mut problems, &root.key("hardening"), &config.hardening);
    problems.log(&root.key("log"), &config.log);
    if let Some(folder) = &config.state_directory {
        problems.absolute(&root.key("state_directory"), folder);
    }
    if let Some(file) = &config.handle_secret {
        problems.absolute(&root.key("handle_secret"), file);
    }
    gateways::check(&mut problems, &root, config);
    problems.list
}

/// Collects violated rules.
#[derive(Default)]
pub(super) struct Problems {
    list: Vec<ConfigProblem>,
}

impl Problems {
    pub(super) fn add(&mut self, path: &KeyPath, message: impl Into<String>) {
        let point = LocatePoint::Value;
        self.list.push(ConfigProblem {
            path: path.clone(),
            message: message.into(),
            point,
        });
    }

    /// Reports the position of the key instead of its value, which may begin lines below.
    pub(super) fn add_at_key(&mut self, path: &KeyPath, message: impl Into<String>) {
        let point = LocatePoint::Key(1);
        self.list.push(ConfigProblem {
            path: path.clone(),
            message: message.into(),
            point,
        });
    }

    pub(super) fn within(&mut self, path: &KeyPath, number: u32, most: u32) {
        if !(1..=most).contains(&number) {
            self.add(
                path,
                format!("{number} is out of range; accepted are 1 to {most}"),
            );
        }
    }

    pub(super) fn duration_within(
        &mut self,
        path: &KeyPath,
        value: Duration,
        least: Duration,
        most: Duration,
    ) {
        if !(least..=most).contains(&value) {
            let [value, least, most] = [value, least, most].map(format_duration);
            self.add(
                path,
                format!("{value} is out of range; accepted are {least} to {most}"),
            );
        }
    }

    pub(super) fn absolute(&mut self, path: &KeyPath, file: &Path) {
        if !file.is_absolute() {
            let file = file.display();
            self.add(
                path,
                format!("`{file}` is relative; write the absolute path"),
            );
        }
    }

    fn reactors(&mut self, path: &KeyPath, reactors: &Reactors) {
        if let Cores::List(cores) = &reactors.cores {
            let path = path.key("cores");
            if cores.is_empty() {
                self.add_at_key(&path, "no cores; write at least one, such as [0], or auto");
            }
            let mut first = HashMap::new();
            for (position, &core) in cores.iter().enumerate() {
                let path = path.index(position);
                if core >= CORES_MAX {
                    let last = CORES_MAX - 1;
                    self.add(
                        &path,
                        format!("there is no core {core}; accepted are 0 to {last}"),
                    );
                }
                if first.insert(core, position).is_some() {
                    self.add(&path, format!("core {core} twice; a core has one reactor"));
                }
            }
        }
        let (least, most) = (Duration::from_micros(1), Duration::from_secs(1));
        self.duration_within(&path.key("idle_after"), reactors.idle_after, least, most);
    }

    fn pool(&mut self, path: &KeyPath, config: &Config) {
        let size = config.mempool.size;
        let path = path.key("size");
        if !(POOL_MIN..=POOL_MAX).contains(&size) {
            let message = format!("{size} is out of range; accepted are {POOL_MIN} to {POOL_MAX}");
            return self.add(&path, message);
        }
        // One connection with all its credits must fit, with space for moving its data.
        let receives = u64::from(config.flow.credits).saturating_mul(config.rpcrdma.inline.bytes());
        if receives > size.bytes() / 2 {
            let receives = ByteSize(receives);
            self.add(
                &path,
                format!(
                    "{size} is too small: the receive buffers of one connection (flow.credits x \
                     rpcrdma.inline) take {receives} and may take half of it at most"
                ),
            );
        }
    }

    fn fabric(&mut self, path: &KeyPath, config: &Config) {
        if config.fabric.len() > LISTENERS_MAX {
            let count = config.fabric.len();
            let message = format!("{count} listeners; at most {LISTENERS_MAX} are accepted");
            self.add_at_key(path, message);
        }
    }

    /// Two listeners cannot have one port at one address. Verbs listeners have ports of their own:
    /// RDMA's port space is not TCP's. iWARP devices (`siw` among them) may use TCP ports
    /// nevertheless, which a note reports ([`Config::notes`]).
    fn listeners(&mut self, config: &Config) {
        let root = KeyPath::root();
        let mut seen: Vec<(KeyPath, SocketAddr, Provider)> = Vec::new();
        let fabrics = config.fabric.iter().enumerate().map(|(position, fabric)| {
            let path = root.key("fabric").index(position).key("listen");
            (path, fabric.listen, fabric.provider)
        });
        let others = [
            (
                root.key("rpc").key("listen"),
                config.rpc.listen,
                Provider::Iwarp,
            ),
            (
                root.key("admin").key("listen"),
                config.admin.listen,
                Provider::Iwarp,
            ),
        ];
        for (path, address, space) in fabrics.chain(others) {
            let other = seen
                .iter()
                .find(|(_, other, other_space)| *other_space == space && clash(*other, address));
            if let Some((other_path, other, _)) = other {
                let message =
                    format!("{address} is taken by {other_path} ({other}); choose another port");
                self.add(&path, message);
            }
            seen.push((path, address, space));
        }
    }

    fn rpcrdma(&mut self, path: &KeyPath, rpcrdma: &Rpcrdma) {
        let versions = path.key("versions");
        for (position, version) in rpcrdma.versions.iter().enumerate() {
            if !matches!(version, 1 | 2) {
                let message = format!("there is no version {version}; accepted are 1 and 2");
                self.add(&versions.index(position), message);
            }
            if rpcrdma.versions[..position].contains(version) {
                self.add(
                    &versions.index(position),
                    format!("version {version} twice"),
                );
            }
        }
        if rpcrdma.versions.is_empty() {
            self.add_at_key(&versions, "no version; accepted are [1], [2] and [1, 2]");
        }
        let inline = rpcrdma.inline;
        if inline.bytes() == 0
            || inline.bytes() > INLINE_MAX
            || !inline.bytes().is_multiple_of(INLINE_STEP)
        {
            let most = ByteSize(INLINE_MAX);
            let message =
                format!("{inline} is not accepted; write a whole number of KiB, 1KiB to {most}");
            self.add(&path.key("inline"), message);
        }
        if rpcrdma.ccp.is_on() && SERVED_PROGRAMS.contains(&rpcrdma.ccp_program) {
            let message = format!(
                "{} is the number of another program served; the usual one is 100417",
                rpcrdma.ccp_program
            );
            self.add(&path.key("ccp_program"), message);
        }
    }

    fn flow(&mut self, path: &KeyPath, flow: &Flow) {
        self.within(&path.key("credits"), flow.credits, CREDITS_MAX);
        for (key, number, most) in [
            ("max_exposures", flow.max_exposures, EXPOSURES_MAX),
            (
                "max_client_exposures",
                flow.max_client_exposures,
                EXPOSURES_TOTAL_MAX,
            ),
            (
                "max_total_exposures",
                flow.max_total_exposures,
                EXPOSURES_TOTAL_MAX,
            ),
        ] {
            self.within(&path.key(key), number, most);
        }
        let bytes = flow.max_exposed_bytes;
        if !(EXPOSED_MIN..=POOL_MAX).contains(&bytes) {
            let message =
                format!("{bytes} is out of range; accepted are {EXPOSED_MIN} to {POOL_MAX}");
            self.add(&path.key("max_exposed_bytes"), message);
        }
        let (least, most) = (Duration::from_millis(1), Duration::from_secs(600));
        self.duration_within(&path.key("done_window"), flow.done_window, least, most);
        let bytes = flow.transfer_least;
        if !(TRANSFER_LEAST_MIN..=TRANSFER_LEAST_MAX).contains(&bytes) {
            let message = format!(
                "{bytes} is out of range; accepted are {TRANSFER_LEAST_MIN} to \
                 {TRANSFER_LEAST_MAX}"
            );
            self.add(&path.key("transfer_least"), message);
        }
        let least = Duration::from_secs(5);
        let window = flow.transfer_window;
        self.duration_within(&path.key("transfer_window"), window, least, most);
    }

    fn exports(&mut self, path: &KeyPath, exports: &[Export]) {
        if exports.len() > EXPORTS_MAX {
            let count = exports.len();
            let message = format!("{count} exports; at most {EXPORTS_MAX} are accepted");
            self.add_at_key(path, message);
        }
        let mut first: HashMap<&str, usize> = HashMap::new();
        for (position, export) in exports.iter().enumerate() {
            let path = path.index(position);
            let name = path.key("path");
            if let Err(message) = export_path(&export.path) {
                self.add(&name, message);
            }
            if let Some(other) = first.insert(&export.path, position) {
                let message = format!(
                    "`{}` is the path of exports[{other}] already; each export needs its own",
                    export.path.escape_debug()
                );
                self.add(&name, message);
            }
            self.store(&path.key("store"), &export.store);
            let clients = path.key("clients");
            if export.clients.is_empty() {
                let message = "no clients, so no host could mount; write networks such as \
                    [\"10.0.0.0/8\"], or leave the key out for loopback";
                self.add_at_key(&clients, message);
            }
            if export.clients.len() > CLIENTS_MAX {
                let count = export.clients.len();
                let message = format!("{count} networks; at most {CLIENTS_MAX} are accepted");
                self.add_at_key(&clients, message);
            }
            if let Some(limits) = &export.limits {
                let path = path.key("limits");
                self.rates(&path, limits.iops, limits.bandwidth, "export");
            }
        }
    }

    fn store(&mut self, path: &KeyPath, store: &Store) {
        match store {
            Store::Memory { size, inodes } => {
                if *size < MEMORY_STORE_MIN {
                    let message =
                        format!("{size} is too small; accepted is {MEMORY_STORE_MIN} or more");
                    self.add(&path.key("size"), message);
                }
                if *inodes == Some(0) {
                    let message = "0 is too small; the root directory is one";
                    self.add(&path.key("inodes"), message);
                }
            }
            // These are checked together.
            Store::Posix(_) | Store::Ceph(_) => {}
        }
    }

    fn client_limits(&mut self, path: &KeyPath, limits: &[ClientLimits]) {
        if limits.len() > LIMITS_MAX {
            let count = limits.len();
            let message = format!("{count} entries; at most {LIMITS_MAX} are accepted");
            self.add_at_key(path, message);
        }
        for (position, entry) in limits.iter().enumerate() {
            let path = path.index(position);
            let clients = path.key("clients");
            if entry.clients.is_empty() {
                let message = "no clients; write networks such as [\"10.0.0.0/8\"]";
                self.add_at_key(&clients, message);
            }
            if entry.clients.len() > CLIENTS_MAX {
                let count = entry.clients.len();
                let message = format!("{count} networks; at most {CLIENTS_MAX} are accepted");
                self.add_at_key(&clients, message);
            }
            self.rates(&path, entry.iops, entry.bandwidth, "client");
        }
    }

    fn rates(
        &mut self,
        path: &KeyPath,
        iops: Option<u64>,
        bandwidth: Option<Bandwidth>,
        whose: &str,
    ) {
        if iops.is_none() && bandwidth.is_none() {
            self.add(path, "has no limit; write iops, bandwidth or both");
        }
        if iops == Some(0) {
            let message = format!("0 would stop the {whose}; accepted is 1 or more");
            self.add(&path.key("iops"), message);
        }
        if bandwidth.is_some_and(|bandwidth| bandwidth.0 == 0) {
            let message = format!("0 would stop the {whose}; accepted is 1/s or more");
            self.add(&path.key("bandwidth"), message);
        }
    }

    fn log(&mut self, path: &KeyPath, filter: &str) {
        if filter.trim().is_empty() || filter.len() > LOG_FILTER_MAX {
            let message = format!(
                "write a tracing filter such as info or info,millrace=debug, of at most \
                 {LOG_FILTER_MAX} bytes"
            );
            self.add(path, message);
        } else if let Err(message) = log::check(filter) {
            self.add(path, message);
        }
    }
}

/// Whether two listeners have the same port of the same address; port 0 is any free port.
pub(super) fn clash(one: SocketAddr, other: SocketAddr) -> bool {
    let same_address =
        one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && one.port() != 0 && same_address
}

/// An export's path is absolute and normalized, so that equal exports compare equal.
fn export_path(path: &str) -> Result<(), String> {
    let shown = path.escape_debug();
    let Some(rest) = path.strip_prefix('/') else {
        return Err(format!(
            "`{shown}` is not absolute; write it from `/`, such as /scratch"
        ));
    };
    if path.len() > EXPORT_PATH_MAX {
        return Err(format!(
            "longer than {EXPORT_PATH_MAX} bytes, the most MOUNT can carry"
        ));
    }
    if path.chars().any(char::is_control) {
        return Err(format!(
            "`{shown}` has control characters; write it without"
        ));
    }
    if rest.is_empty() {
        return Ok(());
    }
    for name in rest.split('/') {
        match name {
            "" => {
                return Err(format!(
                    "`{shown}` is not normalized; write one slash between names and none at the \
                     end"
                ));
            }
            "." | ".." => {
                return Err(format!(
                    "`{shown}` is not normalized; write it without `.` and `..`"
                ));
            }
            name if name.len() > EXPORT_NAME_MAX => {
                return Err(format!("a name of more than {EXPORT_NAME_MAX} bytes"));
            }
            _ => {}
        }
    }
    Ok(())
}
