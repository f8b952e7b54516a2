//! What a process cannot do any more that gave up its rights. The process is this program started
//! again for one test, as nothing of it can be taken back.

#[path = "support/landlock.rs"]
mod landlock;

use std::env;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use millrace::service::devices::BUILT_IN;
use millrace::service::hardening::{
    ThreadKind, confine, confine_thread, notes, outcomes, outside, problems,
};
use millrace_admin::config::{self, Config};
use millrace_testing::skip;
use rustix::thread::{
    CapabilitySet, capabilities, capability_is_in_bounding_set, set_capabilities,
};

/// Tells the process that gives up its rights from the one that starts it: its folder.
const FOLDER: &str = "MILLRACE_TEST_CONFINED";

/// Runs a test in a process of its own, which gets a folder with a file `secret` in it. `None`
/// where it has succeeded there.
fn in_own_process(test: &str) -> Option<PathBuf> {
    if let Some(folder) = env::var_os(FOLDER) {
        return Some(folder.into());
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("secret"), "of others").unwrap();
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    let done = command.env(FOLDER, folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(
        done.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&done.stderr)
    );
    None
}

/// A configuration of a server with its files in a folder, and its file.
fn configuration(folder: &Path, more: &str) -> (Config, PathBuf) {
    let file = folder.join("etc/millraced.yaml");
    let text = format!(
        "exports: [{{ path: /scratch, store: {{ kind: memory, size: 1MiB }} }}]\n\
         state_directory: {}\n{more}",
        folder.join("state").display()
    );
    fs::create_dir_all(folder.join("etc")).unwrap();
    fs::write(&file, &text).unwrap();
    (config::parse(&text, "test").unwrap(), file)
}

/// Calls the kernel with small numbers for arguments. What it says.
fn call(number: libc::c_long, first: libc::c_long) -> io::Result<libc::c_long> {
    // SAFETY: the calls of these tests take numbers and null pointers, and those that the kernel
    // does not refuse before it looks at them say that they are wrong.
    let outcome = unsafe { libc::syscall(number, first, 0, 0, 0, 0, 0) };
    match outcome {
        -1 => Err(io::Error::last_os_error()),
        outcome => Ok(outcome),
    }
}

fn is_refused(number: libc::c_long, first: libc::c_long) -> bool {
    call(number, first).is_err_and(|error| error.raw_os_error() == Some(libc::EPERM))
}

/// Of the x32 ABI: mount by its number of this architecture, and ptrace and kexec_load by their own.
#[cfg(target_arch = "x86_64")]
const X32: [(libc::c_long, libc::c_long); 3] = [
    (0x4000_0000 + libc::SYS_mount, 0),
    (0x4000_0000 + 521, 0),
    (0x4000_0000 + 528, 0),
];
#[cfg(not(target_arch = "x86_64"))]
const X32: [(libc::c_long, libc::c_long); 0] = [];

fn denied<T>(outcome: io::Result<T>) -> bool {
    outcome.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

#[test]
fn programs_processes_and_the_kernels_insides_are_out_of_reach() {
    let Some(folder) =
        in_own_process("programs_processes_and_the_kernels_insides_are_out_of_reach")
    else {
        return;
    };
    let (config, file) = configuration(&folder, "");
    confine(&config, &file).unwrap();
    let seccomp = outcomes().iter().find(|one| one.key == "seccomp").unwrap();
    assert!(seccomp.in_force, "{seccomp:?}");
    for program in ["/bin/true", "/nothing/there"] {
        let refused = Command::new(program).exec();
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM), "{program}");
        let refused = Command::new(program).spawn().unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM), "{program}");
    }
    for (number, first) in [
        (libc::SYS_ptrace, 0),
        (libc::SYS_process_vm_readv, 0),
        (libc::SYS_mount, 0),
        (libc::SYS_bpf, -1),
        (libc::SYS_keyctl, -1),
        (libc::SYS_init_module, 0),
        (libc::SYS_setns, -1),
        (libc::SYS_userfaultfd, -1),
        (libc::SYS_unshare, libc::CLONE_NEWUSER.into()),
        // No folder is served.
        (libc::SYS_open_by_handle_at, -1),
    ]
    .into_iter()
    .chain(X32)
    {
        assert!(
            is_refused(number, first),
            "{number}: {:?}",
            call(number, first)
        );
    }
    // Threads go on to be made, with a mask for files of their own.
    let made = thread::spawn(|| call(libc::SYS_unshare, libc::CLONE_FS.into()).is_ok());
    assert!(made.join().unwrap());
}

#[test]
fn threads_of_a_kind_are_refused_what_theirs_does_not_need() {
    let Some(folder) = in_own_process("threads_of_a_kind_are_refused_what_theirs_does_not_need")
    else {
        return;
    };
    let (config, file) = configuration(&folder, "admin: { exportable_roots: [/srv] }");
    confine(&config, &file).unwrap();
    // What each kind may do of: a ring, a listener, opening a file, a signal to itself as to
    // others.
    let may = |kind: Option<ThreadKind>, first: Option<ThreadKind>| {
        let tried = thread::spawn(move || {
            if let Some(first) = first {
                confine_thread(first);
            }
            let tried = move || {
                if let Some(kind) = kind {
                    confine_thread(kind);
                }
                [
                    !is_refused(libc::SYS_io_uring_setup, 0),
                    TcpListener::bind("127.0.0.1:0").is_ok(),
                    File::open("/proc/self/status").is_ok(),
                    !is_refused(libc::SYS_kill, std::process::id().into()),
                    !is_refused(libc::SYS_open_by_handle_at, -1),
                ]
            };
            thread::spawn(tried).join().unwrap()
        });
        tried.join().unwrap()
    };
    let yes = true;
    assert_eq!(may(None, None), [yes; 5], "the rest");
    let reactor = Some(ThreadKind::Reactor);
    assert_eq!(may(reactor, None), [yes, yes, yes, false, yes]);
    let management = Some(ThreadKind::Management);
    assert_eq!(may(management, None), [false, yes, yes, yes, yes]);
    let log = Some(ThreadKind::Log);
    assert_eq!(may(log, None), [false, false, false, yes, false]);
    let helper = Some(ThreadKind::StoreHelper);
    assert_eq!(may(helper, None), [false, false, yes, yes, yes]);
    // One that a reactor starts is refused what both are.
    assert_eq!(may(helper, reactor), [false, false, yes, false, yes]);
}

#[test]
fn capabilities_that_were_given_up_do_not_come_back() {
    let Some(folder) = in_own_process("capabilities_that_were_given_up_do_not_come_back") else {
        return;
    };
    let (config, file) = configuration(&folder, "");
    let before = capabilities(None).unwrap();
    if !before
        .permitted
        .contains(CapabilitySet::SYS_ADMIN | CapabilitySet::SETPCAP)
    {
        skip!("this takes a process with root's capabilities");
        return;
    }
    confine(&config, &file).unwrap();
    let kept = CapabilitySet::NET_BIND_SERVICE | CapabilitySet::IPC_LOCK;
    let after = thread::spawn(|| capabilities(None).unwrap())
        .join()
        .unwrap();
    assert_eq!(after.permitted, before.permitted & kept);
    assert_eq!(after.effective, after.permitted);
    assert_eq!(after.inheritable, before.inheritable & kept);
    let told = outcomes().iter().find(|one| one.key == "capabilities");
    let told = &told.unwrap().detail;
    assert!(
        told.starts_with("left ") && told.contains("IPC_LOCK"),
        "{told}"
    );
    assert!(set_capabilities(None, before).is_err());
    for one in [CapabilitySet::SYS_ADMIN, CapabilitySet::SETUID] {
        assert!(!capability_is_in_bounding_set(one).unwrap());
    }
    assert!(rustix::thread::no_new_privs().unwrap());
}

#[test]
fn files_that_the_configuration_does_not_name_cannot_be_opened() {
    let name = "files_that_the_configuration_does_not_name_cannot_be_opened";
    let Some(here) = in_own_process(name) else {
        return;
    };
    let at = |path: &str| here.join(path);
    if landlock::version() == 0 {
        skip!("this kernel has no Landlock");
        return;
    }
    let (config, file) = configuration(&here, "hardening: { landlock: on }");
    confine(&config, &file).unwrap();
    let in_force = outcomes().iter().find(|one| one.key == "landlock").unwrap();
    assert!(in_force.in_force, "{in_force:?}");
    // Threads that are started later inherit it.
    let tried = || {
        assert!(denied(fs::read(at("secret"))));
        assert!(denied(fs::read_dir(at(""))));
        assert!(denied(fs::write(at("new"), "")));
        assert!(denied(fs::remove_file(at("secret"))));
        assert!(denied(fs::read_dir("/usr/bin")));
        // Drivers of RDMA devices are configured there.
        assert_eq!(denied(fs::read("/etc/passwd")), !BUILT_IN);
        // Its own it reads and writes, also when another file takes the place of one.
        fs::write(at("state/new"), "kept").unwrap();
        fs::rename(at("state/new"), at("state/kept")).unwrap();
        fs::write(at("etc/new"), "exports: []").unwrap();
        fs::rename(at("etc/new"), at("etc/millraced.yaml")).unwrap();
        assert_eq!(fs::read(at("etc/millraced.yaml")).unwrap(), b"exports: []");
        assert!(fs::read("/proc/self/status").is_ok());
    };
    thread::scope(|scope| scope.spawn(tried).join().unwrap());
    assert_eq!(outside(&config), []);
    let token = format!("admin: {{ token_file: {}/other/token }}", here.display());
    let token = config::parse(&token, "test").unwrap();
    let told: Vec<_> = outside(&token)
        .iter()
        .map(|one| one.path.to_string())
        .collect();
    assert_eq!(told, ["admin.token_file"]);
}

#[test]
fn what_this_kernel_has_is_not_missed() {
    if landlock::version() == 0 {
        skip!("this kernel has no Landlock");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let more = "hardening: { seccomp: LEVEL, landlock: LEVEL }";
    for level in ["on", "required"] {
        let (config, _) = configuration(folder.path(), &more.replace("LEVEL", level));
        assert_eq!(problems(&config), []);
        assert_eq!(notes(&config), [""; 0]);
    }
    // A grant for all that is below `/` would be none.
    let all = format!("admin: {{ exportable_roots: [/] }}\n{more}");
    let (config, _) = configuration(folder.path(), &all.replace("LEVEL", "required"));
    let problems = problems(&config);
    let [problem] = &problems[..] else {
        panic!("{problems:?}");
    };
    assert_eq!(problem.path.to_string(), "hardening.landlock");
    let (config, _) = configuration(folder.path(), &all.replace("LEVEL", "on"));
    let note = notes(&config).concat();
    let begin = "hardening.landlock: would not be in force: ";
    assert!(note.starts_with(begin), "{note}");
}

#[test]
fn what_the_kernel_cannot_do_is_told_and_refuses_a_start_where_it_is_required() {
    let Some(folder) = in_own_process(
        "what_the_kernel_cannot_do_is_told_and_refuses_a_start_where_it_is_required",
    ) else {
        return;
    };
    let more = "admin: { exportable_roots: [/] }\nhardening: { landlock: LEVEL }";
    let (required, file) = configuration(&folder, &more.replace("LEVEL", "required"));
    let refused = confine(&required, &file).unwrap_err();
    assert_eq!(refused.path.to_string(), "hardening.landlock");
    let (on, file) = configuration(&folder, &more.replace("LEVEL", "on"));
    confine(&on, &file).unwrap();
    let landlock = outcomes().iter().find(|one| one.key == "landlock").unwrap();
    assert!(!landlock.in_force, "{landlock:?}");
    assert!(fs::read("/etc/passwd").is_ok());
}
