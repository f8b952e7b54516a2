//! Access control lists: the attribute acl.

use millrace_store::{AccessControl, AccessLists, Caller, Namespace};
use millrace_wire::nfs4::{
    AccessControlEntry, Attribute, AttributeNumber as Number, Attributes, Bitmap, CreateMode,
    ExclusiveCreate, NewObject, OpenClaim, OpenOperation, Operation, OperationResults,
    OperationStatus, StateOwner, access_bits, ace_flags, ace_mask, acl_support, share,
};
use millrace_wire::xdr::{Array, BoundedBytes};

use crate::support::nfs4::{Bench4, create, put, set};
use crate::support::ready;

const OK: OperationStatus = OperationStatus::Ok;
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
    entry(0, 0, mask, who)
}

/// Owner, owning group and everybody else.
fn plain() -> [AccessControlEntry<'static>; 3] {
    [
        allow(READ | WRITE | EXECUTE, b"OWNER@"),
        allow(READ | EXECUTE, b"GROUP@"),
        allow(READ, b"EVERYONE@"),
    ]
}

/// Attributes to set.
fn given(list: &[Attribute<'_>]) -> Attributes<'static> {
    // A few bytes, for the time of the test.
    Attributes::build(list, Box::leak(Box::new([0; 512]))).unwrap()
}

fn acl(entries: &[AccessControlEntry<'_>]) -> Attributes<'static> {
    given(&[Attribute::Acl(Array::new(entries))])
}

/// The mode, and the list that is shown, of which everyone's part is left out.
fn shown(bench: &Bench4, handle: &[u8]) -> (u32, Vec<(u32, u32, Vec<u8>)>) {
    let results = bench.getattr(handle, Bitmap::of(&[Number::Acl, Number::Mode]));
    let Attribute::Mode(mode) = results.attribute(Number::Mode) else {
        panic!("no mode")
    };
    let Attribute::Acl(list) = results.attribute(Number::Acl) else {
        panic!("no list")
    };
    let entries = list.iter().map(|one| {
        let mask = one.mask & (READ | WRITE | EXECUTE | ace_mask::DELETE_CHILD);
        (one.kind, mask, one.who.to_vec())
    });
    (mode, entries.collect())
}

/// The rights of a user.
fn access(bench: &Bench4, handle: &[u8], user: (u32, u32)) -> u32 {
    let before = bench.user.replace(Some(user));
    let asked = access_bits::READ | access_bits::MODIFY | access_bits::EXECUTE;
    let results = bench.run(&[put(handle), Operation::Access(asked)]);
    bench.user.set(before);
    match results.last() {
        OperationResults::Access(Ok(reply)) => reply.access,
        other => panic!("{other:?}"),
    }
}

#[test]
fn v4_attr_22_lists_are_served_for_all_but_links() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o640);
    let wanted = Bitmap::of(&[Number::SupportedAttributes, Number::AclSupport, Number::Acl]);
    let results = bench.getattr(&file, wanted);
    let both = Attribute::AclSupport(acl_support::ALLOW | acl_support::DENY);
    assert_eq!(results.attribute(Number::AclSupport), both);
    let owner = (0, READ | WRITE, b"OWNER@".to_vec());
    let group = (0, READ, b"GROUP@".to_vec());
    let everyone = (0, 0, b"EVERYONE@".to_vec());
    assert_eq!(shown(&bench, &file), (0o640, vec![owner, group, everyone]));
    let root = bench.walk("/export");
    let link = create(
        NewObject::Symlink(millrace_wire::xdr::Bulk::inline(b"x")),
        b"link",
        Attributes::NONE,
    );
    assert_eq!(bench.statuses(&[put(&root), link])[1], OK);
    let link = bench.walk("/export/link");
    let results = bench.getattr(&link, wanted);
    let attributes = results.attributes();
    assert!(!attributes.mask.has(Number::Acl));
    let Attribute::SupportedAttributes(all) = results.attribute(Number::SupportedAttributes) else {
        panic!("no attributes")
    };
    assert!(!all.has(Number::Acl));
    // Folders above exports have modes only.
    let results = bench.getattr(&bench.walk("/"), wanted);
    assert_eq!(
        results.attribute(Number::AclSupport),
        Attribute::AclSupport(0)
    );
}

#[test]
fn v4_attr_23_mode_and_list_change_each_other() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o600);
    let mut entries = plain().to_vec();
    entries.insert(1, allow(READ | WRITE, b"55"));
    entries.insert(3, entry(0, ace_flags::GROUP, READ, b"66"));
    assert_eq!(bench.statuses(&[put(&file), set(acl(&entries))])[1], OK);
    let (mode, list) = shown(&bench, &file);
    // The group's bits show the most that named users and groups have.
    assert_eq!(mode, 0o774);
    assert!(
        list.contains(&(0, READ | WRITE, b"55".to_vec())),
        "{list:?}"
    );
    assert!(
        list.contains(&(0, READ | EXECUTE, b"GROUP@".to_vec())),
        "{list:?}"
    );
    let modes = |handle: &[u8]| {
        let mode = given(&[Attribute::Mode(0o750)]);
        bench.statuses(&[put(handle), set(mode)])[1]
    };
    assert_eq!(modes(&file), OK);
    let (mode, list) = shown(&bench, &file);
    assert_eq!(mode, 0o750);
    // What the mask takes away is not shown.
    assert!(list.contains(&(0, READ, b"55".to_vec())), "{list:?}");
    assert!(list.contains(&(0, 0, b"EVERYONE@".to_vec())), "{list:?}");
    // A list without named entries is nothing but a mode.
    assert_eq!(bench.statuses(&[put(&file), set(acl(&plain()))])[1], OK);
    assert_eq!(shown(&bench, &file).0, 0o754);
    // Both at once: the list counts.
    let both = given(&[
        Attribute::Mode(0o4640),
        Attribute::Acl(Array::new(&plain())),
    ]);
    assert_eq!(bench.statuses(&[put(&file), set(both)])[1], OK);
    assert_eq!(shown(&bench, &file).0, 0o4754);
    // The change number tells of it, and others may not do it.
    bench.user.set(Some((77, 77)));
    assert_eq!(
        bench.statuses(&[put(&file), set(acl(&plain()))])[1],
        OperationStatus::NotOwner
    );
}

#[test]
fn v4_attr_22_access_is_judged_by_the_list() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o600);
    let entries = [
        allow(READ | WRITE | EXECUTE, b"OWNER@"),
        allow(READ | WRITE, b"55"),
        allow(READ, b"GROUP@"),
        entry(0, ace_flags::GROUP, READ | EXECUTE, b"66"),
    ];
    assert_eq!(bench.statuses(&[put(&file), set(acl(&entries))])[1], OK);
    let (read, modify, execute) = (access_bits::READ, access_bits::MODIFY, access_bits::EXECUTE);
    for (user, rights) in [
        ((55, 99), read | modify),
        ((55, 66), read | modify),
        ((1, 66), read | execute),
        ((1, 0), read),
        ((1, 1), 0),
    ] {
        assert_eq!(access(&bench, &file, user), rights, "{user:?}");
    }
    // Nobody but those named gets in with the mode of the group alone.
    bench.user.set(Some((1, 66)));
    let mode = given(&[Attribute::Mode(0o707)]);
    assert_eq!(
        bench.statuses(&[put(&file), set(mode)])[1],
        OperationStatus::NotOwner
    );
    bench.user.set(Some((0, 0)));
    assert_eq!(bench.statuses(&[put(&file), set(mode)])[1], OK);
    assert_eq!(access(&bench, &file, (55, 99)), 0);
    assert_eq!(access(&bench, &file, (2, 2)), read | modify | execute);
}

fn open(name: &'static [u8], create: CreateMode<'static>) -> Operation<'static> {
    Operation::Open(OpenOperation {
        sequence: 0,
        access: share::BOTH,
        deny: 0,
        owner: StateOwner {
            client: 0,
            owner: BoundedBytes(b"owner"),
        },
        create: Some(create),
        claim: OpenClaim::Name(name),
    })
}

#[test]
fn v4_attr_23_new_objects_have_the_list_that_they_are_given() {
    let bench = Bench4::new();
    let root = bench.walk("/export");
    let wanted = || given(&[Attribute::Mode(0o600), Attribute::Acl(Array::new(&plain()))]);
    let exclusive = CreateMode::ExclusiveWithAttributes(ExclusiveCreate {
        verifier: [7; 8],
        attributes: wanted(),
    });
    for (name, mode) in [
        (&b"unchecked"[..], CreateMode::Unchecked(wanted())),
        (b"guarded", CreateMode::Guarded(wanted())),
        (b"exclusive", exclusive),
    ] {
        let results = bench.run(&[put(&root), open(name, mode)]);
        let OperationResults::Open(Ok(reply)) = results.last() else {
            panic!("not open")
        };
        assert!(reply.attributes_set.has(Number::Acl));
        assert!(reply.attributes_set.has(Number::Mode));
        let path = format!("/export/{}", String::from_utf8_lossy(name));
        assert_eq!(shown(&bench, &bench.walk(&path)).0, 0o754);
    }
    let directory = create(NewObject::Directory, b"directory", acl(&plain()));
    assert_eq!(bench.statuses(&[put(&root), directory])[1], OK);
    // To write in a directory is to remove from it as well, which was not granted.
    assert_eq!(shown(&bench, &bench.walk("/export/directory")).0, 0o554);
}

#[test]
fn v4_attr_22_heirs_begin_with_the_list_for_them() {
    let bench = Bench4::new();
    let root = bench.walk("/export");
    let inherit = ace_flags::FILE_INHERIT | ace_flags::DIRECTORY_INHERIT;
    let write = WRITE | ace_mask::DELETE_CHILD;
    let entries = [
        entry(0, inherit, READ | write | EXECUTE, b"OWNER@"),
        entry(0, inherit, READ | write, b"55"),
        entry(0, inherit, READ, b"GROUP@"),
    ];
    assert_eq!(bench.statuses(&[put(&root), set(acl(&entries))])[1], OK);
    let mode = given(&[Attribute::Mode(0o666)]);
    let made = open(b"file", CreateMode::Guarded(mode));
    assert_eq!(bench.statuses(&[put(&root), made])[1], OK);
    let file = bench.walk("/export/file");
    let (mode, list) = shown(&bench, &file);
    assert_eq!(mode, 0o660);
    assert!(
        list.contains(&(0, READ | WRITE, b"55".to_vec())),
        "{list:?}"
    );
    let directory = create(
        NewObject::Directory,
        b"directory",
        given(&[Attribute::Mode(0o755)]),
    );
    assert_eq!(bench.statuses(&[put(&root), directory])[1], OK);
    let store = &bench.stores[0];
    let lists = |name: &[u8]| -> AccessLists {
        let caller = Caller::SUPERUSER;
        let (found, _) =
            ready(store.lookup(&caller, millrace_store::Store::root(store), name)).unwrap();
        ready(store.access_lists(found)).unwrap()
    };
    let of_directory = lists(b"directory");
    assert_eq!(of_directory.access.users, [(55, 6)]);
    assert_eq!(of_directory.access.mask, Some(4));
    assert_eq!(of_directory.default.unwrap().users, [(55, 6)]);
    assert_eq!(lists(b"file").default, None);
}

#[test]
fn v4_attr_25_a_thousand_entries_are_kept_and_shown() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o600);
    let names: Vec<String> = (1..=1000).map(|number| number.to_string()).collect();
    let entries: Vec<AccessControlEntry<'_>> = names
        .iter()
        .map(|name| allow(READ, name.as_bytes()))
        .collect();
    let list = [Attribute::Acl(Array::new(&entries))];
    let mut room = vec![0; 64 << 10];
    let many = Attributes::build(&list, &mut room).unwrap();
    assert_eq!(bench.statuses(&[put(&file), set(many)])[1], OK);
    let (_, list) = shown(&bench, &file);
    assert!(list.len() >= 1003);
    let lists = [Number::Acl];
    let wanted = Bitmap::of(&lists);
    let results = bench.getattr(&file, wanted);
    let verify = Operation::Verify(results.attributes());
    assert_eq!(bench.statuses(&[put(&file), verify])[1], OK);
    // The store charges for it.
    let root = bench.walk("/export");
    assert_eq!(
        bench.statuses(&[put(&root), Operation::Remove(b"file")])[1],
        OK
    );
}
