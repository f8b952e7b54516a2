//! Opens and delegations (RFC 8881 sections 18.2, 18.6, 18.16 and 18.18).

use super::acl::AccessControlEntry;
use super::attributes::{Attributes, Bitmap};
use super::types::{ChangeInfo, StateId, StateOwner, Verifier};
use crate::xdr::{xdr_enum, xdr_struct, xdr_union};

/// Bits of `share_access` and `share_deny` (RFC 8881 section 18.16.3).
pub mod share {
    /// Reading.
    pub const READ: u32 = 1;
    /// Writing.
    pub const WRITE: u32 = 2;
    /// Both.
    pub const BOTH: u32 = 3;
    /// The bits of `share_access` that hold one of the values below.
    pub const WANT_MASK: u32 = 0xff00;
    /// A delegation for reading is wanted.
    pub const WANT_READ: u32 = 0x100;
    /// A delegation for writing is wanted.
    pub const WANT_WRITE: u32 = 0x200;
    /// Any delegation is wanted.
    pub const WANT_ANY: u32 = 0x300;
    /// No delegation is wanted.
    pub const WANT_NONE: u32 = 0x400;
    /// An earlier wish is withdrawn.
    pub const WANT_CANCEL: u32 = 0x500;
    /// Notify the client when resources allow a delegation.
    pub const SIGNAL_WHEN_AVAILABLE: u32 = 0x1_0000;
    /// Push a delegation when it is uncontended.
    pub const PUSH_WHEN_UNCONTENDED: u32 = 0x2_0000;
    /// The client would keep the times of a file that it is delegated (RFC 9754).
    pub const WANT_TIMESTAMPS: u32 = 0x10_0000;
    /// The bits of wishes that may be left unfulfilled.
    pub const HINTS: u32 = SIGNAL_WHEN_AVAILABLE | PUSH_WHEN_UNCONTENDED | WANT_TIMESTAMPS;
}

/// Flags of OPEN's results (`rflags`).
pub mod open_flags {
    /// OPEN_CONFIRM is needed; minor version 0 only.
    pub const CONFIRM: u32 = 2;
    /// Locks behave as POSIX has them.
    pub const POSIX_LOCKS: u32 = 4;
    /// The file stays when its last name is removed.
    pub const PRESERVE_UNLINKED: u32 = 8;
    /// CB_NOTIFY_LOCK may be sent.
    pub const MAY_NOTIFY_LOCK: u32 = 0x20;
}

xdr_struct! {
    /// Arguments of CLOSE.
    pub struct CloseOperation {
        /// Ignored.
        pub sequence: u32,
        /// The open.
        pub open: StateId,
    }
}

xdr_struct! {
    /// Verifier and attributes of an exclusive create (`creatverfattr`).
    pub struct ExclusiveCreate<'a> {
        /// The same in all retries.
        pub verifier: Verifier,
        /// Attributes of the new file.
        pub attributes: Attributes<'a>,
    }
}

xdr_union! {
    /// How OPEN creates a file (`createhow4`).
    pub enum CreateMode<'a> {
        /// Take one that exists.
        Unchecked(attributes: Attributes<'a>) = 0,
        /// Fail if one exists.
        Guarded(attributes: Attributes<'a>) = 1,
        /// Fail, unless it was created with the same verifier.
        Exclusive(verifier: Verifier) = 2,
        /// The same with attributes.
        ExclusiveWithAttributes(create: ExclusiveCreate<'a>) = 3,
    }
}

xdr_enum! {
    /// Kinds of delegations (`open_delegation_type4`).
    pub enum DelegationType {
        None = 0, "OPEN_DELEGATE_NONE", "none";
        Read = 1, "OPEN_DELEGATE_READ", "for reading";
        Write = 2, "OPEN_DELEGATE_WRITE", "for writing";
        NoneExtended = 3, "OPEN_DELEGATE_NONE_EXT", "none, with the reason";
    }
}

xdr_struct! {
    /// An open by name under a delegation (`open_claim_delegate_cur4`).
    pub struct DelegatedName<'a> {
        /// The delegation.
        pub delegation: StateId,
        /// The name.
        pub name: &'a [u8],
    }
}

xdr_union! {
    /// The claim of an open (`open_claim4`).
    pub enum OpenClaim<'a> {
        /// By name in the current directory.
        Name(name: &'a [u8]) = 0,
        /// The current file, after a restart of the server.
        Previous(delegation: DelegationType) = 1,
        /// By name, under a delegation.
        DelegatedName(claim: DelegatedName<'a>) = 2,
        /// By name, under a delegation of the client's earlier instance.
        PreviousDelegatedName(name: &'a [u8]) = 3,
        /// The current file.
        File = 4,
        /// The current file, under a delegation.
        DelegatedFile(delegation: StateId) = 5,
        /// The current file, under a delegation of the client's earlier instance.
        PreviousDelegatedFile = 6,
    }
}

xdr_struct! {
    /// Arguments of OPEN.
    pub struct OpenOperation<'a> {
        /// Ignored.
        pub sequence: u32,
        /// Access and wish for a delegation, a mask of [`share`].
        pub access: u32,
        /// The access denied to others, a mask of [`share`].
        pub deny: u32,
        /// The open owner.
        pub owner: StateOwner<'a>,
        /// How to create the file, if that is wanted.
        pub create: Option<CreateMode<'a>>,
        /// Its claim.
        pub claim: OpenClaim<'a>,
    }
}

xdr_struct! {
    /// Space in blocks (`nfs_modified_limit4`).
    pub fixed struct BlockLimit {
        /// Blocks.
        pub blocks: u32,
        /// Bytes of each.
        pub block_size: u32,
    }
}

xdr_union! {
    /// The amount that a client may write before it has to ask the server (`nfs_space_limit4`).
    pub enum SpaceLimit {
        /// Up to this size of the file.
        Size(bytes: u64) = 1,
        /// So many blocks.
        Blocks(limit: BlockLimit) = 2,
    }
}

xdr_struct! {
    /// A delegation for reading (`open_read_delegation4`).
    pub struct ReadDelegation<'a> {
        /// The stateid.
        pub state: StateId,
        /// Whether it is recalled already.
        pub recalled: bool,
        /// Who needs no ACCESS.
        pub permissions: AccessControlEntry<'a>,
    }
}

xdr_struct! {
    /// A delegation for writing (`open_write_delegation4`).
    pub struct WriteDelegation<'a> {
        /// The stateid.
        pub state: StateId,
        /// Whether it is recalled already.
        pub recalled: bool,
        /// What may be written before the client has to ask.
        pub space: SpaceLimit,
        /// Who needs no ACCESS.
        pub permissions: AccessControlEntry<'a>,
    }
}

xdr_union! {
    /// Why there is no delegation (`open_none_delegation4`).
    pub enum NoDelegation {
        /// None was wanted.
        NotWanted = 0,
        /// Others use the file; whether one will be pushed.
        Contention(will_push: bool) = 1,
        /// Resources are short; whether the client will be notified.
        Resource(will_signal: bool) = 2,
        /// Not for this type of file.
        FileType = 3,
        /// Not for writing to this type of file.
        WriteFileType = 4,
        /// No upgrade.
        Upgrade = 5,
        /// No downgrade.
        Downgrade = 6,
        /// The wish was withdrawn.
        Cancelled = 7,
        /// Not for directories.
        Directory = 8,
    }
}

xdr_union! {
    /// The delegation that comes with an open (`open_delegation4`).
    pub enum OpenDelegation<'a> {
        /// None.
        None = 0,
        /// For reading.
        Read(delegation: ReadDelegation<'a>) = 1,
        /// For writing.
        Write(delegation: WriteDelegation<'a>) = 2,
        /// None, with the reason.
        NoneBecause(reason: NoDelegation) = 3,
    }
}

xdr_struct! {
    /// Results of OPEN.
    pub struct OpenReply<'a> {
        /// The open.
        pub open: StateId,
        /// The directory.
        pub directory: ChangeInfo,
        /// A mask of [`open_flags`].
        pub flags: u32,
        /// Attributes that were set.
        pub attributes_set: Bitmap,
        /// The delegation.
        pub delegation: OpenDelegation<'a>,
    }
}

xdr_struct! {
    /// Arguments of OPEN_DOWNGRADE.
    pub struct OpenDowngradeOperation {
        /// The open.
        pub open: StateId,
        /// Ignored.
        pub sequence: u32,
        /// Access that stays, a mask of [`share`].
        pub access: u32,
        /// Denials that stay, a mask of [`share`].
        pub deny: u32,
    }
}
