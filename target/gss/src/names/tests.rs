//! Principals and users.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::remembered::{KNOWN_FOR, REMEMBERED_MAX, UNKNOWN_FOR};

/// Users by name; counts how often it is asked.
#[derive(Default)]
struct FakeDirectory {
    asked: Arc<AtomicUsize>,
}

impl Directory for FakeDirectory {
    fn user(&self, name: &str, groups_max: usize) -> io::Result<Option<User>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let uid = match name {
            "alice" => 1000,
            "bob@OTHER.TEST" => 1001,
            "root" | "toor" => 0,
            "host/client.test" => 1002,
            // A user of this host may have any name.
            _ if name.starts_with("alice") && name.contains(['/', '\\']) => 1003,
            "down" => return Err(io::Error::other("the directory is down")),
            _ => return Ok(None),
        };
        let groups = (0..100).take(groups_max).collect();
        let gid = 100;
        Ok(Some(User { uid, gid, groups }))
    }
}

struct Bench {
    names: UserNames,
    asked: Arc<AtomicUsize>,
    counters: Arc<GssCounters>,
}

fn bench(change: impl FnOnce(&mut Settings)) -> Bench {
    let mut settings = Settings {
        realms: vec!["MILLRACE.TEST".to_owned()],
        ..Settings::default()
    };
    change(&mut settings);
    let directory = FakeDirectory::default();
    let asked = Arc::clone(&directory.asked);
    let counters = Arc::new(GssCounters::default());
    Bench {
        names: UserNames::new(&settings, Box::new(directory), Arc::clone(&counters)),
        asked,
        counters,
    }
}

impl Bench {
    fn uid(&self, principal: &str) -> Option<u32> {
        let identity = self
            .names
            .identify(principal, &[])
            .expect("the directory is up");
        assert_eq!(*identity.principal, *principal);
        identity.user.map(|user| user.uid)
    }
}

#[test]
fn gss_sec_09_users_of_own_realms_have_short_names_and_others_full_ones() {
    let bench = bench(|_| {});
    for (principal, uid) in [
        ("alice@MILLRACE.TEST", Some(1000)),
        ("alice@OTHER.TEST", None),
        ("bob@OTHER.TEST", Some(1001)),
        ("bob@MILLRACE.TEST", None),
        ("alice/admin@MILLRACE.TEST", None),
        ("alice\\@OTHER.TEST@MILLRACE.TEST", None),
        ("alice\\0@MILLRACE.TEST", None),
        ("alice", None),
        ("@MILLRACE.TEST", None),
        ("alice@millrace.test", None),
        ("root@MILLRACE.TEST", None),
        ("toor@MILLRACE.TEST", None),
    ] {
        assert_eq!(bench.uid(principal), uid, "{principal}");
    }
    assert!(bench.counters.names_unknown.get() > 0);
}

#[test]
fn gss_sec_09_realms_are_those_of_the_keytab_unless_configured() {
    let bench = bench(|settings| settings.realms.clear());
    let realms = ["MILLRACE.TEST".to_owned()];
    let user = |principal| bench.names.identify(principal, &realms).expect("up").user;
    assert_eq!(user("alice@MILLRACE.TEST").map(|user| user.uid), Some(1000));
    assert_eq!(user("alice@OTHER.TEST"), None);
}

#[test]
fn gss_sec_09_the_map_names_users_and_root() {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    writeln!(file, "# admins\nadmin/root@MILLRACE.TEST root\n").expect("written");
    writeln!(file, "host/client.test@MILLRACE.TEST  alice  # as a user").expect("written");
    let bench = bench(|settings| settings.map = Some(file.path().to_owned()));
    assert_eq!(bench.uid("admin/root@MILLRACE.TEST"), Some(0));
    assert_eq!(bench.uid("host/client.test@MILLRACE.TEST"), Some(1000));
    assert_eq!(bench.uid("admin/root@OTHER.TEST"), None);
    // A new version is taken up, and what was remembered is not.
    fs::write(file.path(), "alice@MILLRACE.TEST bob@OTHER.TEST").expect("written");
    let later = SystemTime::now() + Duration::from_secs(2);
    file.as_file().set_modified(later).expect("a time");
    bench.names.reload();
    assert_eq!(bench.uid("alice@MILLRACE.TEST"), Some(1001));
    assert_eq!(bench.uid("admin/root@MILLRACE.TEST"), None);
    // One that cannot be read leaves the old one.
    drop(file);
    bench.names.reload();
    bench.names.forget(None);
    assert_eq!(bench.uid("alice@MILLRACE.TEST"), Some(1001));
}

#[test]
fn gss_sec_10_machines_are_anonymous_or_user_0() {
    let machines = [
        "host/client.test@MILLRACE.TEST",
        "nfs/client.test@MILLRACE.TEST",
        "root/client.test@MILLRACE.TEST",
        "CLIENT$@MILLRACE.TEST",
    ];
    let anonymous = bench(|_| {});
    let root = bench(|settings| settings.machine = MachinePolicy::Root);
    for machine in machines {
        assert_eq!(anonymous.uid(machine), None, "{machine}");
        assert_eq!(root.uid(machine), Some(0), "{machine}");
        let foreign = machine.replace("MILLRACE", "OTHER");
        assert_eq!(root.uid(&foreign), None, "{foreign}");
    }
    for bench in [anonymous, root] {
        assert_eq!(bench.asked.load(Ordering::Relaxed), 0);
        assert_eq!(bench.uid("alice@MILLRACE.TEST"), Some(1000));
    }
}

#[test]
fn gss_sec_11_users_are_remembered_for_a_time() {
    let bench = bench(|_| {});
    let asked = || bench.asked.load(Ordering::Relaxed);
    for _ in 0..3 {
        assert_eq!(bench.uid("alice@MILLRACE.TEST"), Some(1000));
    }
    assert_eq!(asked(), 1);
    for _ in 0..3 {
        assert_eq!(bench.uid("carol@MILLRACE.TEST"), None);
    }
    assert_eq!(asked(), 2);
    let known = |principal, after| {
        let now = Instant::now() + after;
        bench.names.remembered.get(principal, now).is_some()
    };
    assert!(known("alice@MILLRACE.TEST", KNOWN_FOR / 2));
    assert!(!known("alice@MILLRACE.TEST", KNOWN_FOR));
    assert!(known("carol@MILLRACE.TEST", UNKNOWN_FOR / 2));
    assert!(!known("carol@MILLRACE.TEST", UNKNOWN_FOR));
    bench.names.forget(Some("alice@MILLRACE.TEST"));
    assert_eq!(bench.uid("alice@MILLRACE.TEST"), Some(1000));
    assert_eq!(bench.uid("carol@MILLRACE.TEST"), None);
    assert_eq!(asked(), 3);
}

#[test]
fn gss_sec_11_what_is_remembered_is_bounded() {
    let bench = bench(|_| {});
    for number in 0..3 * REMEMBERED_MAX {
        assert_eq!(bench.uid(&format!("user{number}@MILLRACE.TEST")), None);
        assert!(bench.names.remembered.len().1 <= REMEMBERED_MAX);
    }
}

/// An anonymous context would stay so for hours.
#[test]
fn gss_sec_11_a_directory_that_is_down_makes_nobody_anonymous() {
    let bench = bench(|_| {});
    let outcome = bench.names.identify("down@MILLRACE.TEST", &[]);
    assert_eq!(
        outcome.expect_err("down").to_string(),
        "the directory is down"
    );
    assert!(
        bench
            .names
            .remembered
            .get("down@MILLRACE.TEST", Instant::now())
            .is_none()
    );
}

#[test]
fn gss_sec_12_groups_are_bounded_by_the_setting_only() {
    for (most, count) in [(1024, 100), (20, 20)] {
        let bench = bench(|settings| settings.groups_max = most);
        let identity = bench
            .names
            .identify("alice@MILLRACE.TEST", &[])
            .expect("up");
        assert_eq!(identity.user.expect("known").groups.len(), count);
    }
}

#[test]
fn gss_sec_12_the_system_tells_users_and_groups() {
    let users = fs::read_to_string("/etc/passwd").expect("a user database");
    let mut checked = 0;
    for line in users.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        let (Some(name), Some(Ok(uid)), Some(Ok(gid))) = (
            fields.first(),
            fields.get(2).map(|uid| uid.parse::<u32>()),
            fields.get(3).map(|gid| gid.parse::<u32>()),
        ) else {
            continue;
        };
        let user = SystemDirectory
            .user(name, 1024)
            .expect("up")
            .expect("known");
        assert_eq!((user.uid, user.gid), (uid, gid));
        let told = std::process::Command::new("id").args(["-G", name]).output();
        let told = String::from_utf8(told.expect("id").stdout).expect("text");
        let mut told: Vec<u32> = told.split_whitespace().flat_map(str::parse).collect();
        told.retain(|&group| group != gid);
        told.sort_unstable();
        let mut groups = user.groups.to_vec();
        groups.sort_unstable();
        assert_eq!(groups, told, "{name}");
        checked += 1;
    }
    assert!(checked > 0);
    let unknown = SystemDirectory.user("no-user-of-this-name", 16);
    assert_eq!(unknown.expect("up"), None);
}
