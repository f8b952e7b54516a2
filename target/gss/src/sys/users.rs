//! The host's databases of users and groups, through the C library.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;

use crate::{Account, AccountKind, AccountQuestion, User};

/// The most bytes of an entry of a database.
const ENTRY_MAX: usize = 1 << 20;

/// An entry of a database, as `take` reads it; `None`: there is none. Blocks, possibly on other
/// hosts.
///
/// # Safety
///
/// `ask` is one of the reentrant functions of the C library: if it returns 0 and sets the pointer,
/// the entry is filled in, with strings in the buffer. `take` may read them until it returns.
unsafe fn entry<E, T>(
    ask: impl Fn(*mut E, &mut [libc::c_char], *mut *mut E) -> libc::c_int,
    take: impl FnOnce(&E) -> T,
) -> io::Result<Option<T>> {
    let mut buffer: Vec<libc::c_char> = vec![0; 1024];
    loop {
        let mut entry = MaybeUninit::<E>::uninit();
        let mut found = std::ptr::null_mut();
        match ask(entry.as_mut_ptr(), &mut buffer, &raw mut found) {
            0 if found.is_null() => return Ok(None),
            // SAFETY: the call succeeded and found an entry, so it is filled in.
            0 => return Ok(Some(take(unsafe { entry.assume_init_ref() }))),
            // Some databases report an unknown user in this way.
            libc::ENOENT | libc::ESRCH => return Ok(None),
            libc::EINTR => {}
            libc::ERANGE if buffer.len() < ENTRY_MAX => buffer.resize(buffer.len() * 2, 0),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// A user by name with the groups, at most `groups_max`; `None`: unknown. Blocks, possibly on other
/// hosts.
pub fn user(name: &str, groups_max: usize) -> io::Result<Option<User>> {
    let Ok(name) = CString::new(name) else {
        return Ok(None);
    };
    // SAFETY: the name ends with a zero byte, and the length of the buffer is passed.
    let found = unsafe {
        entry(
            |entry, buffer, found| {
                libc::getpwnam_r(
                    name.as_ptr(),
                    entry,
                    buffer.as_mut_ptr(),
                    buffer.len(),
                    found,
                )
            },
            |entry: &libc::passwd| (entry.pw_uid, entry.pw_gid),
        )
    };
    let Some((uid, gid)) = found? else {
        return Ok(None);
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

/// A user or group; `None`: unknown, or its name is no UTF-8. Blocks, possibly on other hosts.
pub fn account(question: &AccountQuestion) -> io::Result<Option<Account>> {
    let name = match question {
        AccountQuestion::Name(_, name) => CString::new(&**name),
        AccountQuestion::Number(..) => Ok(CString::default()),
    };
    let Ok(name) = name else {
        return Ok(None);
    };
    let text = name.as_ptr();
    let user = |entry: &libc::passwd| {
        // SAFETY: it is called while the buffer with the strings is alive.
        unsafe { account_of(entry.pw_name, entry.pw_uid) }
    };
    let group = |entry: &libc::group| {
        // SAFETY: as above.
        unsafe { account_of(entry.gr_name, entry.gr_gid) }
    };
    // SAFETY: the name ends with a zero byte, and the length of the buffer is passed.
    let found = unsafe {
        match *question {
            AccountQuestion::Name(AccountKind::User, _) => entry(
                |entry, buffer, found| {
                    libc::getpwnam_r(text, entry, buffer.as_mut_ptr(), buffer.len(), found)
                },
                user,
            ),
            AccountQuestion::Name(AccountKind::Group, _) => entry(
                |entry, buffer, found| {
                    libc::getgrnam_r(text, entry, buffer.as_mut_ptr(), buffer.len(), found)
                },
                group,
            ),
            AccountQuestion::Number(AccountKind::User, number) => entry(
                |entry, buffer, found| {
                    libc::getpwuid_r(number, entry, buffer.as_mut_ptr(), buffer.len(), found)
                },
                user,
            ),
            AccountQuestion::Number(AccountKind::Group, number) => entry(
                |entry, buffer, found| {
                    libc::getgrgid_r(number, entry, buffer.as_mut_ptr(), buffer.len(), found)
                },
                group,
            ),
        }
    };
    Ok(found?.flatten())
}

/// # Safety
///
/// The name is a string that ends with a zero byte.
unsafe fn account_of(name: *const libc::c_char, number: u32) -> Option<Account> {
    // SAFETY: that of this function.
    let name = unsafe { CStr::from_ptr(name) };
    let name = name.to_str().ok()?.into();
    Some(Account { number, name })
}
