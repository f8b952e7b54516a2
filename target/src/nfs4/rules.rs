//! The program table's entry for NFS version 4.

use millrace_store::XATTR_VALUE_MAX;
use millrace_wire::nfs3::PROGRAM;
use millrace_wire::nfs4::VERSION;
use millrace_wire::xdr::ITEMS_MAX;

use crate::rpc::program::{EligibleArguments, ProcedureInfo, ProgramInfo};

/// Bytes of a call around the value of SETXATTR: the call header with the longest credentials, and
/// the operations before and behind it.
const AROUND_XATTR: usize = 4096;

/// NFS version 4 (RFC 8881). Data of READ and WRITE and texts of links travel in chunks (RFC 8267
/// section 6.1). Values of SETXATTR do not: a long one makes a long call. Repetitions are found by
/// the slots of sessions, not by the duplicate request cache.
pub const INFO: ProgramInfo = ProgramInfo {
    number: PROGRAM,
    name: "nfs4",
    versions: VERSION..=VERSION,
    procedures: &[
        ProcedureInfo::plain("null").free(),
        ProcedureInfo {
            arguments: Some(EligibleArguments {
                most: ITEMS_MAX,
                // Operations may follow the data of any item.
                to_last: None,
            }),
            ..ProcedureInfo::plain("compound")
                .with_whole(XATTR_VALUE_MAX + AROUND_XATTR)
                .with_results(ITEMS_MAX)
                .immediate()
        },
    ],
    counted: true,
};
