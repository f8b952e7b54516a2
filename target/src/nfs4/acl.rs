//! The attribute acl: access control lists of the protocol (RFC 8881 section 6) and those of POSIX,
//! which stores keep.
//!
//! A list of the protocol is taken apart entry by entry, and each entry also denies others what the
//! POSIX order of classes would deny them. So what POSIX cannot express becomes narrower, never
//! wider.

use std::rc::Rc;

use millrace_gss::AccountKind;
use millrace_store::{ACCESS_ENTRIES_MAX, AccessList, AccessLists, Rights};
use millrace_wire::nfs4::{
    AccessControlEntry, AccessControlList, OperationStatus, ace_flags, ace_mask, ace_type,
};
use millrace_wire::xdr::{Encode, Encoder, Error};

use super::decimal::DecimalText;
use super::owners::OwnerNumbers;

/// Rights that everybody has, and those of the owner beside.
const OF_ALL: u32 = ace_mask::READ_ATTRIBUTES | ace_mask::READ_ACL | ace_mask::SYNCHRONIZE;
const OF_OWNER: u32 = ace_mask::WRITE_ATTRIBUTES | ace_mask::WRITE_ACL;
/// What everybody has cannot be denied.
const UNDENIABLE: u32 = ace_mask::READ_ATTRIBUTES | ace_mask::READ_ACL;

const INHERITED_BY: u32 = ace_flags::FILE_INHERIT | ace_flags::DIRECTORY_INHERIT;
const KNOWN_FLAGS: u32 = INHERITED_BY | ace_flags::INHERIT_ONLY | ace_flags::GROUP;

/// Longest text of a user or group, and the bytes of an entry with it.
const ENTRY_BYTES: usize = 4 * 4 + 12;

/// To whom an entry applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Owner,
    OwningGroup,
    Everyone,
    User(u32),
    Group(u32),
}

impl Who {
    fn read(
        entry: &AccessControlEntry<'_>,
        numbers: &OwnerNumbers<'_>,
    ) -> Result<Self, OperationStatus> {
        let kind = kind(entry.flags);
        Ok(match entry.who {
            b"OWNER@" => Self::Owner,
            b"GROUP@" => Self::OwningGroup,
            b"EVERYONE@" => Self::Everyone,
            who => match (kind, numbers.parse(kind, who)?) {
                (AccountKind::User, number) => Self::User(number),
                (AccountKind::Group, number) => Self::Group(number),
            },
        })
    }
}

/// To whom an entry with these flags applies, unless it has a special name.
pub(super) fn kind(flags: u32) -> AccountKind {
    match flags & ace_flags::GROUP {
        0 => AccountKind::User,
        _ => AccountKind::Group,
    }
}

/// An entry of a list that is to be set.
#[derive(Clone, Copy, Debug)]
struct GivenEntry {
    who: Who,
    denies: bool,
    flags: u32,
    mask: u32,
}

/// A list that is to be set, which means something else for directories than for files.
#[derive(Clone, Debug)]
pub(super) struct GivenAcl(Rc<[GivenEntry]>);

impl GivenAcl {
    /// Reads a list.
    pub fn read(
        list: &AccessControlList<'_>,
        numbers: &OwnerNumbers<'_>,
    ) -> Result<Self, OperationStatus> {
        if list.len() > ACCESS_ENTRIES_MAX {
            return Err(OperationStatus::Invalid);
        }
        let entries = list.iter().map(|entry| {
            let denies = match entry.kind {
                ace_type::ALLOW => false,
                ace_type::DENY => true,
                _ => return Err(OperationStatus::AttributeNotSupported),
            };
            let is_kept = entry.flags & !KNOWN_FLAGS == 0;
            if !is_kept || (denies && entry.mask & UNDENIABLE != 0) {
                return Err(OperationStatus::AttributeNotSupported);
            }
            Ok(GivenEntry {
                who: Who::read(&entry, numbers)?,
                denies,
                flags: entry.flags,
                mask: entry.mask,
            })
        });
        entries
            .collect::<Result<Vec<_>, _>>()
            .map(|all| Self(all.into()))
    }

    /// The lists of an object.
    pub fn lists(&self, is_directory: bool) -> Result<AccessLists, OperationStatus> {
        let (mut access, mut default) = (ClassRights::default(), ClassRights::default());
        let mut is_inherited = false;
        for entry in &*self.0 {
            if entry.flags & INHERITED_BY == 0 {
                access.apply(entry);
                continue;
            }
            if !is_directory {
                return Err(OperationStatus::Invalid);
            }
            is_inherited = true;
            default.apply(entry);
            if entry.flags & ace_flags::INHERIT_ONLY == 0 {
                access.apply(entry);
            }
        }
        Ok(AccessLists {
            access: access.list(is_directory),
            default: is_inherited.then(|| default.list(true)),
        })
    }
}

/// The rights that entries so far have granted and denied someone.
#[derive(Clone, Copy, Debug, Default)]
struct Judgement {
    allowed: u32,
    denied: u32,
}

impl Judgement {
    fn apply(&mut self, mask: u32, denies: bool) {
        match denies {
            true => self.denied |= mask & !self.allowed,
            false => self.allowed |= mask & !self.denied,
        }
    }

    /// Rights as POSIX has them: writing is all that changes a file, or the names in a directory.
    fn rights(self, is_directory: bool) -> Rights {
        let write = write_mask(is_directory);
        let has = |mask: u32, right| {
            if self.allowed & mask == mask {
                right
            } else {
                0
            }
        };
        has(ace_mask::READ_DATA, 4) | has(write, 2) | has(ace_mask::EXECUTE, 1)
    }
}

fn write_mask(is_directory: bool) -> u32 {
    let write = ace_mask::WRITE_DATA | ace_mask::APPEND_DATA;
    match is_directory {
        true => write | ace_mask::DELETE_CHILD,
        false => write,
    }
}

/// What a list says about each class of users.
#[derive(Debug, Default)]
struct ClassRights {
    owner: Judgement,
    group: Judgement,
    everyone: Judgement,
    /// What the entry of a user or group that was not named yet begins with.
    unnamed: Judgement,
    users: Vec<(u32, Judgement)>,
    groups: Vec<(u32, Judgement)>,
}

/// The entry of a user or group.
fn named(all: &mut Vec<(u32, Judgement)>, number: u32, unnamed: Judgement) -> &mut Judgement {
    let known = all.iter().position(|(one, _)| *one == number);
    let at = known.unwrap_or_else(|| {
        all.push((number, unnamed));
        all.len() - 1
    });
    &mut all[at].1
}

impl ClassRights {
    fn apply(&mut self, entry: &GivenEntry) {
        let (mask, denies) = (entry.mask, entry.denies);
        match entry.who {
            Who::Owner => self.owner.apply(mask, denies),
            Who::User(user) => {
                let judged = named(&mut self.users, user, self.unnamed);
                judged.apply(mask, denies);
                // The owner may be this user.
                let denied = judged.denied;
                self.owner.apply(denied, true);
            }
            Who::OwningGroup => {
                self.group.apply(mask, denies);
                let denied = self.group.denied;
                self.owner.apply(denied, true);
                self.unnamed.apply(denied, true);
                let others = self.users.iter_mut().chain(&mut self.groups);
                others.for_each(|(_, other)| other.apply(denied, true));
            }
            Who::Group(group) => {
                let judged = named(&mut self.groups, group, self.unnamed);
                judged.apply(mask, denies);
                // Members of this group may be in another one or named; to POSIX they are not others.
                let denied = judged.denied;
                for class in [&mut self.owner, &mut self.group, &mut self.unnamed] {
                    class.apply(denied, true);
                }
                let others = self.users.iter_mut().chain(&mut self.groups);
                others.for_each(|(_, other)| other.apply(denied, true));
            }
            Who::Everyone => {
                let classes = [&mut self.owner, &mut self.group, &mut self.everyone];
                for class in classes.into_iter().chain([&mut self.unnamed]) {
                    class.apply(mask, denies);
                }
                let others = self.users.iter_mut().chain(&mut self.groups);
                others.for_each(|(_, other)| other.apply(mask, denies));
            }
        }
    }

    fn list(&self, is_directory: bool) -> AccessList {
        let rights = |judged: &Judgement| judged.rights(is_directory);
        let of = |all: &[(u32, Judgement)]| -> Vec<(u32, Rights)> {
            all.iter()
                .map(|(who, judged)| (*who, rights(judged)))
                .collect()
        };
        let (users, groups) = (of(&self.users), of(&self.groups));
        let group = rights(&self.group);
        let named = users.iter().chain(&groups);
        let mask = named.fold(group, |mask, (_, rights)| mask | rights);
        AccessList {
            owner: rights(&self.owner),
            group,
            other: rights(&self.everyone),
            mask: (!users.is_empty() || !groups.is_empty()).then_some(mask),
            users,
            groups,
        }
    }
}

/// Writes entries, and counts them.
struct EntryWriter<'e, 'o> {
    out: &'e mut Encoder<'o>,
    count: u32,
    flags: u32,
    is_directory: bool,
}

impl EntryWriter<'_, '_> {
    fn push(&mut self, kind: u32, who: Who, mask: u32) -> Result<(), Error> {
        let text;
        let (flags, who) = match who {
            Who::Owner => (0, &b"OWNER@"[..]),
            Who::OwningGroup => (ace_flags::GROUP, &b"GROUP@"[..]),
            Who::Everyone => (0, &b"EVERYONE@"[..]),
            Who::User(number) => {
                text = DecimalText::new(number);
                (0, text.as_bytes())
            }
            Who::Group(number) => {
                text = DecimalText::new(number);
                (ace_flags::GROUP, text.as_bytes())
            }
        };
        self.count += 1;
        AccessControlEntry {
            kind,
            flags: flags | self.flags,
            mask,
            who,
        }
        .encode(self.out)
    }

    fn mask(&self, rights: Rights) -> u32 {
        let has = |right, mask| if rights & right != 0 { mask } else { 0 };
        has(4, ace_mask::READ_DATA)
            | has(2, write_mask(self.is_directory))
            | has(1, ace_mask::EXECUTE)
    }

    fn allow(&mut self, who: Who, rights: Rights) -> Result<(), Error> {
        let own = if who == Who::Owner { OF_OWNER } else { 0 };
        self.push(ace_type::ALLOW, who, self.mask(rights) | OF_ALL | own)
    }

    /// Denies what a later entry would grant.
    fn deny(&mut self, who: Who, rights: Rights) -> Result<(), Error> {
        match rights {
            0 => Ok(()),
            rights => self.push(ace_type::DENY, who, self.mask(rights)),
        }
    }

    fn list(&mut self, list: &AccessList) -> Result<(), Error> {
        let most = list.mask.unwrap_or(7);
        let (group, other) = (list.group & most, list.other);
        let union = |all: &[(u32, Rights)]| all.iter().fold(0, |union, (_, own)| union | own);
        let (users, groups) = (union(&list.users) & most, union(&list.groups) & most);
        self.deny(Who::Owner, (users | group | groups | other) & !list.owner)?;
        self.allow(Who::Owner, list.owner)?;
        for &(user, rights) in &list.users {
            let rights = rights & most;
            self.deny(Who::User(user), (group | groups | other) & !rights)?;
            self.allow(Who::User(user), rights)?;
        }
        // Members of several groups have the rights of all of them.
        self.allow(Who::OwningGroup, group)?;
        for &(group, rights) in &list.groups {
            self.allow(Who::Group(group), rights & most)?;
        }
        self.deny(Who::OwningGroup, other & !group)?;
        for &(group, rights) in &list.groups {
            self.deny(Who::Group(group), other & !(rights & most))?;
        }
        self.allow(Who::Everyone, other)
    }
}

/// The value of the attribute.
pub(super) fn encode(lists: &AccessLists, is_directory: bool) -> Vec<u8> {
    let entries = |list: &AccessList| 2 * (list.entries() + 3);
    let most = entries(&lists.access) + lists.default.as_ref().map_or(0, entries);
    let mut bytes = vec![0; 4 + most * ENTRY_BYTES];
    let length = write(&mut bytes, lists, is_directory).unwrap_or(0);
    bytes.truncate(length);
    bytes
}

/// A list with other users and groups, encoded: `name` has those of which others take the place.
pub(super) fn renamed(
    list: &AccessControlList<'_>,
    name: impl Fn(AccountKind, &[u8]) -> Option<Rc<[u8]>>,
) -> Vec<u8> {
    let names = list.iter().map(|entry| name(kind(entry.flags), entry.who));
    let names: Vec<_> = names.collect();
    let entries = list.iter().zip(&names).map(|(entry, name)| {
        let who = name.as_deref().unwrap_or(entry.who);
        AccessControlEntry { who, ..entry }
    });
    let entries: Vec<_> = entries.collect();
    let most = |entry: &AccessControlEntry<'_>| 4 * 4 + entry.who.len().next_multiple_of(4);
    let mut bytes = vec![0; 4 + entries.iter().map(most).sum::<usize>()];
    let encoded = AccessControlList::new(&entries).encode(&mut Encoder::new(&mut bytes));
    debug_assert!(encoded.is_ok(), "it has room");
    bytes
}

fn write(bytes: &mut [u8], lists: &AccessLists, is_directory: bool) -> Result<usize, Error> {
    let mut out = Encoder::new(bytes);
    out.u32(0)?;
    let mut writer = EntryWriter {
        out: &mut out,
        count: 0,
        flags: 0,
        is_directory,
    };
    writer.list(&lists.access)?;
    if let Some(default) = &lists.default {
        writer.flags = INHERITED_BY | ace_flags::INHERIT_ONLY;
        writer.list(default)?;
    }
    let count = writer.count;
    let length = out.position();
    bytes[..4].copy_from_slice(&count.to_be_bytes());
    Ok(length)
}

#[cfg(test)]
#[path = "acl_tests.rs"]
mod tests;
