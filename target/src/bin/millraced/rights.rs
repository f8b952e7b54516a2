//! Dropping root's rights (`--user`), for a server started by hand or in a container. systemd does
//! the same before starting the server; see the unit.

use std::fs;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{self, CapabilitySet, CapabilitySets};

/// Local users and groups of this system.
const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// Continues as this user, with only these rights of root. Programs started by this process do not
/// have them.
///
/// Only the calling thread and its later children change: to be called while there is no other
/// thread.
///
/// # Errors
/// There is no such user, or the process may not become it.
pub fn become_user(name: &str, kept: CapabilitySet) -> Result<()> {
    ensure!(
        geteuid().is_root(),
        "only root can run as another user (--user {name})"
    );
    let read = |file| fs::read_to_string(file).with_context(|| format!("cannot read {file}"));
    let user = User::find(name, &read(USERS)?, &read(GROUPS)?)?;
    user.take_over(kept)
        .with_context(|| format!("cannot run as {name}"))
}

/// Whether the process has root's rights unnecessarily.
pub fn are_roots() -> bool {
    geteuid().is_root()
}

#[derive(Debug, PartialEq, Eq)]
struct User {
    id: u32,
    group: u32,
    groups: Vec<u32>,
}

impl User {
    /// Finds a user in the texts of the two files (passwd(5), group(5)).
    fn find(name: &str, users: &str, groups: &str) -> Result<Self> {
        let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
        let found = users.lines().map(fields).find(|line| line[0] == name);
        let Some(found) = found else {
            bail!("there is no user `{name}` in {USERS} (--user)");
        };
        let number = |place: usize| {
            let text = found.get(place).map(String::as_str).unwrap_or_default();
            text.parse::<u32>()
                .with_context(|| format!("{USERS}: user `{name}` has the invalid number `{text}`"))
        };
        let (id, group) = (number(2)?, number(3)?);
        ensure!(id != 0, "user `{name}` is root itself (--user)");
        let mut all = vec![group];
        for line in groups.lines().map(fields) {
            let [_, _, number, members] = line.as_slice() else {
                continue;
            };
            if let (true, Ok(number)) = (members.split(',').any(|one| one == name), number.parse())
                && !all.contains(&number)
            {
                all.push(number);
            }
        }
        Ok(Self {
            id,
            group,
            groups: all,
        })
    }

    fn take_over(&self, kept: CapabilitySet) -> rustix::io::Result<()> {
        // No program can regain a capability removed from the bounding set.
        let bounding = CapabilitySet::all();
        for one in bounding.difference(kept).iter() {
            // Older kernels do not have every capability, and those need not be removed.
            let _ = thread::remove_capability_from_bounding_set(one);
        }
        thread::set_keep_capabilities(true)?;
        let groups: Vec<Gid> = self
            .groups
            .iter()
            .map(|&group| Gid::from_raw(group))
            .collect();
        thread::set_thread_groups(&groups)?;
        let group = Gid::from_raw(self.group);
        thread::set_thread_res_gid(group, group, group)?;
        let user = Uid::from_raw(self.id);
        thread::set_thread_res_uid(user, user, user)?;
        let sets = CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        };
        thread::set_capabilities(None, sets)?;
        thread::set_keep_capabilities(false)?;
        thread::set_no_new_privs(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "root:x:0:0:root:/root:/bin/bash\n\
        millrace:x:990:991::/var/lib/millrace:/usr/sbin/nologin\n\
        second:x:0:0:root by another name:/root:/bin/sh\n\
        broken:x:ninety:1::/:/bin/sh\nshort\n";
    const GROUPS: &str = "root:x:0:\nadapters:x:44:other,millrace\nmillrace:x:991:millrace\n\
        mill:x:45:millracer,xmillrace\nwrong:x:none:millrace\nshort\n";

    #[test]
    fn a_user_is_found_with_all_groups() {
        let user = User {
            id: 990,
            group: 991,
            groups: vec![991, 44],
        };
        assert_eq!(User::find("millrace", USERS, GROUPS).unwrap(), user);
    }

    #[test]
    fn who_cannot_be_become_is_told() {
        for (name, what) in [
            ("nobody", "there is no user `nobody`"),
            ("", "there is no user ``"),
            ("root", "is root itself"),
            ("second", "is root itself"),
            ("broken", "`ninety`"),
            ("short", "has the invalid number ``"),
        ] {
            let error = User::find(name, USERS, GROUPS).unwrap_err().to_string();
            assert!(error.contains(what), "{name}: {error}");
        }
    }
}
