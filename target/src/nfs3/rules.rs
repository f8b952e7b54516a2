//! The program table's entry for NFS version 3.

use millrace_wire::nfs3::{PROGRAM, VERSION};
use millrace_wire::xdr::{Decoder, Result};

use crate::rpc::program::{DataDirection, EligibleArguments, ProcedureInfo, ProgramInfo};

/// NFS version 3 (RFC 1813). What may travel in chunks follows RFC 8267 section 4; the text of
/// SYMLINK is eligible too, but always put back into the message.
pub const INFO: ProgramInfo = ProgramInfo {
    number: PROGRAM,
    name: "nfs",
    versions: VERSION..=VERSION,
    procedures: &PROCEDURES,
    counted: true,
};

const PROCEDURES: [ProcedureInfo; 22] = {
    const fn plain(name: &'static str) -> ProcedureInfo {
        ProcedureInfo::plain(name)
    }
    [
        plain("null").free(),
        plain("getattr").immediate(),
        plain("setattr").once(),
        plain("lookup").immediate(),
        plain("access").immediate(),
        plain("readlink").with_results(1),
        ProcedureInfo {
            data: Some(DataDirection::Read),
            ..plain("read").with_results(1).immediate()
        },
        ProcedureInfo {
            data: Some(DataDirection::Write),
            arguments: Some(EligibleArguments {
                most: 1,
                to_last: Some(to_write_data),
            }),
            ..plain("write").immediate()
        },
        plain("create").once(),
        plain("mkdir").once(),
        plain("symlink").once(),
        plain("mknod").once(),
        plain("remove").once(),
        plain("rmdir").once(),
        plain("rename").once(),
        plain("link").once(),
        plain("readdir"),
        plain("readdirplus"),
        plain("fsstat"),
        plain("fsinfo"),
        plain("pathconf"),
        plain("commit"),
    ]
};

/// The arguments of WRITE before its data (RFC 1813 section 3.3.7): handle, offset, count,
/// stability and the length word.
fn to_write_data(input: &mut Decoder<'_>) -> Result<()> {
    input.opaque(64)?;
    input.u64()?;
    input.u32()?;
    input.u32()?;
    input.u32().map(drop)
}

#[cfg(test)]
mod tests {
    use millrace_wire::nfs3::Procedure;

    use super::*;

    #[test]
    fn procedures_stand_at_their_numbers() {
        for procedure in Procedure::ALL {
            let info = INFO.procedure((PROGRAM, VERSION, procedure.number()));
            let name = procedure.name().to_lowercase();
            assert_eq!(info.map(|info| info.name), Some(name.as_str()));
        }
        assert_eq!(INFO.procedures.len(), Procedure::ALL.len());
    }
}
