//! The files that a server of a configuration uses.

use std::env;
use std::fs;
use std::path::{Path, PathBuf, absolute};

use millrace_admin::config::{Config, KeyPath, Provider, Store};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use super::may_serve_folders;
use crate::service::devices;

/// The use of the files of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlaceUse {
    /// They are read.
    Read,
    /// Devices are opened, read, written and controlled.
    Device,
    /// They are read, written, made and removed.
    Write,
}

/// A folder or file in use, including everything below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedPath {
    /// The key that names it; the root for system paths.
    pub key: KeyPath,
    /// Its path.
    pub path: PathBuf,
    /// Its use.
    pub used: PlaceUse,
}

/// System paths of every server: memory, processors, mounts, and randomness.
const SYSTEM: [(&str, PlaceUse); 6] = [
    ("/proc", PlaceUse::Read),
    ("/sys", PlaceUse::Read),
    ("/dev/null", PlaceUse::Device),
    ("/dev/zero", PlaceUse::Device),
    ("/dev/random", PlaceUse::Read),
    ("/dev/urandom", PlaceUse::Read),
];

/// Libraries loaded on demand, and their files: the user database of `groups: server`, of Kerberos and
/// of owners by name, and the drivers of RDMA devices. Whole folders, as files in them may be replaced while the server runs.
const LIBRARIES: [&str; 10] = [
    "/etc",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/run/systemd",
    "/var/db",
    "/var/lib/extrausers",
    "/var/lib/sss",
];

/// The nodes of RDMA devices, including later ones.
const DEVICES: &str = "/dev/infiniband";

/// The server's own files, each with its folder, as files are replaced under the same names; for a
/// link, also its target.
pub fn own(config: &Config, file: &Path) -> Vec<UsedPath> {
    let root = KeyPath::root;
    let admin = || root().key("admin");
    let mut files = vec![(root(), Some(file), PlaceUse::Write)];
    let of_admin = &config.admin;
    files.push((
        admin().key("token_file"),
        of_admin.token_file.as_deref(),
        PlaceUse::Read,
    ));
    files.push((
        admin().key("roles_file"),
        of_admin.roles_file.as_deref(),
        PlaceUse::Read,
    ));
    files.push((
        admin().key("audit_file"),
        of_admin.audit_file.as_deref(),
        PlaceUse::Write,
    ));
    files.push((
        admin().key("socket"),
        of_admin.socket.as_deref(),
        PlaceUse::Write,
    ));
    files.push((
        root().key("handle_secret"),
        config.handle_secret.as_deref(),
        PlaceUse::Read,
    ));
    if let Some(tls) = &of_admin.tls {
        let key = |name| admin().key("tls").key(name);
        files.extend([
            (
                key("certificate"),
                Some(tls.certificate.as_path()),
                PlaceUse::Read,
            ),
            (key("key"), Some(tls.key.as_path()), PlaceUse::Read),
            (key("client_ca"), tls.client_ca.as_deref(), PlaceUse::Read),
        ]);
    }
    if let Some(gss) = &config.gss {
        let key = |name| root().key("gss").key(name);
        files.extend([
            (key("keytab"), Some(gss.keytab.as_path()), PlaceUse::Read),
            (key("map"), gss.map.as_deref(), PlaceUse::Read),
        ]);
    }
    for (index, export) in config.exports.iter().enumerate() {
        if let Store::Ceph(ceph) = &export.store {
            let key = || root().key("exports").index(index).key("store");
            files.extend([
                (key().key("conf"), Some(ceph.conf.as_path()), PlaceUse::Read),
                (
                    key().key("keyring"),
                    ceph.keyring.as_deref(),
                    PlaceUse::Read,
                ),
            ]);
        }
    }
    let mut places = Vec::new();
    for (key, file, used) in files {
        let Some(file) = file.and_then(|file| absolute(file).ok()) else {
            continue;
        };
        let target = fs::canonicalize(&file).ok();
        for file in [Some(file), target].into_iter().flatten() {
            let both = file.ancestors().take(2).map(|path| UsedPath {
                key: key.clone(),
                path: path.to_owned(),
                used,
            });
            places.extend(both);
        }
    }
    let runtime = env::var_os("RUNTIME_DIRECTORY");
    let runtime = runtime.and_then(|list| env::split_paths(&list).next());
    let folders = [
        (
            root().key("state_directory"),
            config.state_directory.clone(),
        ),
        (
            root().key("gateways").key("directory"),
            config.gateways.as_ref().map(|all| all.directory.clone()),
        ),
        (root(), runtime.filter(|path| path.is_absolute())),
    ];
    places.extend(folders.into_iter().filter_map(|(key, path)| {
        let (path, used) = (path?, PlaceUse::Write);
        Some(UsedPath { key, path, used })
    }));
    places
}

/// The folders used by clients, now or later.
pub fn exported(config: &Config) -> Vec<UsedPath> {
    let exports = config.exports.iter().enumerate();
    let exports = exports.filter_map(|(index, export)| match &export.store {
        Store::Posix(posix) => {
            let key = KeyPath::root().key("exports").index(index);
            Some((key.key("store").key("root"), &posix.root))
        }
        Store::Memory { .. } | Store::Ceph(_) => None,
    });
    let roots = config.admin.exportable_roots.iter().enumerate();
    let roots = roots.map(|(index, root)| {
        let key = KeyPath::root().key("admin").key("exportable_roots");
        (key.index(index), root)
    });
    let all = exports.chain(roots).map(|(key, path)| UsedPath {
        key,
        path: path.clone(),
        used: PlaceUse::Write,
    });
    all.collect()
}

/// System paths used by a server of this configuration.
pub fn system(config: &Config) -> Vec<UsedPath> {
    let mut fabrics = config.fabric.iter();
    let verbs = devices::BUILT_IN || fabrics.any(|fabric| fabric.provider == Provider::Verbs);
    let names = config.gss.is_some() || !config.nfs4.domain.is_empty();
    let on_demand = verbs || names || may_serve_folders(config);
    let libraries = on_demand.then_some(LIBRARIES);
    let libraries = libraries.into_iter().flatten();
    let libraries = libraries.map(|path| (path, PlaceUse::Read));
    let devices = verbs.then_some((DEVICES, PlaceUse::Device));
    let all = SYSTEM.into_iter().chain(libraries).chain(devices);
    let all = all.map(|(path, used)| UsedPath {
        key: KeyPath::root(),
        path: path.into(),
        used,
    });
    all.collect()
}

/// The root of a path's mount, with links resolved; `None` if it cannot be determined.
pub fn mount_root(path: &Path) -> Option<PathBuf> {
    let mount = |path: &Path| {
        let stat = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
        (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id)
    };
    let path = fs::canonicalize(path).ok()?;
    let own = mount(&path)?;
    let above = path.ancestors().take_while(|one| mount(one) == Some(own));
    above.last().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn files_are_used_with_their_folders_and_those_that_links_lead_to() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["live", "archive", "state"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at("archive/key1.pem"), "").unwrap();
        symlink("../archive/key1.pem", at("live/key.pem")).unwrap();
        let config = Config {
            admin: millrace_admin::config::Admin {
                token_file: Some(at("live/key.pem")),
                ..Default::default()
            },
            state_directory: Some(at("state")),
            ..Config::default()
        };
        let places = own(&config, &at("millraced.yaml"));
        let of = |path: &str| {
            let found = places.iter().find(|place| place.path == at(path));
            found.map(|place| (place.key.to_string(), place.used))
        };
        let token = || "admin.token_file".to_owned();
        assert_eq!(of("live"), Some((token(), PlaceUse::Read)));
        assert_eq!(of("archive"), Some((token(), PlaceUse::Read)));
        let state = "state_directory".to_owned();
        assert_eq!(of("state"), Some((state, PlaceUse::Write)));
        assert!(places.iter().any(|place| place.path == folder.path()));
    }

    fn named(places: &[UsedPath], key: &str) -> Vec<(String, PlaceUse)> {
        let of_key = places.iter().filter(|place| place.key.to_string() == key);
        of_key
            .map(|place| (place.path.display().to_string(), place.used))
            .collect()
    }

    #[test]
    fn every_file_that_the_configuration_names_is_used_and_every_folder_of_clients() {
        let text = "admin:\n  \
              audit_file: /none/log/audit\n  \
              socket: /none/run/socket\n  \
              tls: { certificate: /none/tls/cert, key: /none/key, client_ca: /none/ca, client_auth: optional }\n  \
              exportable_roots: [/none/later]\n\
            handle_secret: /none/secret\n\
            state_directory: /none/state\n\
            gateways: { name: a, directory: /none/gateways }\n\
            gss: { keytab: /none/krb/keytab, map: /none/map }\n\
            exports:\n\
            - { path: /data, store: { kind: posix, root: /none/data } }\n\
            - { path: /memory, store: { kind: memory, size: 1MiB } }\n";
        let config = millrace_admin::config::parse(text, "test").unwrap();
        let files = own(&config, Path::new("/none/etc/millraced.yaml"));
        for (key, path, used) in [
            ("admin.audit_file", "/none/log/audit", PlaceUse::Write),
            ("admin.socket", "/none/run/socket", PlaceUse::Write),
            ("admin.tls.certificate", "/none/tls/cert", PlaceUse::Read),
            ("admin.tls.key", "/none/key", PlaceUse::Read),
            ("admin.tls.client_ca", "/none/ca", PlaceUse::Read),
            ("handle_secret", "/none/secret", PlaceUse::Read),
            ("gss.keytab", "/none/krb/keytab", PlaceUse::Read),
            ("gss.map", "/none/map", PlaceUse::Read),
        ] {
            let folder = Path::new(path).parent().unwrap().display().to_string();
            let expected = [(path.to_owned(), used), (folder, used)];
            assert_eq!(named(&files, key), expected);
        }
        for (key, path) in [
            ("state_directory", "/none/state"),
            ("gateways.directory", "/none/gateways"),
        ] {
            assert_eq!(named(&files, key), [(path.to_owned(), PlaceUse::Write)]);
        }
        let folders = exported(&config);
        for (key, path) in [
            ("exports[0].store.root", "/none/data"),
            ("admin.exportable_roots[0]", "/none/later"),
        ] {
            assert_eq!(named(&folders, key), [(path.to_owned(), PlaceUse::Write)]);
        }
        assert_eq!(folders.len(), 2);
    }

    #[test]
    fn libraries_and_devices_are_used_by_servers_that_load_them() {
        let verbs = "fabric: [{ provider: verbs, listen: \"127.0.0.1:20049\" }]";
        for (text, libraries, has_devices) in [
            ("log: warn", devices::BUILT_IN, devices::BUILT_IN),
            (verbs, true, true),
            ("gss: { keytab: /none }", true, devices::BUILT_IN),
            ("nfs4: { domain: example.org }", true, devices::BUILT_IN),
            (
                "admin: { exportable_roots: [/srv] }",
                true,
                devices::BUILT_IN,
            ),
        ] {
            let config = millrace_admin::config::parse(text, "test").unwrap();
            let places = system(&config);
            let of = |path: &str| {
                let found = places.iter().find(|place| place.path == Path::new(path));
                found.map(|place| place.used)
            };
            assert_eq!(of("/proc"), Some(PlaceUse::Read));
            assert_eq!(of("/etc"), libraries.then_some(PlaceUse::Read), "{text}");
            assert_eq!(
                of(DEVICES),
                has_devices.then_some(PlaceUse::Device),
                "{text}"
            );
        }
    }

    #[test]
    fn the_root_of_a_mount_is_above_or_the_path_itself() {
        let proc = Path::new("/proc");
        assert_eq!(
            mount_root(Path::new("/proc/self/fd")).as_deref(),
            Some(proc)
        );
        assert_eq!(mount_root(Path::new("/nothing/there")), None);
    }
}
