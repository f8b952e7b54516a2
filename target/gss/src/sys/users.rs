//! The host's database of users, through the C library.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;

use crate::User;

/// The most bytes of an entry of the database.
const ENTRY_MAX: usize = 1 << 20;

/// A user by name with the groups, at most `groups_max`; `None`: unknown. Blocks, possibly on other
/// hosts.
pub fn user(name: &str, groups_max: usize) -> io::Result<Option<User>> {
    let Ok(name) = CString::new(name) else {
        return Ok(None);
    };
    let mut buffer: Vec<libc::c_char> = vec![0; 1024];
    let (uid, gid) = loop {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: the name ends with a zero byte; the entry and the pointer are written, and
        // strings into the buffer, whose length is passed.
        let outcome = unsafe {
            libc::getpwnam_r(
                name.as_ptr(),
                entry.as_mut_ptr(),
                buffer.as_mut_ptr(),
                buffer.len(),
                &raw mut found,
            )
        };
        match outcome {
            0 if found.is_null() => return Ok(None),
            0 => {
                // SAFETY: the call succeeded and found a user, so the entry is filled in.
                let entry = unsafe { entry.assume_init() };
                break (entry.pw_uid, entry.pw_gid);
            }
            // Some databases report an unknown user in this way.
            libc::ENOENT | libc::ESRCH => return Ok(None),
            libc::EINTR => {}
            libc::ERANGE if buffer.len() < ENTRY_MAX => buffer.resize(buffer.len() * 2, 0),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    };
    let mut groups: Vec<libc::gid_t> = vec![0; groups_max.saturating_add(1).min(1 << 16)];
    let mut count = libc::c_int::try_from(groups.len()).unwrap_or(libc::c_int::MAX);
    // SAFETY: the name ends with a zero byte, and there is space for `count` groups. If there are
    // more, the first ones are written and the count becomes theirs.
    let outcome =
        unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
    if outcome >= 0 {
        groups.truncate(usize::try_from(count).unwrap_or(0));
    } else {
        tracing::warn!("user {uid} has {count} groups; gss.groups_max of them count");
    }
    groups.retain(|&group| group != gid);
    groups.truncate(groups_max);
    Ok(Some(User {
        uid,
        gid,
        groups: groups.into(),
    }))
}
