//! Names in arguments (RFC 8881 section 14).

use millrace_wire::nfs4::OperationStatus;

/// Checks that a name is valid in a directory with names of at most `longest` bytes. Names are any
/// bytes but NUL and '/'; `.` and `..` are not names.
pub(super) fn check(name: &[u8], longest: u32) -> Result<(), OperationStatus> {
    if name.is_empty() {
        Err(OperationStatus::Invalid)
    } else if name.len() > longest as usize {
        Err(OperationStatus::NameTooLong)
    } else if name == b"." || name == b".." {
        Err(OperationStatus::BadName)
    } else if name.contains(&0) || name.contains(&b'/') {
        Err(OperationStatus::BadCharacter)
    } else {
        Ok(())
    }
}
