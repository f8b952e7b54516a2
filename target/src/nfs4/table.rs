//! The operations of COMPOUND, as the engine has to know them before it executes them. Numbers,
//! names and minor versions are those of [`OperationNumber`].

use millrace_wire::nfs4::OperationNumber;

/// The file handles that an operation works with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandleNeed {
    /// None.
    Nothing,
    /// The current one.
    Current,
    /// The saved one.
    Saved,
    /// The current and the saved one.
    Both,
}

/// Where in a COMPOUND an operation may stand (RFC 8881 section 2.10.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperationPosition {
    /// First only: SEQUENCE.
    First,
    /// Behind SEQUENCE.
    InSession,
    /// Behind SEQUENCE, or alone.
    InSessionOrAlone,
    /// Alone.
    Alone,
}

/// The static properties of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct OperationRule {
    /// Where it may stand.
    pub position: OperationPosition,
    /// The handles that it works with.
    pub handles: HandleNeed,
    /// Whether it changes files or the state of clients: a result that would not fit is then found
    /// out before it is executed.
    pub changes: bool,
    /// Bytes of its largest result. For operations that change nothing this is only an estimate: a
    /// larger result is detected when it is encoded.
    pub result_bytes: usize,
    /// Whether it may take as long as many others, so that those that follow it wait for a later
    /// turn.
    pub is_long: bool,
}

impl OperationRule {
    const fn new(handles: HandleNeed, changes: bool, result_bytes: usize) -> Self {
        Self {
            position: OperationPosition::InSession,
            handles,
            changes,
            result_bytes,
            is_long: false,
        }
    }

    const fn long(self) -> Self {
        Self {
            is_long: true,
            ..self
        }
    }

    const fn at(self, position: OperationPosition) -> Self {
        Self { position, ..self }
    }
}

/// Bytes of a result without values: number and status.
pub(super) const BARE: usize = 8;

/// A stateid, `change_info4`, and the bitmap of attributes that were set.
const STATE: usize = 16;
const CHANGE: usize = 20;
const ATTRIBUTES_SET: usize = 16;
/// A conflicting lock, with the longest owner.
const CONFLICT: usize = 32 + 1024;
/// A delegation with its access control entry.
const DELEGATION: usize = 128;
/// Attributes as clients ask for them; more are found to fit or not.
const ATTRIBUTES: usize = 512;

/// The rule of an operation.
#[allow(clippy::match_same_arms)] // They stand in groups.
pub(super) const fn rule(operation: OperationNumber) -> OperationRule {
    use HandleNeed::{Both, Current, Nothing, Saved};
    use OperationNumber as Number;
    use OperationPosition::{Alone, First, InSessionOrAlone};
    const fn look(handles: HandleNeed, bytes: usize) -> OperationRule {
        OperationRule::new(handles, false, BARE + bytes)
    }
    const fn change(handles: HandleNeed, bytes: usize) -> OperationRule {
        OperationRule::new(handles, true, BARE + bytes)
    }
    match operation {
        Number::Sequence => change(Nothing, 36).at(First),
        Number::ExchangeId => change(Nothing, 512).at(InSessionOrAlone),
        Number::CreateSession => change(Nothing, 96).at(InSessionOrAlone),
        Number::DestroySession | Number::DestroyClientid => change(Nothing, 0).at(InSessionOrAlone),
        Number::BindConnToSession => change(Nothing, 24).at(Alone),
        Number::BackchannelCtl | Number::ReclaimComplete | Number::FreeStateid => {
            change(Nothing, 0)
        }
        Number::SetSsv => change(Nothing, 0),
        Number::TestStateid => look(Nothing, 64),
        Number::Putfh | Number::Putpubfh | Number::Putrootfh => look(Nothing, 0),
        Number::Restorefh => look(Saved, 0),
        Number::Savefh | Number::Lookup | Number::Lookupp | Number::Verify | Number::Nverify => {
            look(Current, 0)
        }
        Number::Getfh => look(Current, 4 + 128),
        Number::Getattr => look(Current, ATTRIBUTES),
        Number::Access => look(Current, 8),
        Number::Read | Number::Readlink => look(Current, 8),
        Number::Readdir | Number::ReadPlus => look(Current, ATTRIBUTES).long(),
        Number::Secinfo | Number::SecinfoNoName => look(Current, 16),
        Number::Commit => change(Current, 8),
        Number::Write => change(Current, 16),
        Number::Setattr => change(Current, ATTRIBUTES_SET),
        Number::Create => change(Current, CHANGE + ATTRIBUTES_SET),
        Number::Remove => change(Current, CHANGE),
        Number::Rename => change(Both, 2 * CHANGE),
        Number::Link => change(Both, CHANGE),
        Number::Open => change(Current, STATE + CHANGE + 4 + ATTRIBUTES_SET + DELEGATION),
        Number::Close | Number::OpenDowngrade | Number::Locku => change(Current, STATE),
        Number::Lock => change(Current, CONFLICT),
        Number::Lockt => look(Current, CONFLICT),
        Number::Delegreturn => change(Current, 0),
        Number::Allocate | Number::Deallocate => change(Current, 0).long(),
        Number::Copy => change(Both, 64).long(),
        Number::Clone => change(Both, 0).long(),
        Number::IoAdvise | Number::Seek | Number::OffloadStatus => look(Current, 32),
        Number::OffloadCancel => change(Current, 0),
        Number::Getxattr | Number::Listxattrs => look(Current, ATTRIBUTES),
        Number::Setxattr | Number::Removexattr => change(Current, CHANGE),
        // Not served in any minor version.
        Number::Delegpurge
        | Number::Openattr
        | Number::OpenConfirm
        | Number::Renew
        | Number::Setclientid
        | Number::SetclientidConfirm
        | Number::ReleaseLockowner
        | Number::GetDirDelegation
        | Number::Getdeviceinfo
        | Number::Getdevicelist
        | Number::Layoutcommit
        | Number::Layoutget
        | Number::Layoutreturn
        | Number::WantDelegation
        | Number::CopyNotify
        | Number::Layouterror
        | Number::Layoutstats
        | Number::WriteSame => look(Nothing, 0),
    }
}
