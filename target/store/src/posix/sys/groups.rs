//! The host's user database, through the C library, which queries the sources that the host is
//! configured for.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;

/// The most bytes of an entry of the database.
const ENTRY_MAX: usize = 1 << 20;

/// The most groups of a process in the kernel (NGROUPS_MAX).
const GROUPS_MAX: usize = 65_536;

/// The groups of a user in the host's user database, including the primary one; `None` if the user
/// is unknown. Blocks, possibly on other hosts.
///
/// # Errors
/// The database cannot be queried now.
pub fn of_user(uid: u32) -> io::Result<Option<Vec<u32>>> {
    let Some((name, primary)) = user(uid)? else {
        return Ok(None);
    };
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut count = libc::c_int::try_from(groups.len()).unwrap_or(libc::c_int::MAX);
        // SAFETY: the name ends with a zero byte, and there is space for `count` groups.
        let outcome = unsafe {
            libc::getgrouplist(name.as_ptr(), primary, groups.as_mut_ptr(), &raw mut count)
        };
        let count = usize::try_from(count).unwrap_or(0);
        if outcome >= 0 {
            groups.truncate(count);
            return Ok(Some(groups));
        }
        if groups.len() >= GROUPS_MAX {
            return Err(io::Error::other("the user is in too many groups"));
        }
        // The call reports their number or, where it does not, there are more than requested.
        let wanted = count.max(groups.len() * 2).min(GROUPS_MAX);
        groups.resize(wanted, 0);
    }
}

/// Name and primary group of a user.
fn user(uid: u32) -> io::Result<Option<(CString, u32)>> {
    let mut buffer: Vec<libc::c_char> = vec![0; 1024];
    loop {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: the entry and the pointer are written, and strings into the buffer, whose length
        // is passed to the call.
        let outcome = unsafe {
            libc::getpwuid_r(
                uid,
                entry.as_mut_ptr(),
                buffer.as_mut_ptr(),
                buffer.len(),
                &raw mut found,
            )
        };
        match outcome {
            0 if found.is_null() => return Ok(None),
            0 => {
                // SAFETY: the call succeeded and found a user: the entry is filled in, and its name
                // is a string that ends with a zero byte inside the buffer, which is still alive.
                let (name, gid) = unsafe {
                    let entry = entry.assume_init();
                    (
                        std::ffi::CStr::from_ptr(entry.pw_name).to_owned(),
                        entry.pw_gid,
                    )
                };
                return Ok(Some((name, gid)));
            }
            // Some databases report an unknown user in this way.
            libc::ENOENT | libc::ESRCH => return Ok(None),
            libc::EINTR => {}
            libc::ERANGE if buffer.len() < ENTRY_MAX => buffer.resize(buffer.len() * 2, 0),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn groups_are_those_that_the_host_tells() {
        let users = std::fs::read_to_string("/etc/passwd").expect("a user database");
        let mut checked = 0;
        for line in users.lines() {
            let fields: Vec<&str> = line.split(':').collect();
            let (Some(name), Some(Ok(uid))) =
                (fields.first(), fields.get(2).map(|uid| uid.parse()))
            else {
                continue;
            };
            let told = Command::new("id").args(["-G", name]).output().expect("id");
            let told = String::from_utf8(told.stdout).expect("text");
            let mut told: Vec<u32> = told.split_whitespace().flat_map(str::parse).collect();
            let mut found = of_user(uid).expect("readable").expect("known");
            told.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, told, "{name}");
            checked += 1;
        }
        assert!(checked > 0);
    }

    #[test]
    fn who_is_unknown_has_none() {
        assert_eq!(of_user(4_123_456_789).unwrap(), None);
    }
}
