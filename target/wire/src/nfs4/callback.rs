//! Calls from a server to its client (RFC 8881 section 20, RFC 7862 section 16).

use super::attributes::{Attributes, Bitmap};
use super::macros::operations;
use super::types::{HandleBytes, SessionId, StateId, StateOwner};
use super::{CallbackOffload, OP_ILLEGAL, OperationOutcome};
use crate::xdr::{Array, xdr_struct};

/// Versions of the callback program that a server may call: that of its description (RFC 5662), which
/// clients have, and that of RFC 8881 section 18.36.3. The client chooses the program's number.
pub const CALLBACK_VERSIONS: [u32; 2] = [1, 4];

/// Bits of CB_RECALL_ANY's type mask.
pub mod recallable {
    /// Delegations for reading.
    pub const READ_DELEGATIONS: u32 = 0;
    /// Delegations for writing.
    pub const WRITE_DELEGATIONS: u32 = 1;
}

xdr_struct! {
    /// Arguments of CB_GETATTR.
    pub struct CallbackGetattr<'a> {
        /// The file.
        pub handle: HandleBytes<'a>,
        /// Attributes wanted: size and change.
        pub attributes: Bitmap,
    }
}

xdr_struct! {
    /// Arguments of CB_RECALL.
    pub struct CallbackRecall<'a> {
        /// The delegation.
        pub delegation: StateId,
        /// Whether the file will be truncated to nothing.
        pub truncate: bool,
        /// The file.
        pub handle: HandleBytes<'a>,
    }
}

xdr_struct! {
    /// Arguments of CB_RECALL_ANY.
    pub struct CallbackRecallAny {
        /// How many the client may keep.
        pub keep: u32,
        /// Bits of [`recallable`].
        pub types: Bitmap,
    }
}

xdr_struct! {
    /// A call with a reply that a callback may overtake (`referring_call4`).
    pub struct ReferringCall {
        /// Its sequence number.
        pub sequence: u32,
        /// Its slot.
        pub slot: u32,
    }
}

xdr_struct! {
    /// Calls of a session (`referring_call_list4`).
    pub struct ReferringCalls<'a> {
        /// The session.
        pub session: SessionId,
        /// The calls.
        pub calls: Array<'a, ReferringCall>,
    }
}

xdr_struct! {
    /// Arguments of CB_SEQUENCE.
    pub struct CallbackSequence<'a> {
        /// The session.
        pub session: SessionId,
        /// Sequence number of the slot.
        pub sequence: u32,
        /// The slot.
        pub slot: u32,
        /// Highest slot in use by the server.
        pub highest_slot: u32,
        /// Whether the reply must be cached.
        pub cache_this: bool,
        /// Calls with replies that the callback may overtake.
        pub referring: Array<'a, ReferringCalls<'a>>,
    }
}

xdr_struct! {
    /// Results of CB_SEQUENCE.
    pub struct CallbackSequenceReply {
        /// The session.
        pub session: SessionId,
        /// Sequence number of the slot.
        pub sequence: u32,
        /// The slot.
        pub slot: u32,
        /// Highest slot that the client accepts.
        pub highest_slot: u32,
        /// Highest slot that the server shall use.
        pub target_highest_slot: u32,
    }
}

xdr_struct! {
    /// Arguments of CB_NOTIFY_LOCK.
    pub struct CallbackNotifyLock<'a> {
        /// The file.
        pub handle: HandleBytes<'a>,
        /// The lock owner that waits.
        pub owner: StateOwner<'a>,
    }
}

operations! {
    /// Numbers of operations of CB_COMPOUND (`nfs_cb_opnum4`).
    numbers CallbackNumber;
    /// An operation of CB_COMPOUND with its arguments (`nfs_cb_argop4`).
    arguments CallbackOperation;
    /// Results of an operation of CB_COMPOUND (`nfs_cb_resop4`).
    results CallbackResults;
    served {
        Getattr = 3, 1, "CB_GETATTR": CallbackGetattr<'a> => OperationOutcome<Attributes<'a>>;
        Recall = 4, 1, "CB_RECALL": CallbackRecall<'a> => OperationOutcome<()>;
        RecallAny = 8, 1, "CB_RECALL_ANY": CallbackRecallAny => OperationOutcome<()>;
        RecallSlot = 10, 1, "CB_RECALL_SLOT": u32 => OperationOutcome<()>;
        Sequence = 11, 1, "CB_SEQUENCE": CallbackSequence<'a> => OperationOutcome<CallbackSequenceReply>;
        NotifyLock = 13, 1, "CB_NOTIFY_LOCK": CallbackNotifyLock<'a> => OperationOutcome<()>;
        Offload = 15, 2, "CB_OFFLOAD": CallbackOffload<'a> => OperationOutcome<()>;
    }
    unserved {
        Layoutrecall = 5, 1, "CB_LAYOUTRECALL";
        Notify = 6, 1, "CB_NOTIFY";
        PushDelegation = 7, 1, "CB_PUSH_DELEG";
        RecallableObjectAvailable = 9, 1, "CB_RECALLABLE_OBJ_AVAIL";
        WantsCancelled = 12, 1, "CB_WANTS_CANCELLED";
        NotifyDeviceid = 14, 1, "CB_NOTIFY_DEVICEID";
    }
}
