//! Names and calls, as a server may answer them after it was killed.

use super::*;

fn place(name: &str) -> NamePlace {
    NamePlace {
        directory: 0,
        name: name.as_bytes().to_vec(),
    }
}

fn create(tree: &mut Tree, name: &str, fileid: u64) -> Id {
    let object = tree.new_id();
    let operation = CrashOperation::Create {
        object,
        place: place(name),
        how: Ok(0o644),
    };
    tree.begin(&operation, 0);
    let answer = CrashAnswer::Made {
        handle: FileHandle::new(&fileid.to_be_bytes()),
        attributes: None,
    };
    tree.answered(&operation, &answer, None).expect("made");
    tree.get(object).fileid = Some(fileid);
    object
}

/// One directory with the files `a` and `b`.
fn tree() -> Tree {
    let mut tree = Tree::default();
    tree.directories.push(Directory {
        handle: FileHandle::new(b"directory").expect("short"),
        name: "d".to_owned(),
        names: BTreeMap::new(),
    });
    create(&mut tree, "a", 1);
    create(&mut tree, "b", 2);
    tree
}

fn seen(names: &[(&str, u64)]) -> Vec<DirectoryContents> {
    let names = names.iter();
    vec![
        names
            .map(|&(name, fileid)| (name.as_bytes().to_vec(), (fileid, None)))
            .collect(),
    ]
}

#[test]
fn names_are_those_that_were_answered() {
    let mut tree = tree();
    tree.compare(&seen(&[("a", 1), ("b", 2)])).expect("all");
    for (names, what) in [
        (&[("a", 1)][..], "`d/b` is lost"),
        (&[("a", 1), ("b", 2), ("c", 3)], "`d/c` must not be there"),
        (&[("a", 1), ("b", 1)], "`d/b` is another file"),
    ] {
        let error = tree.compare(&seen(names)).expect_err(what);
        assert_eq!(error, what);
    }
}

#[test]
fn a_rename_without_an_answer_is_done_or_not_but_never_half() {
    let mut tree = tree();
    let rename = CrashOperation::Rename {
        from: place("a"),
        to: place("b"),
    };
    tree.begin(&rename, 0);
    assert_eq!(
        tree.is_done(&rename, &seen(&[("a", 1), ("b", 2)])),
        Ok(false)
    );
    assert_eq!(tree.is_done(&rename, &seen(&[("b", 1)])), Ok(true));
    for half in [&[("a", 1), ("b", 1)][..], &[("a", 1)], &[("b", 2)], &[]] {
        assert!(tree.is_done(&rename, &seen(half)).is_err(), "{half:?}");
    }
    tree.finish(&rename, true);
    tree.compare(&seen(&[("b", 1)])).expect("done");
    assert_eq!(tree.gone.len(), 1, "the file that was replaced");
    assert!(tree.busy.is_empty());
}

#[test]
fn calls_sent_again_may_be_refused_only_if_they_were_done() {
    let mut tree = tree();
    let remove = CrashOperation::Remove { place: place("a") };
    tree.begin(&remove, 0);
    let refused = CrashAnswer::Failed(Status::NoEntry);
    assert!(tree.clone().answered(&remove, &refused, None).is_err());
    assert!(
        tree.clone()
            .answered(&remove, &refused, Some(false))
            .is_err()
    );
    tree.finish(&remove, true);
    let meaning = tree.answered(&remove, &refused, Some(true));
    assert_eq!(meaning, Ok(Meaning::DoneBefore));
    let other = CrashAnswer::Failed(Status::Io);
    assert!(tree.answered(&remove, &other, Some(true)).is_err());
    tree.compare(&seen(&[("b", 2)])).expect("removed once");
}

#[test]
fn a_read_sent_again_may_miss_only_what_was_unstable() {
    let mut tree = tree();
    let file = create(&mut tree, "c", 3);
    for (start, stamp, stable) in [(0, 1, Stability::FileSync), (10, 2, Stability::Unstable)] {
        let write = CrashOperation::Write {
            file,
            start,
            length: 10,
            stamp,
            stable,
        };
        tree.begin(&write, 0);
        let answer = CrashAnswer::Wrote {
            count: 10,
            committed: stable,
            verifier: [1; 8],
        };
        tree.answered(&write, &answer, None).expect("written");
    }
    let read = CrashOperation::Read {
        file,
        start: 0,
        length: 20,
        size: 20,
    };
    tree.begin(&read, 0);
    let mut durable = vec![0; 10];
    super::super::content::bytes(1, 0, &mut durable);
    let lost = CrashAnswer::Data(durable);
    assert!(tree.clone().answered(&read, &lost, None).is_err());
    assert!(tree.clone().answered(&read, &lost, Some(false)).is_ok());
    let nothing = CrashAnswer::Data(vec![0; 20]);
    assert!(tree.answered(&read, &nothing, Some(false)).is_err());
}
