//! What the tests do.

use proptest::prelude::*;

use super::{BLOCK, NAMES, PAGE};

/// What the tests do. Objects are named by their place in the order of making, names by number.
#[derive(Clone, Debug)]
pub enum Action {
    Create {
        directory: usize,
        name: usize,
        way: u8,
    },
    MakeDirectory {
        directory: usize,
        name: usize,
    },
    Symlink {
        directory: usize,
        name: usize,
    },
    Link {
        object: usize,
        directory: usize,
        name: usize,
    },
    Remove {
        directory: usize,
        name: usize,
    },
    RemoveDirectory {
        directory: usize,
        name: usize,
    },
    Rename {
        from: usize,
        from_name: usize,
        to: usize,
        to_name: usize,
    },
    Lookup {
        directory: usize,
        name: usize,
    },
    Resize {
        object: usize,
        size: u64,
    },
    Write {
        object: usize,
        offset: u64,
        length: u32,
        seed: u8,
    },
    Read {
        object: usize,
        offset: u64,
        length: u32,
    },
    Stage {
        object: usize,
        offset: u64,
        length: u32,
        seed: u8,
    },
    Commit {
        staged: usize,
    },
    Abandon {
        staged: usize,
    },
    /// Reads, and keeps what is lent.
    Hold {
        object: usize,
        offset: u64,
        length: u32,
    },
    Return {
        lent: usize,
    },
}

pub fn place() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..6 * PAGE,
        0..4 * BLOCK,
        (0_u64..5).prop_map(|block| block * BLOCK),
        (0_u64..17).prop_map(|page| page * PAGE),
    ]
}

pub fn length() -> impl Strategy<Value = u32> {
    prop_oneof![
        0_u32..10,
        0_u32..10_000,
        Just(4096),
        Just(65_536),
        0_u32..150_000
    ]
}

pub fn naming() -> impl Strategy<Value = Action> {
    let (object, name) = (0_usize..24, 0..NAMES.len());
    let entry = (object.clone(), name.clone());
    prop_oneof![
        4 => (entry.clone(), 0_u8..4)
            .prop_map(|((directory, name), way)| Action::Create { directory, name, way }),
        3 => entry.clone().prop_map(|(directory, name)| Action::MakeDirectory { directory, name }),
        1 => entry.clone().prop_map(|(directory, name)| Action::Symlink { directory, name }),
        2 => (object.clone(), entry.clone())
            .prop_map(|(object, (directory, name))| Action::Link { object, directory, name }),
        2 => entry.clone().prop_map(|(directory, name)| Action::Remove { directory, name }),
        1 => entry.clone().prop_map(|(directory, name)| Action::RemoveDirectory { directory, name }),
        4 => (entry.clone(), entry.clone()).prop_map(|((from, from_name), (to, to_name))| {
            Action::Rename { from, from_name, to, to_name }
        }),
        1 => entry.prop_map(|(directory, name)| Action::Lookup { directory, name }),
    ]
}

pub fn data() -> impl Strategy<Value = Action> {
    let object = 0_usize..10;
    prop_oneof![
        3 => (object.clone(), place()).prop_map(|(object, size)| Action::Resize { object, size }),
        4 => (object.clone(), place(), length(), any::<u8>()).prop_map(
            |(object, offset, length, seed)| Action::Write { object, offset, length, seed }
        ),
        2 => (object, place(), length())
            .prop_map(|(object, offset, length)| Action::Read { object, offset, length }),
    ]
}

pub fn staging() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => (0_usize..10, place(), length(), any::<u8>()).prop_map(
            |(object, offset, length, seed)| Action::Stage { object, offset, length, seed }
        ),
        3 => (0_usize..4).prop_map(|staged| Action::Commit { staged }),
        1 => (0_usize..4).prop_map(|staged| Action::Abandon { staged }),
    ]
}

/// Reads that last while other things happen.
pub fn lending() -> impl Strategy<Value = Action> {
    prop_oneof![
        2 => (0_usize..10, place(), length())
            .prop_map(|(object, offset, length)| Action::Hold { object, offset, length }),
        1 => (0_usize..8).prop_map(|lent| Action::Return { lent }),
    ]
}
