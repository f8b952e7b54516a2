//! Between the store's values and those on the wire.

use millrace_store as store;
use millrace_wire::nfs3 as wire;

pub(super) fn time(time: store::Time) -> wire::Time {
    // RFC 1813 has no times beyond the year 2106.
    let seconds = u32::try_from(time.seconds).unwrap_or(u32::MAX);
    wire::Time {
        seconds,
        nanoseconds: time.nanoseconds,
    }
}

pub(super) fn time_from(time: wire::Time) -> store::Time {
    // A peer may send any word; the store's nanoseconds are below a second.
    let nanoseconds = time.nanoseconds.min(999_999_999);
    store::Time {
        seconds: u64::from(time.seconds),
        nanoseconds,
    }
}

pub(super) fn attributes(from: &store::Attributes, fsid: u64) -> wire::FileAttributes {
    let mut device = wire::Device { major: 0, minor: 0 };
    let kind = match from.kind {
        store::Kind::File => wire::FileType::Regular,
        store::Kind::Directory => wire::FileType::Directory,
        store::Kind::Symlink => wire::FileType::Symlink,
        store::Kind::Special(store::SpecialKind::Block(major, minor)) => {
            device = wire::Device { major, minor };
            wire::FileType::Block
        }
        store::Kind::Special(store::SpecialKind::Character(major, minor)) => {
            device = wire::Device { major, minor };
            wire::FileType::Character
        }
        store::Kind::Special(store::SpecialKind::Fifo) => wire::FileType::Fifo,
        store::Kind::Special(store::SpecialKind::Socket) => wire::FileType::Socket,
    };
    wire::FileAttributes {
        kind,
        mode: from.mode,
        links: from.links,
        uid: from.uid,
        gid: from.gid,
        size: from.size,
        used: from.used,
        device,
        // File systems below the root have numbers of their own.
        fsid: fsid ^ from.file_system,
        fileid: from.inode,
        accessed: time(from.accessed),
        modified: time(from.modified),
        changed: time(from.changed),
    }
}

pub(super) fn consistency(from: &store::Consistency, fsid: u64) -> wire::WeakCacheData {
    wire::WeakCacheData {
        before: from.before.map(|before| wire::BeforeAttributes {
            size: before.size,
            modified: time(before.modified),
            changed: time(before.changed),
        }),
        after: from.after.map(|after| attributes(&after, fsid)),
    }
}

fn set_time(from: wire::SetTime) -> store::SetTime {
    match from {
        wire::SetTime::Keep => store::SetTime::Keep,
        wire::SetTime::ServerTime => store::SetTime::Now,
        wire::SetTime::To(time) => store::SetTime::To(time_from(time)),
    }
}

pub(super) fn set_attributes(from: &wire::SetAttributes) -> store::SetAttributes {
    store::SetAttributes {
        mode: from.mode.map(|mode| mode & 0o7777),
        uid: from.uid,
        gid: from.gid,
        size: from.size,
        accessed: set_time(from.accessed),
        modified: set_time(from.modified),
    }
}
