//! Landlock: only files named by the configuration can be opened.
//!
//! The kernel judges an open file by the folders above it. A file opened by handle may have no
//! known parent folder until it is looked up by name, and is then judged by the root of its mount.
//! So for exported folders, whole mounts are granted, and folders on the root file system cannot be
//! served under Landlock.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, Erratum, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, path_beneath_rules,
};
use millrace_admin::config::{Config, ConfigProblem};
use rustix::thread::CapabilitySet;

use super::places::{PlaceUse, UsedPath, exported, mount_root, own, system};
use super::{capabilities, may_serve_folders};

/// The latest supported version. Rights of later ones are not requested.
const KNOWN: ABI = ABI::V5;

/// The granted paths, with links resolved, once the process is restricted.
static GRANTED: OnceLock<Vec<(PathBuf, PlaceUse)>> = OnceLock::new();

/// Restricts this thread and its later children. Returns the result as text.
///
/// # Errors
/// Why the kernel does not support it, or the configuration could not be served. Nothing is
/// restricted then.
pub fn restrict(config: &Config, file: &Path) -> Result<String, String> {
    let grants = grants(config, Some(file))?;
    if let Some(directory) = &config.state_directory {
        // A missing folder could not be granted. The start reports it if it cannot be made.
        let _ = fs::create_dir_all(directory);
    }
    let mut ruleset = ruleset(config)?
        .create()
        .map_err(|error| error.to_string())?;
    for used in [PlaceUse::Read, PlaceUse::Device, PlaceUse::Write] {
        let paths = grants.iter().filter(|place| place.used == used);
        // A missing path cannot be opened either.
        let rules = path_beneath_rules(paths.map(|place| &place.path), rights(used));
        ruleset = ruleset
            .add_rules(rules)
            .map_err(|error| error.to_string())?;
    }
    let status = ruleset.restrict_self().map_err(|error| error.to_string())?;
    // A private mount is in no tree, and no folder above it grants access. With this capability the
    // posix store would make one for each folder.
    capabilities::drop_some(CapabilitySet::SYS_ADMIN).map_err(|error| error.to_string())?;
    let granted = grants.into_iter();
    let granted =
        granted.filter_map(|place| Some((fs::canonicalize(place.path).ok()?, place.used)));
    let _ = GRANTED.set(granted.collect());
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => "in force".to_owned(),
        _ => "in force, except for rights unknown to this kernel".to_owned(),
    })
}

/// Why a configuration could not be served under Landlock by this kernel.
pub fn missing(config: &Config) -> Option<String> {
    let ruleset = ruleset(config).and_then(|ruleset| {
        let created = ruleset.create();
        created.map(drop).map_err(|error| error.to_string())
    });
    ruleset.err().or_else(|| grants(config, None).err())
}

/// Keys of a configuration that name files which this process cannot open any more.
#[must_use]
pub fn outside(config: &Config) -> Vec<ConfigProblem> {
    GRANTED
        .get()
        .map_or_else(Vec::new, |granted| beyond(granted, config))
}

/// Keys that name files which are not granted.
fn beyond(granted: &[(PathBuf, PlaceUse)], config: &Config) -> Vec<ConfigProblem> {
    // The configuration file does not change.
    let none = Path::new("/");
    let own = own(config, none);
    let places = own.into_iter().filter(|place| place.path != none);
    let mut problems: Vec<ConfigProblem> = Vec::new();
    for place in places.chain(exported(config)) {
        let path = resolved(&place.path);
        let grants =
            |(above, used): &(PathBuf, PlaceUse)| *used >= place.used && path.starts_with(above);
        let told = problems.iter().any(|problem| problem.path == place.key);
        if !told && !granted.iter().any(grants) {
            problems.push(ConfigProblem::new(
                place.key,
                format!(
                    "{} is not among the folders that this process limited itself to when it \
                     started (hardening.landlock); restart it with the new configuration",
                    path.display()
                ),
            ));
        }
    }
    problems
}

/// With links resolved, as far as the path exists.
fn resolved(path: &Path) -> PathBuf {
    match (fs::canonicalize(path), path.parent(), path.file_name()) {
        (Ok(real), _, _) => real,
        (Err(_), Some(above), Some(name)) => resolved(above).join(name),
        _ => path.to_owned(),
    }
}

fn rights(used: PlaceUse) -> BitFlags<AccessFs> {
    match used {
        PlaceUse::Read => AccessFs::ReadFile | AccessFs::ReadDir,
        PlaceUse::Device => {
            AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::WriteFile | AccessFs::IoctlDev
        }
        // No programs are started, and devices in exported folders are never opened.
        PlaceUse::Write => AccessFs::from_all(KNOWN) & !(AccessFs::Execute | AccessFs::IoctlDev),
    }
}

/// # Errors
/// The kernel lacks required features.
fn ruleset(config: &Config) -> Result<Ruleset, String> {
    let folders = may_serve_folders(config);
    // Before its second version nothing can be renamed or linked between folders.
    let least = match folders {
        true => ABI::V2,
        false => ABI::V1,
    };
    if folders && !Erratum::current().contains(Erratum::DisconnectedDirectoryHandling) {
        return Err(
            "this kernel has no Landlock, or one that refuses files opened by handle, which \
             exported folders need (erratum 3, fixed in Linux 6.19 and its stable series)"
                .to_owned(),
        );
    }
    let needed = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(least))
        .map_err(|_| "this kernel has no Landlock, or one that is too old".to_owned())?;
    let all = needed
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(KNOWN));
    all.map_err(|error| error.to_string())
}

/// The paths of a configuration; mounts instead of exported folders.
///
/// # Errors
/// A folder is on the root file system.
fn grants(config: &Config, file: Option<&Path>) -> Result<Vec<UsedPath>, String> {
    let mut grants = system(config);
    grants.extend(file.into_iter().flat_map(|file| own(config, file)));
    for place in exported(config) {
        // A missing one is refused elsewhere, or is created later.
        let Some(mount) = mount_root(&place.path) else {
            continue;
        };
        if mount == Path::new("/") {
            return Err(format!(
                "{}: {} is on the root file system, which would be granted as a whole: files \
                 opened by handle are judged by their mount; mount a file system or a bind mount \
                 there",
                place.key,
                place.path.display()
            ));
        }
        grants.push(UsedPath {
            path: mount,
            ..place
        });
    }
    Ok(grants)
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_admin::config;

    #[test]
    fn a_folder_on_the_root_file_system_cannot_be_told_from_the_rest() {
        let config = config::parse(
            "exports: [{ path: /data, store: { kind: posix, root: / } }]",
            "test",
        );
        let error = grants(&config.unwrap(), None).unwrap_err();
        assert!(
            error.starts_with("exports[0].store.root: / is on the root"),
            "{error}"
        );
        let text = "admin: { exportable_roots: [/proc/sys] }";
        let granted = grants(&config::parse(text, "test").unwrap(), None).unwrap();
        let last = granted.last().unwrap();
        assert_eq!(
            (last.path.as_path(), last.used),
            (Path::new("/proc"), PlaceUse::Write)
        );
    }

    #[test]
    fn nobody_is_limited_before_the_start() {
        let config = config::parse("state_directory: /var/lib/millrace", "test");
        assert_eq!(outside(&config.unwrap()), []);
    }

    #[test]
    fn what_lies_beyond_what_was_granted_is_told_once_for_each_key() {
        let folder = tempfile::tempdir().unwrap();
        let here = fs::canonicalize(folder.path()).unwrap();
        let at = |name: &str| here.join(name);
        fs::create_dir(at("real")).unwrap();
        std::os::unix::fs::symlink("real", at("link")).unwrap();
        let granted = [(at("real"), PlaceUse::Write), (at("read"), PlaceUse::Read)];
        for (file, key, is_told) in [
            ("real/new/token", "token_file", false),
            ("link/new/token", "token_file", false),
            ("read/tokens/one", "token_file", false),
            ("read/log/audit", "audit_file", true),
            ("other/tokens/one", "token_file", true),
        ] {
            let text = format!("admin: {{ {key}: {} }}", at(file).display());
            let config = config::parse(&text, "test").unwrap();
            let told = beyond(&granted, &config);
            let told: Vec<_> = told.iter().map(|one| one.path.to_string()).collect();
            let expected = is_told.then(|| format!("admin.{key}"));
            assert_eq!(told, expected.into_iter().collect::<Vec<_>>(), "{file}");
        }
    }

    #[test]
    fn each_use_has_the_rights_that_it_takes_and_no_others() {
        let [read, device, write] = [PlaceUse::Read, PlaceUse::Device, PlaceUse::Write].map(rights);
        for (right, of) in [
            (AccessFs::ReadFile, [true, true, true]),
            (AccessFs::ReadDir, [true, true, true]),
            (AccessFs::WriteFile, [false, true, true]),
            (AccessFs::Truncate, [false, false, true]),
            (AccessFs::MakeReg, [false, false, true]),
            (AccessFs::Refer, [false, false, true]),
            (AccessFs::IoctlDev, [false, true, false]),
            (AccessFs::Execute, [false, false, false]),
        ] {
            let found = [read, device, write].map(|rights| rights.contains(right));
            assert_eq!(found, of, "{right:?}");
        }
    }

    #[test]
    fn files_by_handle_matter_only_where_folders_are_served() {
        let why = |text: &str| ruleset(&config::parse(text, "test").unwrap()).err();
        let handles = "files opened by handle";
        let of_memory = why("log: warn");
        assert!(of_memory.is_none_or(|why| !why.contains(handles)));
        let has_them = Erratum::current().contains(Erratum::DisconnectedDirectoryHandling);
        let of_folders = why("admin: { exportable_roots: [/srv] }");
        assert_eq!(
            of_folders.is_some_and(|why| why.contains(handles)),
            !has_them
        );
    }
}
