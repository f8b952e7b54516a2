//! Status of operations.

use crate::xdr::xdr_enum;

xdr_enum! {
    /// Status of an operation and of a COMPOUND (`nfsstat4`; RFC 8881 section 15, RFC 7862
    /// section 11, RFC 8276).
    pub enum OperationStatus {
        Ok = 0, "NFS4_OK", "the operation succeeded";
        NotOwner = 1, "NFS4ERR_PERM", "not owner";
        NoEntry = 2, "NFS4ERR_NOENT", "no such file or directory";
        Io = 5, "NFS4ERR_IO", "input or output error";
        NoDeviceOrAddress = 6, "NFS4ERR_NXIO", "no such device or address";
        AccessDenied = 13, "NFS4ERR_ACCESS", "permission denied";
        Exists = 17, "NFS4ERR_EXIST", "file exists";
        CrossDevice = 18, "NFS4ERR_XDEV", "link across file systems";
        NotDirectory = 20, "NFS4ERR_NOTDIR", "not a directory";
        IsDirectory = 21, "NFS4ERR_ISDIR", "is a directory";
        Invalid = 22, "NFS4ERR_INVAL", "invalid argument";
        FileTooBig = 27, "NFS4ERR_FBIG", "file too large";
        NoSpace = 28, "NFS4ERR_NOSPC", "no space left";
        ReadOnly = 30, "NFS4ERR_ROFS", "read-only file system";
        TooManyLinks = 31, "NFS4ERR_MLINK", "too many hard links";
        NameTooLong = 63, "NFS4ERR_NAMETOOLONG", "name too long";
        NotEmpty = 66, "NFS4ERR_NOTEMPTY", "directory not empty";
        Quota = 69, "NFS4ERR_DQUOT", "quota exceeded";
        Stale = 70, "NFS4ERR_STALE", "the file handle's object is gone";
        BadHandle = 10001, "NFS4ERR_BADHANDLE", "illegal file handle";
        BadCookie = 10003, "NFS4ERR_BAD_COOKIE", "stale directory cookie";
        NotSupported = 10004, "NFS4ERR_NOTSUPP", "operation not supported";
        TooSmall = 10005, "NFS4ERR_TOOSMALL", "buffer or request too small";
        ServerFault = 10006, "NFS4ERR_SERVERFAULT", "an error without a number of its own";
        BadType = 10007, "NFS4ERR_BADTYPE", "object type not supported";
        Delay = 10008, "NFS4ERR_DELAY", "try again later";
        Same = 10009, "NFS4ERR_SAME", "the attributes are the same";
        Denied = 10010, "NFS4ERR_DENIED", "a lock is held by another owner";
        Expired = 10011, "NFS4ERR_EXPIRED", "the lease expired";
        Locked = 10012, "NFS4ERR_LOCKED", "a share reservation or lock forbids the access";
        Grace = 10013, "NFS4ERR_GRACE", "the server is in its grace period";
        HandleExpired = 10014, "NFS4ERR_FHEXPIRED", "a volatile file handle expired";
        ShareDenied = 10015, "NFS4ERR_SHARE_DENIED", "a share reservation conflicts";
        WrongSecurity = 10016, "NFS4ERR_WRONGSEC", "wrong security flavor";
        ClientIdInUse = 10017, "NFS4ERR_CLID_INUSE", "the client ID belongs to another principal";
        Resource = 10018, "NFS4ERR_RESOURCE", "resource exhaustion (minor version 0 only)";
        Moved = 10019, "NFS4ERR_MOVED", "the file system moved";
        NoFileHandle = 10020, "NFS4ERR_NOFILEHANDLE", "there is no current or saved file handle";
        MinorVersionMismatch = 10021, "NFS4ERR_MINOR_VERS_MISMATCH", "minor version not supported";
        StaleClientId = 10022, "NFS4ERR_STALE_CLIENTID", "client ID not known to this server instance";
        StaleStateId = 10023, "NFS4ERR_STALE_STATEID", "stateid of an earlier server instance (minor version 0 only)";
        OldStateId = 10024, "NFS4ERR_OLD_STATEID", "the stateid's sequence number is too old";
        BadStateId = 10025, "NFS4ERR_BAD_STATEID", "the stateid designates nothing";
        BadSequenceId = 10026, "NFS4ERR_BAD_SEQID", "owner sequence out of order (minor version 0 only)";
        NotSame = 10027, "NFS4ERR_NOT_SAME", "verifier or attributes differ";
        LockRange = 10028, "NFS4ERR_LOCK_RANGE", "a lock range overlaps in part";
        Symlink = 10029, "NFS4ERR_SYMLINK", "is a symbolic link";
        RestoreHandle = 10030, "NFS4ERR_RESTOREFH", "there is no saved file handle (minor version 0 only)";
        LeaseMoved = 10031, "NFS4ERR_LEASE_MOVED", "some state moved to another server";
        AttributeNotSupported = 10032, "NFS4ERR_ATTRNOTSUPP", "attribute not supported";
        NoGrace = 10033, "NFS4ERR_NO_GRACE", "reclaim outside the grace period";
        ReclaimBad = 10034, "NFS4ERR_RECLAIM_BAD", "reclaim of state that was not held";
        ReclaimConflict = 10035, "NFS4ERR_RECLAIM_CONFLICT", "reclaim conflicts with other state";
        BadXdr = 10036, "NFS4ERR_BADXDR", "arguments do not decode";
        LocksHeld = 10037, "NFS4ERR_LOCKS_HELD", "locks are still held";
        OpenMode = 10038, "NFS4ERR_OPENMODE", "the open does not allow this access";
        BadOwner = 10039, "NFS4ERR_BADOWNER", "unknown owner or group";
        BadCharacter = 10040, "NFS4ERR_BADCHAR", "character not allowed in a name";
        BadName = 10041, "NFS4ERR_BADNAME", "name not allowed";
        BadRange = 10042, "NFS4ERR_BAD_RANGE", "lock range not supported";
        LockNotSupported = 10043, "NFS4ERR_LOCK_NOTSUPP", "atomic lock change not supported";
        IllegalOperation = 10044, "NFS4ERR_OP_ILLEGAL", "undefined operation";
        Deadlock = 10045, "NFS4ERR_DEADLOCK", "locks would wait for each other";
        FileOpen = 10046, "NFS4ERR_FILE_OPEN", "file is open";
        AdministratorRevoked = 10047, "NFS4ERR_ADMIN_REVOKED", "state revoked by an administrator";
        CallbackPathDown = 10048, "NFS4ERR_CB_PATH_DOWN", "no working callback path";
        BadIoMode = 10049, "NFS4ERR_BADIOMODE", "wrong layout mode";
        BadLayout = 10050, "NFS4ERR_BADLAYOUT", "layout not understood";
        BadSessionDigest = 10051, "NFS4ERR_BAD_SESSION_DIGEST", "wrong digest in SET_SSV";
        BadSession = 10052, "NFS4ERR_BADSESSION", "unknown session";
        BadSlot = 10053, "NFS4ERR_BADSLOT", "slot out of range";
        CompleteAlready = 10054, "NFS4ERR_COMPLETE_ALREADY", "reclaim was completed before";
        ConnectionNotBound = 10055, "NFS4ERR_CONN_NOT_BOUND_TO_SESSION", "connection not bound to the session";
        DelegationAlreadyWanted = 10056, "NFS4ERR_DELEG_ALREADY_WANTED", "delegation was wanted before";
        BackchannelBusy = 10057, "NFS4ERR_BACK_CHAN_BUSY", "callbacks are outstanding";
        LayoutTryLater = 10058, "NFS4ERR_LAYOUTTRYLATER", "layout not available now";
        LayoutUnavailable = 10059, "NFS4ERR_LAYOUTUNAVAILABLE", "no layouts for this file";
        NoMatchingLayout = 10060, "NFS4ERR_NOMATCHING_LAYOUT", "no such layout held";
        RecallConflict = 10061, "NFS4ERR_RECALLCONFLICT", "conflicts with a recall";
        UnknownLayoutType = 10062, "NFS4ERR_UNKNOWN_LAYOUTTYPE", "unknown layout type";
        SequenceMisordered = 10063, "NFS4ERR_SEQ_MISORDERED", "sequence number out of order";
        SequencePosition = 10064, "NFS4ERR_SEQUENCE_POS", "SEQUENCE not first";
        RequestTooBig = 10065, "NFS4ERR_REQ_TOO_BIG", "request larger than the channel allows";
        ReplyTooBig = 10066, "NFS4ERR_REP_TOO_BIG", "reply larger than the channel allows";
        ReplyTooBigToCache = 10067, "NFS4ERR_REP_TOO_BIG_TO_CACHE", "reply larger than the cache allows";
        RetryUncached = 10068, "NFS4ERR_RETRY_UNCACHED_REP", "retry of a request whose reply was not cached";
        UnsafeCompound = 10069, "NFS4ERR_UNSAFE_COMPOUND", "operations cannot be cancelled safely";
        TooManyOperations = 10070, "NFS4ERR_TOO_MANY_OPS", "more operations than the channel allows";
        OperationNotInSession = 10071, "NFS4ERR_OP_NOT_IN_SESSION", "operation needs SEQUENCE first";
        HashNotSupported = 10072, "NFS4ERR_HASH_ALG_UNSUPP", "hash algorithm not supported";
        ClientIdBusy = 10074, "NFS4ERR_CLIENTID_BUSY", "client ID still has state";
        PnfsIoHole = 10075, "NFS4ERR_PNFS_IO_HOLE", "hole in a striped file";
        SequenceFalseRetry = 10076, "NFS4ERR_SEQ_FALSE_RETRY", "retry of another request";
        BadHighSlot = 10077, "NFS4ERR_BAD_HIGH_SLOT", "highest slot out of range";
        DeadSession = 10078, "NFS4ERR_DEADSESSION", "session cannot be used any more";
        EncryptionNotSupported = 10079, "NFS4ERR_ENCR_ALG_UNSUPP", "encryption algorithm not supported";
        PnfsNoLayout = 10080, "NFS4ERR_PNFS_NO_LAYOUT", "input or output without layout";
        NotOnlyOperation = 10081, "NFS4ERR_NOT_ONLY_OP", "operation must stand alone";
        WrongCredential = 10082, "NFS4ERR_WRONG_CRED", "wrong credential for this state";
        WrongType = 10083, "NFS4ERR_WRONG_TYPE", "wrong type of object";
        DirectoryDelegationUnavailable = 10084, "NFS4ERR_DIRDELEG_UNAVAIL", "no directory delegations";
        RejectDelegation = 10085, "NFS4ERR_REJECT_DELEG", "the client refuses the delegation";
        ReturnConflict = 10086, "NFS4ERR_RETURNCONFLICT", "conflicts with a layout return";
        DelegationRevoked = 10087, "NFS4ERR_DELEG_REVOKED", "delegation was revoked";
        PartnerNotSupported = 10088, "NFS4ERR_PARTNER_NOTSUPP", "no copies with that server";
        PartnerNoAuthorization = 10089, "NFS4ERR_PARTNER_NO_AUTH", "copy not authorized at that server";
        UnionNotSupported = 10090, "NFS4ERR_UNION_NOTSUPP", "arm of a union not supported";
        OffloadDenied = 10091, "NFS4ERR_OFFLOAD_DENIED", "copy not allowed";
        WrongLabelFormat = 10092, "NFS4ERR_WRONG_LFS", "label format not supported";
        BadLabel = 10093, "NFS4ERR_BADLABEL", "label not allowed";
        OffloadRequirements = 10094, "NFS4ERR_OFFLOAD_NO_REQS", "copy requirements cannot be met";
        NoExtendedAttribute = 10095, "NFS4ERR_NOXATTR", "no such extended attribute (RFC 8276)";
        ExtendedAttributeTooBig = 10096, "NFS4ERR_XATTR2BIG", "extended attribute too large (RFC 8276)";
    }
}

impl OperationStatus {
    /// Least minor version that has this status. Minor version 2 brought 10088 to 10096.
    #[must_use]
    pub const fn minor_version(self) -> u32 {
        if self.number() >= Self::PartnerNotSupported.number() {
            2
        } else {
            1
        }
    }
}
