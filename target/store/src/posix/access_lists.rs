//! Access control lists, by helpers, as the kernel keeps them in extended attributes (acl(5)). The
//! kernel checks what the caller may do.

use std::ffi::CStr;
use std::os::fd::AsFd;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::descriptor::proc_path;
use super::errors::store_error;
use super::namespace::{Changed, JobContext, OpenObject};
use super::sys::calls;
use super::view::ClientView;
use crate::{
    ACCESS_ENTRIES_MAX, AccessList, AccessLists, Caller, Handle, Kind, Modified, Result, Rights,
    StoreError,
};

const ACCESS: &CStr = c"system.posix_acl_access";
const DEFAULT: &CStr = c"system.posix_acl_default";

/// The format of the attributes: a version, then entries of kind, rights and number.
const VERSION: u32 = 2;
const VERSION_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// Kinds of entries.
const OWNER: u16 = 1;
const USER: u16 = 2;
const OWNING_GROUP: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// The number of entries without one.
const NOBODY: u32 = u32::MAX;

/// The longest attribute: entries for users and groups, and the others.
const LONGEST: usize = VERSION_BYTES + (ACCESS_ENTRIES_MAX + 4) * ENTRY_BYTES;

impl ClientView<'_> {
    pub(super) async fn access_lists(&self, object: Handle) -> Result<AccessLists> {
        let caller = Caller::SUPERUSER;
        let (context, place) = self.job_context(&caller, object).await?;
        let job = move || {
            let found = context.live(&place)?;
            require(&context, &place)?;
            let access = match read(&place, ACCESS)? {
                Some(list) => list,
                None => AccessList::of_mode(found.mode),
            };
            let default = match place.kind {
                Kind::Directory => read(&place, DEFAULT)?,
                _ => None,
            };
            Ok(AccessLists { access, default })
        };
        self.volume.helpers().run(self.client, job).await?
    }

    pub(super) async fn set_access_lists(
        &self,
        caller: &Caller,
        object: Handle,
        lists: &AccessLists,
    ) -> Modified<()> {
        let lists = lists.clone();
        let begin = async {
            let (context, place) = self.job_context(caller, object).await?;
            let job = move || {
                context.change(&place, |_| {
                    require(&context, &place)?;
                    if lists.default.is_some() && place.kind != Kind::Directory {
                        return Err(StoreError::Invalid);
                    }
                    let all = [Some(&lists.access), lists.default.as_ref()];
                    let fits = |list: &AccessList| list.entries() <= ACCESS_ENTRIES_MAX;
                    if !all.into_iter().flatten().all(fits) {
                        return Err(StoreError::Invalid);
                    }
                    let object = place.path.as_fd();
                    let write = |name: &CStr, list: &AccessList| {
                        calls::set_xattr(object, name, &encode(list), XattrFlags::empty())
                    };
                    let set = || {
                        if place.kind == Kind::Directory {
                            match &lists.default {
                                Some(list) => write(DEFAULT, list)?,
                                None => match calls::remove_xattr(object, DEFAULT) {
                                    Ok(()) | Err(Errno::NODATA) => {}
                                    Err(error) => return Err(error),
                                },
                            }
                        }
                        write(ACCESS, &lists.access)
                    };
                    context.act(set).map_err(list_error)?;
                    Ok(Changed::place(()))
                })
            };
            self.volume.helpers().run(self.client, job).await
        };
        begin.await.unwrap_or_else(Modified::failed)
    }
}

/// Permission bits of symbolic links mean nothing.
fn require(context: &JobContext, place: &OpenObject) -> Result<()> {
    match place.kind {
        Kind::Symlink => Err(StoreError::NotSupported),
        Kind::Directory => context.require_inside(place),
        _ => Ok(()),
    }
}

/// A list that the kernel keeps; `None` if there is none.
fn read(place: &OpenObject, name: &CStr) -> Result<Option<AccessList>> {
    let mut value = vec![0; LONGEST];
    let path = proc_path(place.path.as_fd());
    match rustix::fs::getxattr(&path, name, &mut value[..]) {
        Ok(length) => decode(&value[..length]).map(Some),
        Err(Errno::NODATA) => Ok(None),
        Err(error) => Err(list_error(error)),
    }
}

fn list_error(error: Errno) -> StoreError {
    match error {
        Errno::OPNOTSUPP => StoreError::NotSupported,
        Errno::RANGE | Errno::TOOBIG => StoreError::Invalid,
        error => store_error(error),
    }
}

fn encode(list: &AccessList) -> Vec<u8> {
    let mut bytes = VERSION.to_le_bytes().to_vec();
    let mut entry = |kind: u16, rights: Rights, number: u32| {
        bytes.extend(kind.to_le_bytes());
        bytes.extend(u16::from(rights & 7).to_le_bytes());
        bytes.extend(number.to_le_bytes());
    };
    // The kernel wants them in this order, users and groups by their numbers.
    let sorted = |entries: &[(u32, Rights)]| {
        let mut entries = entries.to_vec();
        entries.sort_unstable();
        entries
    };
    entry(OWNER, list.owner, NOBODY);
    for (user, rights) in sorted(&list.users) {
        entry(USER, rights, user);
    }
    entry(OWNING_GROUP, list.group, NOBODY);
    for (group, rights) in sorted(&list.groups) {
        entry(GROUP, rights, group);
    }
    if let Some(mask) = list.mask {
        entry(MASK, mask, NOBODY);
    }
    entry(OTHER, list.other, NOBODY);
    bytes
}

fn decode(bytes: &[u8]) -> Result<AccessList> {
    let (version, rest) = bytes
        .split_first_chunk::<VERSION_BYTES>()
        .ok_or(StoreError::Io)?;
    let (entries, odd) = rest.as_chunks::<ENTRY_BYTES>();
    if u32::from_le_bytes(*version) != VERSION || !odd.is_empty() {
        return Err(StoreError::Io);
    }
    let mut list = AccessList::default();
    for &[k0, k1, rights, _, n0, n1, n2, n3] in entries {
        let (rights, number) = (rights & 7, u32::from_le_bytes([n0, n1, n2, n3]));
        match u16::from_le_bytes([k0, k1]) {
            OWNER => list.owner = rights,
            USER => list.users.push((number, rights)),
            OWNING_GROUP => list.group = rights,
            GROUP => list.groups.push((number, rights)),
            MASK => list.mask = Some(rights),
            OTHER => list.other = rights,
            _ => return Err(StoreError::Io),
        }
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_comes_back_as_it_was_kept() {
        let list = AccessList {
            owner: 7,
            users: vec![(5, 6), (1000, 4)],
            group: 5,
            groups: vec![(7, 1)],
            mask: Some(6),
            other: 0,
        };
        let bytes = encode(&list);
        assert_eq!(decode(&bytes), Ok(list));
        assert_eq!(bytes.len(), VERSION_BYTES + 7 * ENTRY_BYTES);
        for end in [0, 3, 5, bytes.len() - 1] {
            assert!(decode(&bytes[..end]).is_err());
        }
    }
}
