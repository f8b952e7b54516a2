//! Access control lists in extended attributes, in the format of Linux (acl(5)).

use std::ffi::CStr;

use crate::{ACCESS_ENTRIES_MAX, AccessList, Result, Rights, StoreError};

/// The extended attributes that have the lists.
pub(crate) const ACCESS: &CStr = c"system.posix_acl_access";
pub(crate) const DEFAULT: &CStr = c"system.posix_acl_default";

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
pub(crate) const LONGEST: usize = VERSION_BYTES + (ACCESS_ENTRIES_MAX + 4) * ENTRY_BYTES;

/// A list as the value of an attribute.
pub(crate) fn encode(list: &AccessList) -> Vec<u8> {
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

/// The list of a value.
///
/// # Errors
/// [`StoreError::Io`]: it has another format.
pub(crate) fn decode(bytes: &[u8]) -> Result<AccessList> {
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
