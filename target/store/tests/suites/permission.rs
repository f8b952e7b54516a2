//! Who may do what.

use millrace_store::{
    AccessControl, AccessList, AccessLists, AccessMask, Caller, CreateHow, FileData, Handle,
    Namespace, SetAttributes, SetTime, SpecialKind, Store, StoreError, Time,
};

use crate::common::*;

const ALL: AccessMask = AccessMask(0x3f);

fn set(
    store: &impl Store,
    caller: &Caller,
    object: Handle,
    set: &SetAttributes,
) -> Result<(), StoreError> {
    now(store.set_attributes(caller, object, set, None)).result
}

fn owned(uid: u32, gid: u32, mode: u32) -> SetAttributes {
    SetAttributes {
        uid: Some(uid),
        gid: Some(gid),
        mode: Some(mode),
        ..Default::default()
    }
}

fn time(seconds: u64) -> Time {
    Time {
        seconds,
        nanoseconds: 5,
    }
}

pub fn rights_follow_owner_group_and_others(store: &impl Store) {
    let file = create(store, &user(10), store.root(), b"file");
    set(store, &ROOT, file, &owned(10, 20, 0o640)).unwrap();
    let access = |caller: &Caller| now(store.access(caller, file, ALL)).unwrap().0.0;
    let change = AccessMask::MODIFY | AccessMask::EXTEND;
    assert_eq!(access(&user(10)), AccessMask::READ | change);
    assert_eq!(access(&user(20)), AccessMask::READ);
    let member = Caller {
        groups: [20].into_iter().collect(),
        ..user(30)
    };
    assert_eq!(access(&member), AccessMask::READ);
    assert_eq!(access(&user(30)), 0);
    assert_eq!(access(&ROOT), AccessMask::READ | change);
    set(store, &ROOT, file, &mode(0o001)).unwrap();
    assert_eq!(access(&user(30)), AccessMask::EXECUTE);
    assert_eq!(
        access(&ROOT),
        AccessMask::READ | change | AccessMask::EXECUTE
    );
    let only = AccessMask(AccessMask::READ);
    assert_eq!(now(store.access(&ROOT, file, only)).unwrap().0, only);
}

pub fn rights_on_directories(store: &impl Store) {
    let directory = make_directory(store, store.root(), b"directory");
    let access = |bits| {
        set(store, &ROOT, directory, &mode(bits)).unwrap();
        now(store.access(&user(10), directory, ALL)).unwrap().0.0
    };
    let change = AccessMask::MODIFY | AccessMask::EXTEND | AccessMask::DELETE;
    assert_eq!(
        access(0o707),
        AccessMask::READ | AccessMask::LOOKUP | change
    );
    assert_eq!(access(0o705), AccessMask::READ | AccessMask::LOOKUP);
    assert_eq!(access(0o702), 0);
    assert_eq!(access(0o701), AccessMask::LOOKUP);
}

pub fn the_owner_may_read_and_write_whatever_the_mode(store: &impl Store) {
    let file = create(store, &user(10), store.root(), b"file");
    set(store, &user(10), file, &mode(0o000)).unwrap();
    write_as(store, &user(10), file, 0, b"mine")
        .unwrap()
        .result
        .unwrap();
    assert_eq!(read_as(store, &user(10), file, 0, 4).unwrap().0, b"mine");
    let others = |caller: &Caller| read_as(store, caller, file, 0, 4).map(|_| ());
    assert_eq!(others(&user(11)), Err(StoreError::Denied));
    assert_eq!(others(&ROOT), Ok(()));
    set(store, &user(10), file, &mode(0o001)).unwrap();
    assert_eq!(
        others(&user(11)),
        Ok(()),
        "what one may execute one may read"
    );
    let refused = write_as(store, &user(11), file, 0, b"x").map(|_| ());
    assert_eq!(refused, Err(StoreError::Denied));
    assert_eq!(
        set(store, &user(11), file, &size(0)),
        Err(StoreError::Denied)
    );
    assert_eq!(set(store, &user(10), file, &size(0)), Ok(()));
}

pub fn directories_need_search_and_write_permission(store: &impl Store) {
    let directory = make_directory(store, store.root(), b"directory");
    create(store, &ROOT, directory, b"file");
    let other = user(10);
    let root = store.root();
    let how = CreateHow::Unchecked(mode(0o600));
    let attempts = || {
        (
            now(store.lookup(&other, directory, b"file")).map(|_| ()),
            now(store.create(&other, directory, b"new", &how))
                .result
                .map(|_| ()),
            now(store.rename(&other, (directory, b"file"), (root, b"x"))).result,
            now(store.remove(&other, directory, b"file")).result,
        )
    };
    let denied = Err(StoreError::Denied);
    set(store, &ROOT, directory, &mode(0o706)).unwrap();
    assert_eq!(attempts(), (denied, denied, denied, denied));
    set(store, &ROOT, directory, &mode(0o705)).unwrap();
    assert_eq!(attempts(), (Ok(()), denied, denied, denied));
    let open = now(store.create(&other, directory, b"file", &how)).result;
    assert!(open.is_ok(), "an existing file needs no right to make one");
    set(store, &ROOT, directory, &mode(0o703)).unwrap();
    let mut sink = |_: millrace_store::DirectoryEntry<'_>| true;
    let verifier = millrace_store::CookieVerifier::default();
    let listed = now(store.read_directory(&other, directory, 0, verifier, false, &mut sink));
    assert_eq!(listed.map(|_| ()), denied);
    assert_eq!(now(store.remove(&other, directory, b"file")).result, Ok(()));
}

pub fn sticky_directories_protect_names_of_others(store: &impl Store) {
    let root = store.root();
    let shared = make_directory(store, root, b"shared");
    set(store, &ROOT, shared, &mode(0o1777)).unwrap();
    create(store, &user(10), shared, b"ten");
    create(store, &user(11), shared, b"eleven");
    let denied = Err(StoreError::Denied);
    let remove = |caller: &Caller, name: &[u8]| now(store.remove(caller, shared, name)).result;
    assert_eq!(remove(&user(11), b"ten"), denied);
    let rename =
        |from: &[u8], to: &[u8]| now(store.rename(&user(11), (shared, from), (shared, to))).result;
    assert_eq!(rename(b"ten", b"x"), denied);
    assert_eq!(rename(b"eleven", b"ten"), denied);
    assert_eq!(rename(b"eleven", b"x"), Ok(()));
    assert_eq!(remove(&user(10), b"ten"), Ok(()));
    set(store, &ROOT, shared, &owned(12, 12, 0o1777)).unwrap();
    assert_eq!(remove(&user(12), b"x"), Ok(()), "the directory's owner may");
}

pub fn moving_a_directory_needs_the_right_to_write_it(store: &impl Store) {
    let root = store.root();
    let to = make_directory(store, root, b"to");
    set(store, &ROOT, to, &mode(0o777)).unwrap();
    let moved = make_directory(store, root, b"moved");
    let attempt = || now(store.rename(&user(10), (root, b"moved"), (to, b"moved"))).result;
    assert_eq!(attempt(), Err(StoreError::Denied));
    set(store, &ROOT, moved, &mode(0o707)).unwrap();
    assert_eq!(attempt(), Ok(()));
}

pub fn set_group_id_directories_are_inherited(store: &impl Store) {
    let directory = make_directory(store, store.root(), b"directory");
    set(store, &ROOT, directory, &owned(0, 50, 0o2777)).unwrap();
    let file = create(store, &user(10), directory, b"file");
    assert_eq!(attributes(store, file).gid, 50);
    let made = now(store.make_directory(&user(10), directory, b"inner", &mode(0o755)));
    let inner = made.result.unwrap().1;
    assert_eq!((inner.gid, inner.mode), (50, 0o2755));
    let how = CreateHow::Guarded(mode(0o2755));
    let program = now(store.create(&user(10), directory, b"program", &how))
        .result
        .unwrap()
        .1;
    assert_eq!(program.mode, 0o755, "not for who is not in the group");
}

pub fn set_id_bits_go_when_others_write_or_ownership_changes(store: &impl Store) {
    let file = create(store, &user(10), store.root(), b"file");
    let bits = || attributes(store, file).mode;
    let reset = |wanted| {
        set(store, &ROOT, file, &owned(10, 10, wanted)).unwrap();
        assert_eq!(bits(), wanted);
    };
    reset(0o6777);
    write(store, file, 0, b"by root").unwrap();
    assert_eq!(bits(), 0o6777);
    for caller in [user(10), user(11)] {
        reset(0o6777);
        write_as(store, &caller, file, 0, b"again")
            .unwrap()
            .result
            .unwrap();
        assert_eq!(bits(), 0o777);
        reset(0o6777);
        write_as(store, &caller, file, 90_000, b"again")
            .unwrap()
            .result
            .unwrap();
        assert_eq!(bits(), 0o777);
    }
    reset(0o6767);
    set(store, &user(10), file, &size(1)).unwrap();
    assert_eq!(
        bits(),
        0o2767,
        "without group execution the bit means locking"
    );
    reset(0o6777);
    let group = SetAttributes {
        gid: Some(10),
        ..Default::default()
    };
    set(store, &user(10), file, &group).unwrap();
    assert_eq!(bits(), 0o777);
    set(store, &user(10), file, &mode(0o6711)).unwrap();
    assert_eq!(bits(), 0o6711);
    set(
        store,
        &ROOT,
        file,
        &SetAttributes {
            gid: Some(99),
            ..Default::default()
        },
    )
    .unwrap();
    set(store, &user(10), file, &mode(0o2711)).unwrap();
    assert_eq!(bits(), 0o711, "not for who is not in the group");
}

pub fn ownership_is_the_superusers_to_give(store: &impl Store) {
    let file = create(store, &user(10), store.root(), b"file");
    let uid = |uid| SetAttributes {
        uid: Some(uid),
        ..Default::default()
    };
    let gid = |gid| SetAttributes {
        gid: Some(gid),
        ..Default::default()
    };
    let refused = Err(StoreError::NotOwner);
    assert_eq!(set(store, &user(10), file, &uid(11)), refused);
    assert_eq!(set(store, &user(10), file, &uid(10)), Ok(()));
    assert_eq!(set(store, &user(11), file, &uid(10)), refused);
    assert_eq!(set(store, &user(10), file, &gid(11)), refused);
    let member = Caller {
        groups: [11].into_iter().collect(),
        ..user(10)
    };
    assert_eq!(set(store, &member, file, &gid(11)), Ok(()));
    assert_eq!(set(store, &user(11), file, &mode(0o777)), refused);
    assert_eq!(set(store, &ROOT, file, &uid(77)), Ok(()));
    assert_eq!(attributes(store, file).uid, 77);
    let how = CreateHow::Guarded(uid(11));
    let made = now(store.create(&user(10), store.root(), b"gift", &how));
    assert_eq!(made.result.map(|_| ()), refused);
}

pub fn times_can_be_set(store: &impl Store) {
    let file = create(store, &user(10), store.root(), b"file");
    let both = SetAttributes {
        accessed: SetTime::To(time(100)),
        modified: SetTime::To(time(200)),
        ..Default::default()
    };
    let before = attributes(store, file);
    set(store, &user(10), file, &both).unwrap();
    let shown = attributes(store, file);
    assert_eq!((shown.accessed, shown.modified), (time(100), time(200)));
    assert!(shown.changed > before.changed);
    assert_eq!(
        set(store, &user(11), file, &both),
        Err(StoreError::NotOwner)
    );
    let touch = SetAttributes {
        modified: SetTime::Now,
        ..Default::default()
    };
    assert_eq!(set(store, &user(11), file, &touch), Err(StoreError::Denied));
    set(store, &user(10), file, &mode(0o666)).unwrap();
    assert_eq!(set(store, &user(11), file, &touch), Ok(()));
    assert!(attributes(store, file).modified > time(200));
    let bad = Time {
        seconds: 1,
        nanoseconds: 1_000_000_000,
    };
    let bad = SetAttributes {
        modified: SetTime::To(bad),
        ..Default::default()
    };
    assert_eq!(set(store, &user(10), file, &bad), Err(StoreError::Invalid));
    let sized = SetAttributes {
        modified: SetTime::To(time(7)),
        ..size(3)
    };
    set(store, &user(10), file, &sized).unwrap();
    assert_eq!(
        attributes(store, file).modified,
        time(7),
        "the named time wins"
    );
}

pub fn a_guard_holds_off_late_changes(store: &impl Store) {
    let file = create(store, &ROOT, store.root(), b"file");
    write(store, file, 0, b"12345").unwrap();
    let shown = attributes(store, file);
    let guarded = |guard| now(store.set_attributes(&ROOT, file, &size(1), Some(guard)));
    let late = guarded(time(1));
    assert_eq!(late.result, Err(StoreError::NotSync));
    assert_eq!(late.consistency.after, Some(shown));
    let done = guarded(shown.changed);
    assert_eq!(done.result, Ok(()));
    // Where data is written without the store's knowledge, there is no before.
    let before = done.consistency.before;
    assert!(before.is_none_or(|before| before.size == 5));
    assert_eq!(done.consistency.after.unwrap().size, 1);
    assert_eq!(guarded(shown.changed).result, Err(StoreError::NotSync));
}

pub fn setting_nothing_changes_nothing(store: &impl Store) {
    let file = create(store, &ROOT, store.root(), b"file");
    let before = attributes(store, file);
    set(store, &user(10), file, &SetAttributes::default()).unwrap();
    assert_eq!(attributes(store, file), before);
    set(store, &ROOT, file, &size(0)).unwrap();
    assert!(attributes(store, file).modified > before.modified);
}

pub fn devices_are_made_by_the_superuser(store: &impl Store) {
    let make = |name: &[u8], kind| {
        now(store.make_node(&user(10), store.root(), name, kind, &mode(0o600)))
            .result
            .map(|_| ())
    };
    assert_eq!(
        make(b"null", SpecialKind::Character(1, 3)),
        Err(StoreError::NotOwner)
    );
    assert_eq!(make(b"pipe", SpecialKind::Fifo), Ok(()));
}

/// The list of a file of user 10, which lets user 20 read and write and group 30 read.
fn shared_list() -> AccessList {
    AccessList {
        owner: 6,
        users: vec![(20, 6)],
        group: 0,
        groups: vec![(30, 4)],
        mask: Some(6),
        other: 0,
    }
}

pub fn access_lists_agree_with_modes(store: &impl Store) {
    if !store.properties().access_lists {
        millrace_testing::skip!("the file system has no access control lists");
        return;
    }
    let file = create(store, &user(10), store.root(), b"file");
    let lists = |object| now(store.access_lists(object)).unwrap();
    let mode = |object| now(store.attributes(object)).unwrap().mode & 0o777;
    assert_eq!(lists(file).access, AccessList::of_mode(mode(file)));
    let set = |caller: &Caller, object, access: &AccessList, default: Option<AccessList>| {
        let lists = AccessLists {
            access: access.clone(),
            default,
        };
        now(store.set_access_lists(caller, object, &lists)).result
    };
    let shared = shared_list();
    assert_eq!(
        set(&user(20), file, &shared, None),
        Err(StoreError::NotOwner)
    );
    assert_eq!(set(&user(10), file, &shared, None), Ok(()));
    assert_eq!((lists(file).access, mode(file)), (shared.clone(), 0o660));
    let may = |caller: &Caller, wanted| {
        let found = now(store.access(caller, file, AccessMask(wanted)));
        found.unwrap().0.0
    };
    let both = AccessMask::READ | AccessMask::MODIFY;
    let group = |gid| Caller { gid, ..user(99) };
    assert_eq!(may(&user(20), both), both);
    assert_eq!(may(&group(30), both), AccessMask::READ);
    assert_eq!(may(&group(31), both), 0);
    // Others have what the list gives to others, and the owning group what it gives to that.
    let open = AccessList {
        other: 4,
        ..shared.clone()
    };
    assert_eq!(set(&user(10), file, &open, None), Ok(()));
    assert_eq!(may(&group(31), both), AccessMask::READ);
    assert_eq!(may(&group(10), both), 0);
    assert_eq!(set(&user(10), file, &shared, None), Ok(()));
    // A change of the mode changes the mask.
    let masked = SetAttributes {
        mode: Some(0o640),
        ..SetAttributes::default()
    };
    let done = now(store.set_attributes(&user(10), file, &masked, None));
    assert_eq!(done.result, Ok(()));
    assert_eq!(may(&user(20), both), AccessMask::READ);
    assert_eq!(lists(file).access.mask, Some(4));
    // One without entries is a mode.
    let plain = AccessList::of_mode(0o604);
    assert_eq!(set(&user(10), file, &plain, None), Ok(()));
    assert_eq!((lists(file).access, mode(file)), (plain.clone(), 0o604));
    assert_eq!(may(&user(20), both), AccessMask::READ);
    // Files have no heirs, and directories pass on what is for them.
    let default = Some(shared.clone());
    assert_eq!(
        set(&user(10), file, &plain, default.clone()),
        Err(StoreError::Invalid)
    );
    let directory = make_directory(store, store.root(), b"directory");
    let all = AccessList::of_mode(0o777);
    assert_eq!(set(&ROOT, directory, &all, default), Ok(()));
    let heir = create(store, &user(10), directory, b"heir");
    let inherited = lists(heir).access;
    assert_eq!(inherited.users, shared.users);
    assert_eq!(inherited.groups, shared.groups);
    assert_eq!(mode(heir), shared.inherited(0o644).mode());
    assert_eq!(set(&ROOT, directory, &all, None), Ok(()));
    assert_eq!(lists(directory).default, None);
}
