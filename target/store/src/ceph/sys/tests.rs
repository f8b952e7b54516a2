//! The declarations agree with the installed header.

use std::mem::{offset_of, size_of};
use std::process::Command;

use super::bindings::{
    ALL_STATS, DELEGATION_READ, InodeNumber, RECLAIM_RESET, SET_ACCESSED, SET_GID, SET_MODE,
    SET_MODIFIED, SET_SIZE, SET_UID, Statx,
};

#[test]
fn the_layouts_and_constants_are_those_of_the_header() {
    let mut source =
        "#define _FILE_OFFSET_BITS 64\n#include <stddef.h>\n#include <cephfs/libcephfs.h>\n"
            .to_owned();
    let mut same = |expression: &str, number: usize| {
        source += &format!("_Static_assert(({expression}) == {number}, \"{expression}\");\n");
    };
    same("sizeof(struct ceph_statx)", size_of::<Statx>());
    same("sizeof(struct inodeno_t)", size_of::<InodeNumber>());
    for (field, offset) in [
        ("mask", offset_of!(Statx, mask)),
        ("blksize", offset_of!(Statx, block_size)),
        ("nlink", offset_of!(Statx, links)),
        ("uid", offset_of!(Statx, uid)),
        ("gid", offset_of!(Statx, gid)),
        ("mode", offset_of!(Statx, mode)),
        ("ino", offset_of!(Statx, inode)),
        ("size", offset_of!(Statx, size)),
        ("blocks", offset_of!(Statx, blocks)),
        ("dev", offset_of!(Statx, device)),
        ("rdev", offset_of!(Statx, special)),
        ("atime", offset_of!(Statx, accessed)),
        ("ctime", offset_of!(Statx, changed)),
        ("mtime", offset_of!(Statx, modified)),
        ("btime", offset_of!(Statx, born)),
        ("version", offset_of!(Statx, version)),
    ] {
        same(&format!("offsetof(struct ceph_statx, stx_{field})"), offset);
    }
    same("CEPH_STATX_ALL_STATS", ALL_STATS as usize);
    same("CEPH_RECLAIM_RESET", RECLAIM_RESET as usize);
    same("CEPH_DELEGATION_RD", DELEGATION_READ as usize);
    for (name, bit) in [
        ("MODE", SET_MODE),
        ("UID", SET_UID),
        ("GID", SET_GID),
        ("MTIME", SET_MODIFIED),
        ("ATIME", SET_ACCESSED),
        ("SIZE", SET_SIZE),
    ] {
        same(&format!("CEPH_SETATTR_{name}"), bit as usize);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("layouts.c");
    std::fs::write(&file, source).unwrap();
    let compiler = Command::new("cc").arg("-fsyntax-only").arg(&file).output();
    let compiled = compiler.expect("a C compiler");
    let said = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{said}");
}
