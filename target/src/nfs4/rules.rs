//! The program table's entry for NFS version 4.

use millrace_wire::nfs3::PROGRAM;
use millrace_wire::nfs4::VERSION;
use millrace_wire::xdr::ITEMS_MAX;

use crate::rpc::program::{EligibleArguments, ProcedureInfo, ProgramInfo};

/// NFS version 4 (RFC 8881). Data of READ and WRITE and texts of links travel in chunks (RFC 8267
/// section 6.1). Repetitions are found by the slots of sessions, not by the duplicate request
/// cache.
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
            ..ProcedureInfo::plain("compound").with_results(ITEMS_MAX)
        },
    ],
    counted: true,
};
