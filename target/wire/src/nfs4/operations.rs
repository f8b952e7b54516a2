//! The operations of COMPOUND (RFC 8881 section 18, RFC 7862 section 15, RFC 8276 section 8.4).

use super::attributes::{Attributes, Bitmap};
use super::macros::operations;
use super::types::{ChangeInfo, ClientId, HandleBytes, SessionId, StateId, Verifier};
use super::{
    AccessReply, BackchannelCtlOperation, CloneOperation, CloseOperation, CommitOperation,
    ConnectionBinding, CopyOperation, CopyReply, CreateOperation, CreateReply,
    CreateSessionOperation, CreateSessionReply, ExchangeIdOperation, ExchangeIdReply,
    IoAdviseOperation, ListxattrsOperation, ListxattrsReply, LockOperation, LockReply,
    LocktOperation, LocktReply, LockuOperation, OP_ILLEGAL, OffloadStatusReply,
    OpenDowngradeOperation, OpenOperation, OpenReply, OperationOutcome, ReadOperation,
    ReadPlusReply, ReadReply, ReaddirOperation, ReaddirReply, RenameOperation, RenameReply,
    SecinfoReply, SecinfoStyle, SeekOperation, SeekReply, SequenceOperation, SequenceReply,
    SetSsvOperation, SetattrOperation, SetattrReply, SetxattrOperation, SpaceOperation,
    TestStateidOperation, TestStateidReply, WriteOperation, WriteReply,
};
use crate::xdr::Bulk;

/// The operation that has results behind any status (RFC 8881 section 18.30.2).
pub(super) const SETATTR: u32 = OperationNumber::Setattr.number();

operations! {
    /// Numbers of operations (`nfs_opnum4`).
    numbers OperationNumber;
    /// An operation with its arguments (`nfs_argop4`).
    arguments Operation;
    /// Results of an operation (`nfs_resop4`).
    results OperationResults;
    served {
        Access = 3, 1, "ACCESS": u32 => OperationOutcome<AccessReply>;
        Close = 4, 1, "CLOSE": CloseOperation => OperationOutcome<StateId>;
        Commit = 5, 1, "COMMIT": CommitOperation => OperationOutcome<Verifier>;
        Create = 6, 1, "CREATE": CreateOperation<'a> => OperationOutcome<CreateReply>;
        Delegreturn = 8, 1, "DELEGRETURN": StateId => OperationOutcome<()>;
        Getattr = 9, 1, "GETATTR": Bitmap => OperationOutcome<Attributes<'a>>;
        Getfh = 10, 1, "GETFH": () => OperationOutcome<HandleBytes<'a>>;
        Link = 11, 1, "LINK": &'a [u8] => OperationOutcome<ChangeInfo>;
        Lock = 12, 1, "LOCK": LockOperation<'a> => LockReply<'a>;
        Lockt = 13, 1, "LOCKT": LocktOperation<'a> => LocktReply<'a>;
        Locku = 14, 1, "LOCKU": LockuOperation => OperationOutcome<StateId>;
        Lookup = 15, 1, "LOOKUP": &'a [u8] => OperationOutcome<()>;
        Lookupp = 16, 1, "LOOKUPP": () => OperationOutcome<()>;
        Nverify = 17, 1, "NVERIFY": Attributes<'a> => OperationOutcome<()>;
        Open = 18, 1, "OPEN": OpenOperation<'a> => OperationOutcome<OpenReply<'a>>;
        OpenDowngrade = 21, 1, "OPEN_DOWNGRADE": OpenDowngradeOperation => OperationOutcome<StateId>;
        Putfh = 22, 1, "PUTFH": HandleBytes<'a> => OperationOutcome<()>;
        Putpubfh = 23, 1, "PUTPUBFH": () => OperationOutcome<()>;
        Putrootfh = 24, 1, "PUTROOTFH": () => OperationOutcome<()>;
        Read = 25, 1, "READ": ReadOperation => OperationOutcome<ReadReply<'a>>;
        Readdir = 26, 1, "READDIR": ReaddirOperation => OperationOutcome<ReaddirReply<'a>>;
        Readlink = 27, 1, "READLINK": () => OperationOutcome<Bulk<'a>>;
        Remove = 28, 1, "REMOVE": &'a [u8] => OperationOutcome<ChangeInfo>;
        Rename = 29, 1, "RENAME": RenameOperation<'a> => OperationOutcome<RenameReply>;
        Restorefh = 31, 1, "RESTOREFH": () => OperationOutcome<()>;
        Savefh = 32, 1, "SAVEFH": () => OperationOutcome<()>;
        Secinfo = 33, 1, "SECINFO": &'a [u8] => SecinfoReply<'a>;
        Setattr = 34, 1, "SETATTR": SetattrOperation<'a> => SetattrReply;
        Verify = 37, 1, "VERIFY": Attributes<'a> => OperationOutcome<()>;
        Write = 38, 1, "WRITE": WriteOperation<'a> => OperationOutcome<WriteReply>;
        BackchannelCtl = 40, 1, "BACKCHANNEL_CTL": BackchannelCtlOperation<'a> => OperationOutcome<()>;
        BindConnToSession = 41, 1, "BIND_CONN_TO_SESSION": ConnectionBinding => OperationOutcome<ConnectionBinding>;
        ExchangeId = 42, 1, "EXCHANGE_ID": ExchangeIdOperation<'a> => OperationOutcome<ExchangeIdReply<'a>>;
        CreateSession = 43, 1, "CREATE_SESSION": CreateSessionOperation<'a> => OperationOutcome<CreateSessionReply>;
        DestroySession = 44, 1, "DESTROY_SESSION": SessionId => OperationOutcome<()>;
        FreeStateid = 45, 1, "FREE_STATEID": StateId => OperationOutcome<()>;
        SecinfoNoName = 52, 1, "SECINFO_NO_NAME": SecinfoStyle => SecinfoReply<'a>;
        Sequence = 53, 1, "SEQUENCE": SequenceOperation => OperationOutcome<SequenceReply>;
        SetSsv = 54, 1, "SET_SSV": SetSsvOperation<'a> => OperationOutcome<&'a [u8]>;
        TestStateid = 55, 1, "TEST_STATEID": TestStateidOperation<'a> => TestStateidReply<'a>;
        DestroyClientid = 57, 1, "DESTROY_CLIENTID": ClientId => OperationOutcome<()>;
        ReclaimComplete = 58, 1, "RECLAIM_COMPLETE": bool => OperationOutcome<()>;
        Allocate = 59, 2, "ALLOCATE": SpaceOperation => OperationOutcome<()>;
        Copy = 60, 2, "COPY": CopyOperation<'a> => CopyReply;
        Deallocate = 62, 2, "DEALLOCATE": SpaceOperation => OperationOutcome<()>;
        IoAdvise = 63, 2, "IO_ADVISE": IoAdviseOperation => OperationOutcome<Bitmap>;
        OffloadCancel = 66, 2, "OFFLOAD_CANCEL": StateId => OperationOutcome<()>;
        OffloadStatus = 67, 2, "OFFLOAD_STATUS": StateId => OperationOutcome<OffloadStatusReply>;
        ReadPlus = 68, 2, "READ_PLUS": ReadOperation => OperationOutcome<ReadPlusReply<'a>>;
        Seek = 69, 2, "SEEK": SeekOperation => OperationOutcome<SeekReply>;
        Clone = 71, 2, "CLONE": CloneOperation => OperationOutcome<()>;
        Getxattr = 72, 2, "GETXATTR": &'a [u8] => OperationOutcome<&'a [u8]>;
        Setxattr = 73, 2, "SETXATTR": SetxattrOperation<'a> => OperationOutcome<ChangeInfo>;
        Listxattrs = 74, 2, "LISTXATTRS": ListxattrsOperation => OperationOutcome<ListxattrsReply<'a>>;
        Removexattr = 75, 2, "REMOVEXATTR": &'a [u8] => OperationOutcome<ChangeInfo>;
    }
    unserved {
        Delegpurge = 7, 1, "DELEGPURGE";
        Openattr = 19, 1, "OPENATTR";
        OpenConfirm = 20, 1, "OPEN_CONFIRM";
        Renew = 30, 1, "RENEW";
        Setclientid = 35, 1, "SETCLIENTID";
        SetclientidConfirm = 36, 1, "SETCLIENTID_CONFIRM";
        ReleaseLockowner = 39, 1, "RELEASE_LOCKOWNER";
        GetDirDelegation = 46, 1, "GET_DIR_DELEGATION";
        Getdeviceinfo = 47, 1, "GETDEVICEINFO";
        Getdevicelist = 48, 1, "GETDEVICELIST";
        Layoutcommit = 49, 1, "LAYOUTCOMMIT";
        Layoutget = 50, 1, "LAYOUTGET";
        Layoutreturn = 51, 1, "LAYOUTRETURN";
        WantDelegation = 56, 1, "WANT_DELEGATION";
        CopyNotify = 61, 2, "COPY_NOTIFY";
        Layouterror = 64, 2, "LAYOUTERROR";
        Layoutstats = 65, 2, "LAYOUTSTATS";
        WriteSame = 70, 2, "WRITE_SAME";
    }
}
