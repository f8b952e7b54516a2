//! Values that cross the face of a store.

use std::net::IpAddr;
use std::time::SystemTime;

use crate::CallerGroups;

/// An object of a store, as the store finds it again: opaque to everybody else. It tells a dead
/// object from a new one in its place.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    length: u8,
    bytes: [u8; Self::MAX],
}

impl Handle {
    /// Longest handle in bytes: what the 64 of RFC 1813 section 2.4 leave when the export and the
    /// tag have their room.
    pub const MAX: usize = 44;

    /// A handle of these bytes; `None` if they are too many.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut handle = Self {
            length: u8::try_from(bytes.len()).ok()?,
            bytes: [0; Self::MAX],
        };
        handle.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(handle)
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Handle(")?;
        for byte in self.as_bytes() {
            write!(formatter, "{byte:02x}")?;
        }
        formatter.write_str(")")
    }
}

/// A point in time, as files carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time {
    /// Seconds since 1970.
    pub seconds: u64,
    /// Nanoseconds, below 10^9.
    pub nanoseconds: u32,
}

impl Time {
    /// The wall clock's time.
    #[must_use]
    pub fn now() -> Self {
        let since = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            seconds: since.as_secs(),
            nanoseconds: since.subsec_nanos(),
        }
    }

    /// Nanoseconds since 1970, up to the year 2554.
    #[must_use]
    pub fn as_nanoseconds(&self) -> u64 {
        let seconds = self.seconds.saturating_mul(1_000_000_000);
        seconds.saturating_add(u64::from(self.nanoseconds))
    }
}

/// Which client an operation is for. Where operations have to wait for each other, those of one
/// client share a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientKey(u128);

impl ClientKey {
    /// What the server does for itself.
    pub const OWN: Self = Self(0);

    /// The client of this number, which is not 0.
    #[must_use]
    pub const fn new(number: u128) -> Self {
        Self(number)
    }
}

impl From<IpAddr> for ClientKey {
    fn from(address: IpAddr) -> Self {
        let address = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        Self(address.to_bits())
    }
}

/// On whose behalf an operation runs, after squashing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Other groups.
    pub groups: CallerGroups,
}

impl Caller {
    /// The user that passes all permission checks.
    pub const SUPERUSER: Self = Self {
        uid: 0,
        gid: 0,
        groups: CallerGroups::NONE,
    };

    /// Whether the caller is in a group.
    #[must_use]
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// A node without data.
    Special(SpecialKind),
}

/// A node without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialKind {
    /// Block device, major and minor number.
    Block(u32, u32),
    /// Character device, major and minor number.
    Character(u32, u32),
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
}

/// Attributes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Kind.
    pub kind: Kind,
    /// Permission bits with set-id and sticky bits (07777).
    pub mode: u32,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes of storage in use.
    pub used: u64,
    /// Inode number.
    pub inode: u64,
    /// Which of the store's file systems it is on: 0 that of the root. Inode numbers of different
    /// ones may be equal.
    pub file_system: u64,
    /// Last read.
    pub accessed: Time,
    /// Last change of the data.
    pub modified: Time,
    /// Last change of data or attributes.
    pub changed: Time,
    /// Different after each change of data, entries or attributes, and rising (RFC 8881 section
    /// 5.8.1.4). Reading an object does not change it.
    pub change: u64,
}

/// Attributes before and after, taken atomically with the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Consistency {
    /// Before the operation.
    pub before: Option<Attributes>,
    /// After the operation (also after a failed one).
    pub after: Option<Attributes>,
}

/// Outcome of an operation that may modify an object (or the directory it works in).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Modified<T> {
    /// Of the object; of the directory where the operation works in one.
    pub consistency: Consistency,
    /// The outcome itself.
    pub result: Result<T>,
}

impl<T> Modified<T> {
    /// A failure that leaves no attributes to show.
    #[must_use]
    pub fn failed(error: StoreError) -> Self {
        Self {
            consistency: Consistency::default(),
            result: Err(error),
        }
    }

    /// With another outcome in the place of a success.
    #[must_use]
    pub fn map<U>(self, other: impl FnOnce(T) -> U) -> Modified<U> {
        Modified {
            consistency: self.consistency,
            result: self.result.map(other),
        }
    }
}

/// Outcome of a rename.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// Of the directory renamed from.
    pub from: Consistency,
    /// Of the directory renamed to.
    pub to: Consistency,
    /// The outcome itself.
    pub result: Result<()>,
}

/// Outcome of making a hard link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linked {
    /// Of the object, after the operation.
    pub object: Option<Attributes>,
    /// Of the directory.
    pub directory: Consistency,
    /// The outcome itself.
    pub result: Result<()>,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SetTime {
    /// Leave it.
    #[default]
    Keep,
    /// The server's clock.
    Now,
    /// The client's choice.
    To(Time),
}

/// Attributes to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SetAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size.
    pub size: Option<u64>,
    /// Last read.
    pub accessed: SetTime,
    /// Last change of the data.
    pub modified: SetTime,
}

/// How to create a regular file (RFC 1813 section 3.3.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// Take an existing file as it is (a given size is applied to it).
    Unchecked(SetAttributes),
    /// Fail if the name exists.
    Guarded(SetAttributes),
    /// Fail if the name exists, unless it was created with the same verifier. The times of a new
    /// file may hold the verifier, so that they are not set.
    Exclusive([u8; 8], SetAttributes),
}

/// Rights of ACCESS (RFC 1813 section 3.3.4), as a bit mask of its constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AccessMask(pub u32);

impl AccessMask {
    /// Read data or list a directory.
    pub const READ: u32 = 0x01;
    /// Look up a name.
    pub const LOOKUP: u32 = 0x02;
    /// Rewrite existing data or entries.
    pub const MODIFY: u32 = 0x04;
    /// Write new data or add entries.
    pub const EXTEND: u32 = 0x08;
    /// Delete an entry.
    pub const DELETE: u32 = 0x10;
    /// Execute a file.
    pub const EXECUTE: u32 = 0x20;
}

/// What a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOutcome {
    /// Bytes that the slices cover.
    pub length: u32,
    /// Whether they reach the end of the file.
    pub end_of_file: bool,
    /// Attributes of the file.
    pub attributes: Attributes,
}

/// A reserved write, to be committed or dropped.
#[derive(Debug)]
#[must_use = "a staged write has no effect until it is committed"]
pub struct StagedWrite<R> {
    /// The file.
    pub file: Handle,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
    /// The store's own reservation ([`crate::FileData::Reservation`]), dropped with this value.
    pub reservation: R,
}

impl<R> StagedWrite<R> {
    /// The same write with another reservation in place of its own.
    pub fn map<T>(self, other: impl FnOnce(R) -> T) -> StagedWrite<T> {
        StagedWrite {
            file: self.file,
            offset: self.offset,
            length: self.length,
            reservation: other(self.reservation),
        }
    }
}

/// How durable a write has to be when it is answered (RFC 1813 section 3.3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// May be lost with the server, until a COMMIT.
    Unstable,
    /// The data is durable.
    DataSync,
    /// Data and attributes are durable.
    FileSync,
}

/// Changes whenever unstable data may have been lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteVerifier(pub [u8; 8]);

/// What a write came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes written.
    pub length: u32,
    /// How durable they are.
    pub stability: Stability,
    /// The verifier.
    pub verifier: WriteVerifier,
}

/// Tells whether cookies of a directory are still good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CookieVerifier(pub [u8; 8]);

/// One entry of a directory.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryEntry<'a> {
    /// Where to go on after this entry.
    pub cookie: u64,
    /// Its name.
    pub name: &'a [u8],
    /// Inode number of its object, as [`Attributes::inode`].
    pub inode: u64,
    /// Its object, where attributes were asked for.
    pub handle: Option<Handle>,
    /// Its attributes, where they were asked for.
    pub attributes: Option<Attributes>,
}

/// How a listing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryOutcome {
    /// For the next call.
    pub verifier: CookieVerifier,
    /// Whether the directory has no more entries.
    pub end: bool,
    /// Attributes of the directory.
    pub attributes: Attributes,
}

/// Space and inode counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes free.
    pub free_bytes: u64,
    /// Bytes that an ordinary user may still take.
    pub available_bytes: u64,
    /// Inodes in all.
    pub total_inodes: u64,
    /// Inodes free.
    pub free_inodes: u64,
    /// Inodes that an ordinary user may still take.
    pub available_inodes: u64,
    /// Attributes of the object asked about.
    pub attributes: Attributes,
}

/// Fixed limits and properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Longest name.
    pub name_max: u32,
    /// Most hard links.
    pub links_max: u32,
    /// Largest file.
    pub size_max: u64,
    /// Number of the file system.
    pub file_system: u64,
    /// Unit of [`FileRanges::clone_range`](crate::FileRanges::clone_range) in bytes; `None` if
    /// nothing can be cloned.
    pub clone_block: Option<u32>,
    /// Whether objects have extended attributes.
    pub xattrs: bool,
    /// Whether objects have access control lists.
    pub access_lists: bool,
    /// Whether [`Attributes::change`] counts by itself, so that it rises with each change whatever
    /// the clock does.
    pub counts_changes: bool,
    /// Whether others than this store may change files, unknown to it.
    pub changes_elsewhere: bool,
    /// Whether other servers change the same objects. Attributes before a change are then not
    /// reported, as a change of another server may lie between them and the own one.
    pub shared_by_servers: bool,
    /// Whether there are leases of files ([`Store::lease`](crate::Store::lease)).
    pub leases: bool,
}

/// Why an operation failed; the names follow RFC 1813 section 2.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Not the owner.
    #[error("not the owner")]
    NotOwner,
    /// No such name.
    #[error("no such file or directory")]
    NotFound,
    /// The storage failed.
    #[error("input or output failed")]
    Io,
    /// No permission.
    #[error("permission denied")]
    Denied,
    /// The name exists.
    #[error("the name exists")]
    Exists,
    /// Across stores.
    #[error("not on the same store")]
    CrossDevice,
    /// Not a directory.
    #[error("not a directory")]
    NotDirectory,
    /// A directory.
    #[error("is a directory")]
    IsDirectory,
    /// An argument that the object cannot take.
    #[error("invalid argument")]
    Invalid,
    /// Beyond the largest file.
    #[error("the file would be too large")]
    TooLarge,
    /// No space or no inodes.
    #[error("no space left")]
    NoSpace,
    /// Too many links.
    #[error("too many hard links")]
    TooManyLinks,
    /// Name too long.
    #[error("the name is too long")]
    NameTooLong,
    /// Directory not empty.
    #[error("the directory is not empty")]
    NotEmpty,
    /// Quota reached.
    #[error("the quota is reached")]
    Quota,
    /// The object is gone.
    #[error("the handle is stale")]
    Stale,
    /// The guard of a SETATTR did not hold.
    #[error("the object was changed in the meantime")]
    NotSync,
    /// The cookie is not good any more.
    #[error("the cookie is bad")]
    BadCookie,
    /// Not supported for this object.
    #[error("not supported")]
    NotSupported,
    /// The file system takes no changes.
    #[error("read-only file system")]
    ReadOnly,
    /// Nothing is behind a device node.
    #[error("no such device")]
    NoDevice,
    /// No extended attribute of this name.
    #[error("no such extended attribute")]
    NoXattr,
    /// The value of an extended attribute is too long.
    #[error("the value is too long")]
    XattrTooLong,
    /// Cannot be served now; try again.
    #[error("busy, try again later")]
    Delay,
}

/// Result of a store operation.
pub type Result<T> = std::result::Result<T, StoreError>;
