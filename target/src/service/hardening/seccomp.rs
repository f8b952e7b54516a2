//! System calls that no thread of a kind makes are refused (EPERM).
//!
//! The lists name refused calls and not permitted ones: the C library, drivers of RDMA devices and
//! modules of the host's user database use different calls in each version.

use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::fs;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

/// The kind of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadKind {
    /// A pinned loop. It starts helpers of stores, which inherit its restrictions.
    Reactor,
    /// A thread for names and attributes of folders.
    StoreHelper,
    /// The management plane, and threads that apply changes.
    Management,
    /// The thread that writes the log.
    Log,
}

struct ThreadFilters {
    reactor: BpfProgram,
    helper: BpfProgram,
    management: BpfProgram,
    log: BpfProgram,
}

static FILTERS: OnceLock<ThreadFilters> = OnceLock::new();

/// Refused to every thread: programs and processes, other processes' memory, mounts and namespaces,
/// the kernel itself, keys, clocks, changes of a thread's user.
const NEVER: &[c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_personality,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_remap_file_pages,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_mq_open,
    libc::SYS_msgget,
    libc::SYS_semget,
];

/// The same, for this architecture only.
#[cfg(target_arch = "x86_64")]
const NEVER_HERE: &[c_long] = &[
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_kexec_file_load,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
    libc::SYS_sysfs,
];
#[cfg(not(target_arch = "x86_64"))]
const NEVER_HERE: &[c_long] = &[];

/// Refused if no folder is served: files by handle, and acting as other users.
const FOR_FOLDERS: &[c_long] = &[
    libc::SYS_open_by_handle_at,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
];

/// io_uring, used by reactors only.
const RINGS: &[c_long] = &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter];

/// Registrations with rings, made by reactors and their helpers only.
const RING_REGISTRATIONS: &[c_long] = &[libc::SYS_io_uring_register];

/// Accepting connections, which only reactors and the management plane do.
const LISTENING: &[c_long] = &[libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4];

/// Not used by reactors and their helpers: signals to other processes, and resources shared with
/// other processes.
const BEYOND_FILES: &[c_long] = &[
    libc::SYS_kill,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_inotify_init1,
    libc::SYS_memfd_create,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setattr,
];

/// Not used by the log writer, which has its descriptor.
const BEYOND_WRITING: &[c_long] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_open_tree,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_clone,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_fchmodat,
    libc::SYS_fchownat,
    libc::SYS_truncate,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_capset,
];

/// The older forms of these.
#[cfg(target_arch = "x86_64")]
const BEYOND_WRITING_HERE: &[c_long] = &[
    libc::SYS_open,
    libc::SYS_creat,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_mknod,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
];
#[cfg(not(target_arch = "x86_64"))]
const BEYOND_WRITING_HERE: &[c_long] = &[];

/// Applies the restrictions of all threads to this thread and its later children, and prepares
/// those of [`confine_thread`].
///
/// # Errors
/// The kernel, or the environment of this process, does not permit it.
pub fn install(folders: bool) -> Result<String, String> {
    let make = || -> Result<_, seccompiler::Error> {
        let mut never = refusals([NEVER, NEVER_HERE].concat());
        if !folders {
            never.append(&mut refusals(FOR_FOLDERS.to_vec()));
        }
        // Creating threads is permitted, processes not; and a thread may have its own file mode
        // mask, but no namespace.
        let thread = SeccompCmpOp::MaskedEq(libc::CLONE_THREAD as u64);
        never.insert(libc::SYS_clone, vec![rule(thread, 0)?]);
        let unshare = rule(SeccompCmpOp::Ne, libc::CLONE_FS as u64)?;
        never.insert(libc::SYS_unshare, vec![unshare]);
        let filters = ThreadFilters {
            reactor: program(refusals(BEYOND_FILES.to_vec()), libc::EPERM)?,
            helper: program(refusals([RINGS, LISTENING].concat()), libc::EPERM)?,
            management: program(refusals([RINGS, RING_REGISTRATIONS].concat()), libc::EPERM)?,
            log: program(
                refusals(
                    [
                        RINGS,
                        RING_REGISTRATIONS,
                        LISTENING,
                        BEYOND_WRITING,
                        BEYOND_WRITING_HERE,
                    ]
                    .concat(),
                ),
                libc::EPERM,
            )?,
        };
        // Its flags are in memory, which no filter can read. The C library falls back to the older
        // call.
        apply_filter(&program(refusals(vec![libc::SYS_clone3]), libc::ENOSYS)?)?;
        apply_filter(&program(never, libc::EPERM)?)?;
        Ok(filters)
    };
    let filters = make().map_err(|error| error.to_string())?;
    let _ = FILTERS.set(filters);
    Ok("in force".to_owned())
}

/// Why filters are not available.
pub fn missing() -> Option<String> {
    let known = fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail");
    match known.is_ok_and(|actions| actions.contains("errno")) {
        true => None,
        false => Some("this kernel has no seccomp".to_owned()),
    }
}

/// Applies the additional restrictions of a kind to this thread and its later children. No effect
/// before [`confine`](super::confine), and without `hardening.seccomp`.
pub fn confine_thread(kind: ThreadKind) {
    let Some(filters) = FILTERS.get() else {
        return;
    };
    let filter = match kind {
        ThreadKind::Reactor => &filters.reactor,
        ThreadKind::StoreHelper => &filters.helper,
        ThreadKind::Management => &filters.management,
        ThreadKind::Log => &filters.log,
    };
    if let Err(error) = apply_filter(filter) {
        static WARNED: AtomicBool = AtomicBool::new(false);
        if !WARNED.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, ?kind, "hardening.seccomp: threads run without the filter of \
                their kind");
        }
    }
}

type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

/// Refuses these calls with any arguments.
fn refusals(calls: Vec<c_long>) -> Rules {
    calls.into_iter().map(|call| (call, Vec::new())).collect()
}

/// A condition on the first argument.
fn rule(operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    let condition = SeccompCondition::new(0, SeccompCmpArgLen::Qword, operator, value)?;
    SeccompRule::new(vec![condition])
}

fn program(mut rules: Rules, errno: i32) -> Result<BpfProgram, seccompiler::Error> {
    x32(&mut rules);
    let arch = TargetArch::try_from(ARCH)?;
    let refuse = SeccompAction::Errno(errno.cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)?;
    Ok(filter.try_into()?)
}

/// The same calls by the numbers of the x32 ABI, which some kernels of this architecture support,
/// and those with separate numbers there.
#[cfg(target_arch = "x86_64")]
fn x32(rules: &mut Rules) {
    const BIT: c_long = 0x4000_0000;
    let own = [
        (libc::SYS_execve, 520),
        (libc::SYS_ptrace, 521),
        (libc::SYS_kexec_load, 528),
        (libc::SYS_process_vm_readv, 539),
        (libc::SYS_process_vm_writev, 540),
        (libc::SYS_execveat, 545),
    ];
    let both = rules.iter().flat_map(|(call, rules)| {
        let other = own.iter().find(|(known, _)| known == call);
        let numbers = [Some(*call), other.map(|(_, number)| *number)];
        numbers
            .into_iter()
            .flatten()
            .map(|number| (number | BIT, rules.clone()))
    });
    let both: Vec<_> = both.collect();
    rules.extend(both);
}
#[cfg(not(target_arch = "x86_64"))]
fn x32(_: &mut Rules) {}
