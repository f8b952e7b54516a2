//! What the upper layer binding says of a call before it is decoded (RFC 8267 sections 4 and 5).

use millrace_wire::nfs3::{self, Procedure};
use millrace_wire::rpc::CallHeader;
use millrace_wire::xdr::Decoder;

/// Where the words end that stand at fixed places: no data of any item can be before.
pub const FIXED_WORDS: u32 = 24;

/// Program, version and procedure of a call, at their fixed places (RFC 5531 section 9).
fn procedure(message: &[u8]) -> Option<(u32, u32, u32)> {
    let word = |at: usize| {
        message
            .get(at..at + 4)?
            .first_chunk::<4>()
            .map(|bytes| u32::from_be_bytes(*bytes))
    };
    Some((word(12)?, word(16)?, word(20)?))
}

/// Whether data of this call may stay in its read chunk until the procedure says where it shall
/// live: that of an NFS version 3 WRITE. Everything else is put back into the message.
pub fn keeps_apart(message: &[u8]) -> bool {
    procedure(message) == Some((nfs3::PROGRAM, nfs3::VERSION, Procedure::Write as u32))
}

/// Where the data of an NFS version 3 WRITE begins, counted from the XID; `None` if `message`
/// holds none or ends before.
pub fn write_data_position(message: &[u8]) -> Option<usize> {
    if !keeps_apart(message) {
        return None;
    }
    let mut input = Decoder::new(message);
    CallHeader::decode(&mut input).ok()?;
    input.opaque(64).ok()?;
    // Offset, count, stability and the length word (RFC 1813 section 3.3.7).
    input.u64().ok()?;
    input.u32().ok()?;
    input.u32().ok()?;
    input.u32().ok()?;
    Some(input.position())
}
