//! Tests of lists.

use millrace_wire::xdr::{Array, Decode, Decoder};

use super::*;
use crate::nfs4::decimal;

const READ: u32 = ace_mask::READ_DATA;
const WRITE: u32 = ace_mask::WRITE_DATA | ace_mask::APPEND_DATA;
const EXECUTE: u32 = ace_mask::EXECUTE;

fn entry(kind: u32, flags: u32, mask: u32, who: &[u8]) -> AccessControlEntry<'_> {
    AccessControlEntry {
        kind,
        flags,
        mask,
        who,
    }
}

fn allow(mask: u32, who: &[u8]) -> AccessControlEntry<'_> {
    entry(ace_type::ALLOW, 0, mask, who)
}

fn deny(mask: u32, who: &[u8]) -> AccessControlEntry<'_> {
    entry(ace_type::DENY, 0, mask, who)
}

fn read(entries: &[AccessControlEntry<'_>]) -> Result<AccessLists, OperationStatus> {
    GivenAcl::read(&Array::new(entries), &OwnerNumbers::default())?.lists(false)
}

/// What a list of the protocol gives a user of these groups (RFC 8881 section 6.2.1).
fn judged(
    list: &AccessControlList<'_>,
    (owner, group): (bool, bool),
    user: u32,
    groups: &[u32],
) -> u32 {
    let (mut allowed, mut denied) = (0, 0);
    for entry in list.iter() {
        let number = || decimal::parse(entry.who);
        let applies = match entry.who {
            b"OWNER@" => owner,
            b"GROUP@" => group,
            b"EVERYONE@" => true,
            _ if entry.flags & ace_flags::GROUP != 0 => groups.contains(&number().unwrap()),
            _ => number() == Some(user),
        };
        if applies && entry.flags & ace_flags::INHERIT_ONLY == 0 {
            match entry.kind {
                ace_type::ALLOW => allowed |= entry.mask & !denied,
                _ => denied |= entry.mask & !allowed,
            }
        }
    }
    allowed & (READ | WRITE | EXECUTE)
}

/// The same by the lists of POSIX (acl(5)).
fn posix(
    list: &AccessList,
    (owner, group): (bool, bool),
    user: u32,
    groups: &[u32],
) -> Vec<Rights> {
    if owner {
        return vec![list.owner];
    }
    let mask = list.mask.unwrap_or(7);
    if let Some((_, rights)) = list.users.iter().find(|(one, _)| *one == user) {
        return vec![rights & mask];
    }
    let own = group.then_some(list.group & mask);
    let named = list.groups.iter().filter(|(one, _)| groups.contains(one));
    let all: Vec<Rights> = own
        .into_iter()
        .chain(named.map(|(_, rights)| rights & mask))
        .collect();
    match all.is_empty() {
        true => vec![list.other],
        false => all,
    }
}

fn bits(rights: Rights) -> u32 {
    let has = |right, mask| if rights & right != 0 { mask } else { 0 };
    has(4, READ) | has(2, WRITE) | has(1, EXECUTE)
}

/// A few numbers that depend on a seed.
fn draw(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*seed >> 33) % below
}

fn drawn_list(seed: &mut u64) -> AccessList {
    let mut rights = || draw(seed, 8) as Rights;
    let mut list = AccessList {
        owner: rights(),
        group: rights(),
        other: rights(),
        ..AccessList::default()
    };
    for number in [1, 2] {
        if rights() & 1 == 0 {
            list.users.push((number, rights()));
        }
        if rights() & 1 == 0 {
            list.groups.push((number, rights()));
        }
    }
    list.mask = list.is_extended().then(rights);
    list
}

#[test]
fn v4_attr_22_a_list_of_posix_means_the_same_in_the_protocol() {
    let mut seed = 7;
    for _ in 0..2000 {
        let list = drawn_list(&mut seed);
        let lists = AccessLists {
            access: list.clone(),
            default: None,
        };
        let bytes = encode(&lists, false);
        let shown = AccessControlList::decode(&mut Decoder::new(&bytes)).unwrap();
        for (owner, group, user) in [
            (true, false, 9),
            (false, true, 9),
            (false, false, 1),
            (false, true, 2),
            (false, false, 9),
        ] {
            for groups in [&[][..], &[1], &[1, 2]] {
                let own = judged(&shown, (owner, group), user, groups);
                let all = posix(&list, (owner, group), user, groups);
                let union = all.iter().fold(0, |union, rights| union | bits(*rights));
                assert_eq!(own, union, "{list:?} {owner} {group} {user} {groups:?}");
            }
        }
    }
}

#[test]
fn v4_attr_22_a_list_that_was_shown_is_set_as_it_was() {
    let mut seed = 3;
    for _ in 0..2000 {
        let mut list = drawn_list(&mut seed);
        // The mask is what is left of it: the union of what it lets through.
        let most = list.mask.unwrap_or(7);
        list.group &= most;
        let named = list.users.iter_mut().chain(&mut list.groups);
        named.for_each(|(_, rights)| *rights &= most);
        let named = list.users.iter().chain(&list.groups);
        let union = named.fold(list.group, |union, (_, rights)| union | rights);
        list.mask = list.is_extended().then_some(union);
        let lists = AccessLists {
            access: list,
            default: None,
        };
        let bytes = encode(&lists, false);
        let shown = AccessControlList::decode(&mut Decoder::new(&bytes)).unwrap();
        let again = GivenAcl::read(&shown, &OwnerNumbers::default())
            .unwrap()
            .lists(false)
            .unwrap();
        // Entries that deny are narrower for who may be in several classes.
        let least = |new: Rights, old: Rights| new & !old == 0;
        assert!(least(again.access.owner, lists.access.owner));
        assert!(least(again.access.group, lists.access.group));
        assert!(least(again.access.other, lists.access.other));
        assert_eq!(again.access.users.len(), lists.access.users.len());
    }
    for mode in 0..0o1000 {
        let lists = AccessLists {
            access: AccessList::of_mode(mode),
            default: None,
        };
        let bytes = encode(&lists, false);
        let shown = AccessControlList::decode(&mut Decoder::new(&bytes)).unwrap();
        let again = GivenAcl::read(&shown, &OwnerNumbers::default())
            .unwrap()
            .lists(false)
            .unwrap();
        assert_eq!(again, lists, "{mode:o}");
    }
}

#[test]
fn v4_attr_24_a_list_is_never_wider_than_what_was_given() {
    let mut seed = 11;
    let names: [&[u8]; 5] = [b"OWNER@", b"GROUP@", b"EVERYONE@", b"1", b"2"];
    for _ in 0..2000 {
        let entries: Vec<AccessControlEntry<'_>> = (0..draw(&mut seed, 6))
            .map(|_| {
                let who = names[draw(&mut seed, 5) as usize];
                let is_number = who.len() == 1;
                let group = is_number && draw(&mut seed, 2) == 1;
                let mask = [READ, WRITE, EXECUTE, READ | WRITE, READ | EXECUTE]
                    [draw(&mut seed, 5) as usize];
                let flags = if group { ace_flags::GROUP } else { 0 };
                entry(draw(&mut seed, 2) as u32, flags, mask, who)
            })
            .collect();
        let given = Array::new(&entries[..]);
        let lists = read(&entries).unwrap();
        for (owner, group, user) in [
            (true, true, 1),
            (false, true, 1),
            (false, false, 1),
            (false, true, 9),
            (false, false, 9),
        ] {
            for groups in [&[][..], &[1], &[1, 2]] {
                let own = judged(&given, (owner, group), user, groups);
                for rights in posix(&lists.access, (owner, group), user, groups) {
                    assert_eq!(
                        bits(rights) & !own,
                        0,
                        "{entries:?} {lists:?} {owner} {group} {user} {groups:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn v4_attr_24_and_25_what_cannot_be_kept_is_refused() {
    let refused = |entries: &[AccessControlEntry<'_>]| read(entries).unwrap_err();
    let not_supported = OperationStatus::AttributeNotSupported;
    for kind in [ace_type::AUDIT, ace_type::ALARM, 7] {
        assert_eq!(refused(&[entry(kind, 0, READ, b"OWNER@")]), not_supported);
    }
    let flags = ace_flags::NO_PROPAGATE_INHERIT;
    assert_eq!(refused(&[entry(0, flags, READ, b"OWNER@")]), not_supported);
    let undeniable = deny(ace_mask::READ_ATTRIBUTES, b"EVERYONE@");
    assert_eq!(refused(&[undeniable]), not_supported);
    // Files have no heirs.
    let inherits = entry(0, ace_flags::FILE_INHERIT, READ, b"OWNER@");
    assert_eq!(refused(&[inherits]), OperationStatus::Invalid);
    for who in [
        &b""[..],
        b"OWNER",
        b"somebody",
        b"root@example.org",
        b"01",
        b"4294967295",
    ] {
        assert_eq!(refused(&[allow(READ, who)]), OperationStatus::BadOwner);
    }
    let many = vec![allow(READ, b"EVERYONE@"); ACCESS_ENTRIES_MAX + 1];
    assert_eq!(refused(&many), OperationStatus::Invalid);
    assert!(read(&many[1..]).is_ok());
}

#[test]
fn v4_attr_22_directories_have_lists_for_their_heirs() {
    let inherit = ace_flags::FILE_INHERIT | ace_flags::DIRECTORY_INHERIT;
    let write = WRITE | ace_mask::DELETE_CHILD;
    let entries = [
        allow(READ | write | EXECUTE, b"OWNER@"),
        entry(0, inherit | ace_flags::INHERIT_ONLY, READ, b"OWNER@"),
        entry(0, inherit, READ | EXECUTE, b"7"),
    ];
    let lists = GivenAcl::read(&Array::new(&entries), &OwnerNumbers::default())
        .unwrap()
        .lists(true)
        .unwrap();
    assert_eq!(
        (lists.access.owner, &lists.access.users[..]),
        (7, &[(7, 5)][..])
    );
    let default = lists.default.clone().unwrap();
    assert_eq!((default.owner, &default.users[..]), (4, &[(7, 5)][..]));
    let bytes = encode(&lists, true);
    let shown = AccessControlList::decode(&mut Decoder::new(&bytes)).unwrap();
    let again = GivenAcl::read(&shown, &OwnerNumbers::default())
        .unwrap()
        .lists(true)
        .unwrap();
    assert_eq!(again.default.map(|list| list.users), Some(default.users));
}
